"""The names that vLLM knows our parsers by, and how vLLM makes one parser of two. Nothing else is loaded for these.

vLLM keeps a table of parsers that it has not imported yet: a name, a module, a class. `Names` takes the place of that
table. It is vLLM's own until somebody asks for a name of ours or for all names; only then are the formats loaded. The
class is made when vLLM takes it out of `parsers`, by a name that says what it is: its kind, its format, and the name of
vLLM's parser that it stands for, if there is one. Without a format, the tokenizer says what to read (`hf`).

vLLM then makes one parser of a reasoning parser and a tool parser. It has no setting for that, so the function that
composes parsers is wrapped (`wrap_composing`): two of ours become a `CombinedParser`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from ..hooks import when_imported

if TYPE_CHECKING:
    from _collections_abc import dict_keys

    from ...core.grammar import Format

_log = logging.getLogger(__name__)

Kind = Literal["tools", "reasoning"]
Place = tuple[str, str]
"""The module and the name of a class."""

PREFIX = "unbraid-"
REPLACE = "UNBRAID_VLLM_REPLACE"
"""The environment variable that asks to replace vLLM's own parsers. Processes that vLLM starts inherit it."""
PASSED_ON = frozenset({"minimax_m2_append_think"})
"""vLLM's parsers that parse nothing: this one leaves everything where it is. With the prefix they are vLLM's own."""
TEMPLATE = "hf"
"""vLLM's name for what the tokenizer says itself, in its `response_template`."""
PARSERS = f"{__package__}.parsers"


def asked_to_replace() -> bool:
    return os.environ.get(REPLACE, "").lower() not in ("", "0", "false", "no")


def register_names(problem: Callable[[], str | None]) -> None:
    """Have vLLM know our names, as soon as it loads its registries. You can call it again.

    problem: says why the plug-in does not fit, or None. Asked when the first name of ours is.
    """
    replace = asked_to_replace()

    def take_over(kind: Kind, manager: str, eager: str) -> Callable[[ModuleType], None]:
        def act(module: ModuleType) -> None:
            registry = getattr(module, manager, None)
            if hasattr(registry, "lazy_parsers") and hasattr(registry, eager):
                _take_over(registry, eager, kind, replace, problem)
            elif replace:
                raise ImportError(problem())
            else:
                _log.error("%s", problem())

        return act

    when_imported("vllm.tool_parsers.abstract_tool_parser", take_over("tools", "ToolParserManager", "tool_parsers"))
    when_imported(
        "vllm.reasoning.abs_reasoning_parsers", take_over("reasoning", "ReasoningParserManager", "reasoning_parsers")
    )


def _take_over(registry: Any, eager: str, kind: Kind, replace: bool, problem: Callable[[], str | None]) -> None:
    theirs = registry.lazy_parsers
    if isinstance(theirs, Names):
        theirs = theirs.theirs
    loaded = getattr(registry, eager)
    for name in [name for name in loaded if name in theirs or name.startswith(PREFIX)]:
        del loaded[name]  # what vLLM has loaded before, so that it asks again
    registry.lazy_parsers = Names(theirs, kind, replace, problem)


class Names(dict[str, Place]):
    """vLLM's table of parsers with ours. If the plug-in does not fit, our names are listed all the same: vLLM checks a
    name against the list first, and whoever then asks for the parser is told why there is none."""

    def __init__(self, theirs: dict[str, Place], kind: Kind, replace: bool, problem: Callable[[], str | None]) -> None:
        super().__init__(theirs)
        self.theirs = theirs
        self._kind: Kind = kind
        self._replace = replace
        self._problem: Callable[[], str | None] | None = problem
        self._refusal: str | None = None
        """Why ours cannot be used."""

    def __contains__(self, name: object) -> bool:
        self._load_for(name)
        return super().__contains__(name)

    def __getitem__(self, name: str) -> Place:
        self._load_for(name)
        place = super().__getitem__(name)
        if self._refusal is not None and place[0] == PARSERS:
            raise ImportError(f"{name}: {self._refusal}")
        return place

    def __setitem__(self, name: str, place: Place) -> None:
        self.theirs[name] = place
        super().__setitem__(name, place)

    def __iter__(self) -> Iterator[str]:
        self._load()
        return super().__iter__()

    def keys(self) -> dict_keys[str, Place]:
        self._load()
        return super().keys()

    def _load_for(self, name: object) -> None:
        if self._replace or (isinstance(name, str) and name.startswith(PREFIX)):
            self._load()

    def _load(self) -> None:
        if self._problem is None:
            return
        problem, self._problem = self._problem, None  # before it is asked: it may look up names
        self._refusal = problem()
        if self._refusal is not None:
            _log.error("%s", self._refusal)
        for name, place in our_places(self._kind, self.theirs, self._replace).items():
            super().__setitem__(name, place)


