"""Hooks: the parts of an engine that a plug-in relies on, as data, checked against the installed engine.

The engines change these parts without notice. A plug-in that does not fit must say at start which part changed, and not
fail in the middle of a request. So each plug-in lists its hooks, and `broken_hooks` compares the list with the engine:

    Hook("vllm.parser.harmony", "HarmonyParser")   ->   vllm.parser.harmony has no HarmonyParser

`when_imported` changes a module of an engine as soon as the engine imports it.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_log = logging.getLogger(__name__)
_MISSING = object()
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Hook:
    """One part of an engine."""

    module: str
    name: str
    """Its name in the module; dots lead into classes."""
    parameters: tuple[str, ...] | None = None
    """Its parameters, in order, for a function that is overridden or wrapped. It may have more after them that are
    optional: what overrides it takes whatever comes."""
    accepts: tuple[str, ...] = ()
    """Parameters that are passed to it, for a function or a class that is called."""

    def problem(self) -> str | None:
        """What is wrong with it, in words; None if it is as expected."""
        try:
            part: Any = importlib.import_module(self.module)
        except (ImportError, AttributeError) as error:
            return f"{self.module} cannot be imported ({error})"
        for name in self.name.split("."):
            part = getattr(part, name, _MISSING)
            if part is _MISSING:
                return f"{self.module} has no {self.name}"
        if self.parameters is None and not self.accepts:
            return None
        try:
            now = inspect.signature(part).parameters
        except (TypeError, ValueError):
            return f"{self.name} cannot be called"
        if self.parameters is not None and not self._extends(now):
            return f"{self.name} takes ({', '.join(now)}), not ({', '.join(self.parameters)})"
        refused = [name for name in self.accepts if name not in now]
        return f"{self.name} does not take {', '.join(refused)}" if refused else None

    def _extends(self, now: Mapping[str, inspect.Parameter]) -> bool:
        """Whether these are the expected parameters, and optional ones after those of them that have a position."""
        expected = self.parameters or ()
        more = [name for name in now if name not in expected]
        positions = [name for name in now if now[name].kind is not inspect.Parameter.KEYWORD_ONLY]
        kept = [name for name in positions if name in expected]
        return (
            tuple(name for name in now if name in expected) == expected
            and positions[: len(kept)] == kept
            and all(now[name].default is not inspect.Parameter.empty or now[name].kind in _ANY for name in more)
        )


def broken_hooks(hooks: Iterable[Hook]) -> list[str]:
    """What is wrong with the hooks, each problem once."""
    return list(dict.fromkeys(problem for hook in hooks if (problem := hook.problem()) is not None))


@dataclass(frozen=True)
class Supported:
    """The versions of an engine that a plug-in was tested with."""

    engine: str
    """The engine's name; its package has the same name in lower case."""
    first: str
    below: str

    def __str__(self) -> str:
        return f"{self.engine.lower()}>={self.first},<{self.below}"

    def installed(self) -> str | None:
        """The installed version; None if the engine is not installed as a package."""
        try:
            return version(self.engine.lower())
        except PackageNotFoundError:
            return None

    def includes(self, installed: str) -> bool:
        return _numbers(self.first) <= _numbers(installed) < _numbers(self.below)

    def problem(self, hooks: Iterable[Hook], self_test: Callable[[], Iterable[str]]) -> str | None:
        """Why a plug-in with these hooks cannot work here; None if it can.

        self_test: reads a few replies with the engine's own interfaces, and says what went wrong. It is run for a
            version that the plug-in was not tested with, of which the log then has a warning.
        """
        package = self.engine.lower()
        if package not in sys.modules and find_spec(package) is None:
            return f"unbraid's plug-in needs {self.engine}, which is not installed: pip install '{self}'"
        installed = self.installed() or "of an unknown version"
        if problems := broken_hooks(hooks):
            return self._refusal(installed, problems)
        if self.includes(installed):
            return None
        try:
            problems = list(self_test())
        except Exception as error:
            problems = [f"the self-test ended with {error!r}"]
        if problems:
            return self._refusal(installed, problems)
        _log.warning("unbraid's plug-in was tested with %s; %s %s passed its self-test", self, self.engine, installed)
        return None

    def _refusal(self, installed: str, problems: Iterable[str]) -> str:
        return (
            f"unbraid's plug-in is made for {self}, and this {self.engine} ({installed}) does not fit: "
            f"{'; '.join(problems)}. Install a version that it is made for, what is missing, or a newer unbraid"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """`0.32.0+cpu` as (0, 32, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


# --- Changing a module when it is imported -----------------------------------------------------------------------


def when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Do `action` to the module of that name: now if it is loaded, or right after it is.

    The engines load plug-ins in every one of their processes, and most of them never import a parser. To change a
    module there, one would have to import it. Instead a finder waits for its name.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        action(loaded)
    else:
        sys.meta_path.insert(0, _Finder(name, action))


class _Finder(MetaPathFinder):
    """Finds one module, as the other finders do, and then is gone."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


class _Loader(Loader):
    """Loads a module as its own loader does, then does what was asked."""

    def __init__(self, loader: Loader, action: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on, the module looks as if nobody had waited for it.
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action(module)
