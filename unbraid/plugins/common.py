"""What both plug-ins need: what the environment chooses, the tools of a request, whole replies, blocks of reasoning."""

from __future__ import annotations

import json
import logging
import marshal
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Generic, Literal, TypeVar

from ..caching import LruCache
from ..core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from ..core.grammar import Format
from ..core.tools import Tools
from ..errors import UnbraidError
from ..parsing import UnknownTools

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class ServerChoice(Generic[_Value]):
    """A choice that an operator makes for a server, in the environment: engines pass no options on to their parsers,
    but the processes that they start inherit it."""

    name: str
    words: Mapping[str, _Value]
    """What may be set, and what it means; `""` if nothing is."""

    @property
    def value(self) -> _Value:
        word = os.environ.get(self.name, "").lower()
        if word not in self.words:
            *others, last = {value: word for word, value in reversed(tuple(self.words.items())) if word}.values()
            raise UnbraidError(f"{self.name} is {', '.join(others)} or {last}, not {word!r}")
        return self.words[word]


_YES_OR_NO = {"": None, "auto": None, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}

CALLS_IN_REASONING: ServerChoice[bool | None] = ServerChoice("UNBRAID_CALLS_IN_REASONING", _YES_OR_NO)
"""Whether calls in reasoning are calls; without it each format decides."""
BROKEN_CALLS: ServerChoice[Literal["call", "text"]] = ServerChoice(
    "UNBRAID_BROKEN_CALLS", {"": "call", "call": "call", "text": "text"}
)
"""What a whole reply makes of a broken call that is closed: what a stream does, or text."""
UNKNOWN_TOOLS: ServerChoice[UnknownTools | None] = ServerChoice(
    "UNBRAID_UNKNOWN_TOOLS", {"": None, "auto": None, "text": "text", "emit": "emit", "drop": "drop"}
)
"""What becomes of a call to a tool that the request does not have; without it, what the engine's own parser does."""
SETTINGS: tuple[ServerChoice[Any], ...] = (CALLS_IN_REASONING, BROKEN_CALLS, UNKNOWN_TOOLS)
"""All of them."""


def as_chosen(format: Format) -> Format:
    """The format as the environment wants it. A word there that no choice has is refused."""
    for choice in SETTINGS:
        _ = choice.value
    return format.with_calls_in_reasoning(CALLS_IN_REASONING.value)


KEPT = 64
"""So many different lists of tools are kept,"""
LONGEST = 100_000
"""none of which is written in more characters."""

_PLAIN = (dict, str, bool, type(None))
Read = Callable[[Sequence[Any]], Tools]


def cached_by_content(read: Read) -> Read:
    """`read`, which must depend on the tools alone, called once for equal tools.

    An engine asks several times for the tools of a request, and clients send the same tools with every request of a
    conversation. Reading them means checking and repairing their schemas, which takes longer than many a delta.

    Tools are equal if their content is written as the same (`_said`): `1`, `1.0` and `True` are equal to Python, but
    not to a schema. What is kept is a copy, so it does not change with the request that it was read from. Tools that
    nest too deep to be copied are read every time.
    """
    kept: LruCache[bytes, Tools] = LruCache(KEPT)

    @wraps(read)
    def cached(definitions: Sequence[Any]) -> Tools:
        try:
            content = _said(definitions)
        except RecursionError:
            return read(definitions)
        tools = kept.get(content)
        if tools is not None:
            return tools
        tools = read(definitions)
        if len(content) <= LONGEST:
            with suppress(RecursionError):
                kept[content] = tools = tools.copy()
        return tools

    return cached


def _said(definitions: Sequence[Any]) -> bytes:
    """All that tools say."""
    content = [_content(tool) for tool in definitions]
    try:
        return marshal.dumps(content, 2)  # of plain values, five times as fast
    except ValueError:
        return repr(content).encode("utf-8", "surrogatepass")


def _content(value: Any) -> Any:
    """All that there is in a tool: the values of models, by their names."""
    kind = type(value)
    if kind is list:
        return [_content(item) for item in value]
    if kind in _PLAIN or (state := getattr(value, "__dict__", None)) is None:
        return value
    values = [item if type(item) in _PLAIN else _content(item) for item in state.values()]
    return kind.__module__, kind.__qualname__, list(state), values, getattr(value, "model_extra", None)