def our_places(kind: Kind, theirs: dict[str, Place], replace: bool) -> dict[str, Place]:
    """Our names of one kind: every format under all of its names, and every name of vLLM's with the prefix. With
    `replace`, vLLM's own names too."""
    from ...formats import all_formats

    formats = {name: format for name in theirs if (format := format_of(name, kind)) is not None}
    first: dict[Format, str] = {}
    for name, format in formats.items():
        first.setdefault(format, name)
    places: dict[str, Place] = {}
    for format, aliases in all_formats().items():
        if getattr(format, kind) is not None:
            place = (PARSERS, f"{kind} {format.name} {first.get(format, '')}")
            places |= {f"{PREFIX}{name}": place for name in (format.name, *aliases)}
    for name, place in theirs.items():
        if name in formats:
            places[f"{PREFIX}{name}"] = (PARSERS, f"{kind} {formats[name].name} {name}")
            if replace:
                places[name] = places[f"{PREFIX}{name}"]
        elif name in PASSED_ON:
            places[f"{PREFIX}{name}"] = place
    places[f"{PREFIX}{TEMPLATE}"] = (PARSERS, f"{kind}  {TEMPLATE}")
    if replace and TEMPLATE in theirs:
        places[TEMPLATE] = places[f"{PREFIX}{TEMPLATE}"]
    return places


def format_of(name: str, kind: Kind) -> Format | None:
    """The format that reads what vLLM's parser of that name does; None if there is none."""
    if name in PASSED_ON or name == TEMPLATE:
        return None
    from ...errors import UnknownFormat
    from ...formats import find

    try:
        format = find(name)
    except UnknownFormat:
        return None
    return format if getattr(format, kind) is not None else None


def name_for_vllm(kind: Kind, name: str | None) -> str | None:
    """The name that vLLM is to hear when it composes parsers. For some of its own names it does not look into the
    tables, and takes a class of its own: those it must hear for its parsers, and must not hear for ours."""
    if name is None or name.removeprefix(PREFIX) in PASSED_ON:
        return name and name.removeprefix(PREFIX)
    ours = asked_to_replace() and (name == TEMPLATE or format_of(name, kind) is not None)
    return f"{PREFIX}{name}" if ours else name


def wrap_composing(module: ModuleType) -> None:
    """Wrap the function in `vllm.parser.parser_manager` that composes parsers. You can call it again. The function is
    private since 0.32 (`_compose_parser`); before, `get_parser` did the work."""
    manager = getattr(module, "ParserManager", None)
    if manager is None:  # whoever asks for a name of ours is told
        return
    name = "_compose_parser" if hasattr(manager, "_compose_parser") else "get_parser"
    compose = getattr(manager, name)
    if hasattr(compose, "__wrapped__"):
        return

    @wraps(compose)
    def composed(*args: Any, **kwargs: Any) -> Any:
        arguments = signature(compose).bind(*args, **kwargs)
        for parameter, kind in _KINDS.items():
            arguments.arguments[parameter] = name_for_vllm(kind, arguments.arguments.get(parameter))
        parser = compose(*arguments.args, **arguments.kwargs)
        if parser is None or PARSERS not in sys.modules:
            return parser
        from .combined_parser import combined

        return combined(parser)

    setattr(manager, name, staticmethod(composed))


_KINDS: dict[str, Kind] = {"tool_parser_name": "tools", "reasoning_parser_name": "reasoning"}
