"""Hooks: the parts of an engine that a plug-in relies on, as data, and what is wrong with them in the installed engine.

The engines change these parts without notice. A plug-in that does not fit must say at start which part changed, and not
fail in the middle of a request. So each plug-in lists its hooks, and `broken_hooks` compares the list with the engine.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_MISSING = object()


@dataclass(frozen=True)
class Hook:
    """One part of an engine."""

    module: str
    name: str
    """Its name in the module; dots lead into classes."""
    parameters: tuple[str, ...] | None = None
    """All parameters, in order, for a function that is overridden or wrapped."""
    accepts: tuple[str, ...] = ()
    """Parameters that are passed to it, for a function or a class that is called."""

    def problem(self) -> str | None:
        """What is wrong with it, in words; None if it is as expected."""
        try:
            found: Any = importlib.import_module(self.module)
        except (ImportError, AttributeError) as error:
            return f"{self.module} cannot be imported ({error})"
        for part in self.name.split("."):
            found = getattr(found, part, _MISSING)
            if found is _MISSING:
                return f"{self.module} has no {self.name}"
        if self.parameters is None and not self.accepts:
            return None
        try:
            now = tuple(inspect.signature(found).parameters)
        except (TypeError, ValueError):
            return f"{self.name} cannot be called"
        if self.parameters is not None and now != self.parameters:
            return f"{self.name} takes ({', '.join(now)}), not ({', '.join(self.parameters)})"
        refused = [name for name in self.accepts if name not in now]
        return f"{self.name} does not take {', '.join(refused)}" if refused else None


def broken_hooks(hooks: Iterable[Hook]) -> list[str]:
    """What is wrong with the hooks, each problem once."""
    return list(dict.fromkeys(problem for hook in hooks if (problem := hook.problem()) is not None))


@dataclass(frozen=True)
class Supported:
    """The versions of an engine that a plug-in was tested with."""

    package: str
    first: str
    below: str

    def __str__(self) -> str:
        return f"{self.package}>={self.first},<{self.below}"

    def installed(self) -> str | None:
        """The installed version; None if the engine is not installed as a package."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def includes(self, installed: str) -> bool:
        return _numbers(self.first) <= _numbers(installed) < _numbers(self.below)


def _numbers(version: str) -> tuple[int, ...]:
    """`0.32.0+cpu` as (0, 32, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