# --- Constraints -------------------------------------------------------------------------------------------------


def following_schemas(make: Callable[[Tools], _Value], tools: Tools) -> _Value:
    """What `make` makes of the tools, whose calls are required: their arguments follow the schemas, whether or not a
    tool says `strict`, and there are none but those that a schema names, unless it speaks of others; so have it the
    engines' own grammars. A schema that cannot be enforced leaves the arguments free, unless its tool is strict."""
    tools = only_named(tools)
    try:
        return make(all_strict(tools))
    except UnbraidError as error:
        _log.warning("A schema is not enforced, as its tool is not strict: %s", error)
    strict = frozenset(
        name for name in tools if tools.strict(name) or _can_be_made(make, all_strict(tools.only([name])))
    )
    chosen = all_strict(tools, strict)
    return make(chosen if _can_be_made(make, chosen) else tools)


def all_strict(tools: Tools, names: Container[str] | None = None) -> Tools:
    """The same tools, all of them strict, or those of these names."""
    return Tools({"name": name, "parameters": tools[name], "strict": names is None or name in names} for name in tools)


def only_named(tools: Tools) -> Tools:
    """The same tools, without other arguments than those that their schemas name, unless they speak of others."""
    definitions = []
    for name, schema in tools.items():
        if schema.get("properties") and not {"additionalProperties", "patternProperties"} & schema.keys():
            schema = {**schema, "additionalProperties": False}
        definitions.append({"name": name, "parameters": schema, "strict": tools.strict(name)})
    return Tools(definitions)


def _can_be_made(make: Callable[[Tools], object], tools: Tools) -> bool:
    try:
        make(tools)
    except UnbraidError:
        return False
    return True


# --- Whole replies -----------------------------------------------------------------------------------------------


def settled(events: Sequence[Event], last: Sequence[Event], *, ended: bool) -> list[Event]:
    """The events of a whole reply: those of its text, and the `last` ones, which came with its end.

    A call that the end of the output cut off becomes text: otherwise the engine would report a call that the model did
    not finish. A broken call that something closed stays a call, as in a stream: a marker, the next call, the end of
    the turn (`ended`), or its last bracket.
    """
    everything = [*events, *last]
    broken = {one.index: one for one in everything if isinstance(one, ToolCallEnd) and not one.complete}
    if BROKEN_CALLS.value == "call":
        at_the_end = {one.index for one in last if isinstance(one, ToolCallEnd) and not ended}
        broken = {at: broken[at] for at in broken.keys() & at_the_end if not is_closed(_arguments(everything, at))}
    return _without_calls(everything, broken) if broken else everything


def _without_calls(events: Sequence[Event], calls: Mapping[int, ToolCallEnd]) -> list[Event]:
    """The events with these calls as text, and the others counted anew."""
    kept: list[Event] = []
    numbers: dict[int, int] = {}
    for event in events:
        if not isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd):
            kept.append(event)
        elif event.index not in calls:
            kept.append(replace(event, index=numbers.setdefault(event.index, len(numbers))))
        elif isinstance(event, ToolCallStart):
            kept.append(Content(calls[event.index].raw, event.start, event.end))
    return kept


def _arguments(events: Sequence[Event], call: int) -> str:
    return "".join(one.fragment for one in events if isinstance(one, ToolCallArguments) and one.index == call)


def is_closed(arguments: str) -> bool:
    """Whether all brackets of broken arguments are closed, as far as Python's `json` can tell: it reads `NaN` and raw
    line breaks."""
    try:
        return isinstance(json.loads(arguments, strict=False), dict)
    except (ValueError, RecursionError):
        return False


class ReasoningBlocks:
    """Says where a block of reasoning begins that follows another one.

    Where the output is messages with headers, each may hold a block of its own. Engines have one field for all
    reasoning of a reply. Two blocks in it are told apart by a line break, as the engines' own parsers do it; otherwise
    the last word of one would be glued to the first word of the next.
    """

    def __init__(self, format: Format) -> None:
        self._joins = format.headers is not None and not format.reasoning_in_content
        self._end: int | None = None
        """Where the reasoning ended that came last."""

    def before(self, event: Reasoning) -> str:
        """What stands between this piece of reasoning and the one before it."""
        gap = self._joins and self._end is not None and event.start > self._end
        self._end = event.end
        return "\n" if gap else ""
