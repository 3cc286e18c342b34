"""What both plug-ins need: what the environment chooses, the tools of a request, whole replies, other strands."""

from __future__ import annotations

import json
import logging
import marshal
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, Generic, Literal, TypeVar

from ..caching import LruCache, WeakCache
from ..core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from ..core.grammar import Format, SpeechMarkup
from ..core.message import Message, ToolCall
from ..core.render import render
from ..core.tools import Tools
from ..errors import UnbraidError
from ..formats import compose
from ..parsing import UnknownTools
from ..templates.detection.response_template import format_from_response_template

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
        if not is_set(self.name):
            return self.words[""]
        word = os.environ.get(self.name, "").lower()
        if word not in self.words:
            *others, last = {value: word for word, value in reversed(tuple(self.words.items())) if word}.values()
            raise UnbraidError(f"{self.name} is {', '.join(others)} or {last}, not {word!r}")
        return self.words[word]


def is_set(name: str) -> bool:
    """Whether the environment may have a variable. Every stream asks for several, which mostly are not set, and to ask
    `os.environ` takes ten times as long as to ask what it holds."""
    held = getattr(os.environ, "_data", None)
    return held is None or _encoded(name) in held


def chooses(*further: str) -> bool:
    """Whether the environment may have any of the settings, or one of these. Every stream asks first, and mostly it has
    none."""
    held = getattr(os.environ, "_data", None)
    return held is None or not held.keys().isdisjoint(_encoded_settings(*further))


@cache
def _encoded_settings(*further: str) -> frozenset[Any]:
    return frozenset(map(_encoded, (*(choice.name for choice in SETTINGS), *further)))


@cache
def _encoded(name: str) -> Any:
    return os.environ.encodekey(name)


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
UntypedValues = Literal["json", "text"]
UNTYPED_VALUES: ServerChoice[UntypedValues | None] = ServerChoice(
    "UNBRAID_UNTYPED_VALUES", {"": None, "auto": None, "json": "json", "text": "text"}
)
"""What a value between tags is where the tool's schema does not name the argument: JSON if all of it is, or text;
without it, what the engine's own parser makes of it."""
INVALID_ARGUMENTS: ServerChoice[Literal["emit", "drop"]] = ServerChoice(
    "UNBRAID_INVALID_ARGUMENTS", {"": "emit", "emit": "emit", "drop": "drop"}
)
"""What becomes of arguments that the tool's schema does not name, and of calls that lack one or have one twice."""
REPEATED_ARGUMENTS: ServerChoice[Literal["emit", "list"]] = ServerChoice(
    "UNBRAID_REPEATED_ARGUMENTS", {"": "emit", "emit": "emit", "list": "list"}
)
"""What becomes of an argument, or a key in one, that comes twice: it is passed on twice, or is a list of its values."""
SETTINGS: tuple[ServerChoice[Any], ...] = (
    *(CALLS_IN_REASONING, BROKEN_CALLS, UNKNOWN_TOOLS, UNTYPED_VALUES),
    *(INVALID_ARGUMENTS, REPEATED_ARGUMENTS),
)
"""All of them."""


def as_chosen(format: Format) -> Format:
    """The format as the environment wants it. A word there that no choice has is refused."""
    for choice in SETTINGS:
        _ = choice.value
    return format.with_calls_in_reasoning(CALLS_IN_REASONING.value)


# --- What the engine's own parser does ---------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnWays:
    """What an engine's own parser does where one could as well do something else."""

    emits_unknown: bool
    """It passes on a call to a tool that the request does not have."""
    untyped: UntypedValues = "json"
    """What it makes of a value that no schema speaks of."""

    @property
    def unknown_tools(self) -> UnknownTools:
        """That, unless the environment says otherwise."""
        return (chooses() and UNKNOWN_TOOLS.value) or ("emit" if self.emits_unknown else "text")

    def typed(self, tools: Tools) -> Tools:
        """The tools, with what values are that no schema speaks of."""
        return _as_text(tools) if ((chooses() and UNTYPED_VALUES.value) or self.untyped) == "text" else tools


PROBE = ToolCall("unbraid_asks_about_unknown_tools", '{"a": "7"}', "abcdefghi")
"""A call to show to the engine's own parser. It may log the name."""


def own_ways(format: Format, read: Callable[[str], Sequence[str]]) -> OwnWays:
    """What the engine's own parser does with a call as the format writes it. read: the arguments of the calls that it
    finds in a text."""
    text, number = (
        render(compose(tools=format), Message((replace(PROBE, arguments=arguments),)))
        for arguments in (PROBE.arguments, '{"a": 7}')
    )
    arguments = read(text)
    says_itself = text != number  # in quotes, or with its kind in the tag
    try:
        is_text = bool(arguments) and not says_itself and json.loads(arguments[0])["a"] == "7"
    except (ValueError, LookupError, TypeError, RecursionError):
        is_text = False
    return OwnWays(bool(arguments), "text" if is_text else "json")


class TextTools(Tools):
    """Tools of which an argument is text where the schema does not speak of it."""

    @classmethod
    def of(cls, tools: Tools) -> TextTools:
        other = cls([])
        other.__dict__ |= tools.__dict__
        other._kinds = {}
        other._parameters = {name: _text_by_default(schema) for name, schema in tools.items()}
        return other

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name) or _text_by_default(default or {})


_texts: LruCache[int, tuple[Tools, TextTools]] = LruCache(64)
"""By identity, with the tools themselves, so that no others have it: tools are kept, too (`cached_by_content`)."""


def _as_text(tools: Tools) -> TextTools:
    kept = _texts.get(id(tools))
    if kept is None:
        kept = _texts[id(tools)] = tools, TextTools.of(tools)
    return kept[1]


def _text_by_default(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"additionalProperties": {"type": "string"}, **schema}


def _stated(tokenizer: Any) -> Format:
    template = getattr(tokenizer, "response_template", None)
    if not isinstance(template, Mapping):
        template = (getattr(tokenizer, "init_kwargs", None) or {}).get("response_template")
    if template is None:
        raise UnbraidError(
            "the tokenizer's configuration has no `response_template`. Name a format, or write the template of one: "
            "unbraid export FORMAT --response-template"
        )
    return as_chosen(format_from_response_template(template, str(getattr(tokenizer, "eos_token", None) or "")))


_stated_once = WeakCache(_stated)


def stated_format(tokenizer: Any, part: Literal["tools", "reasoning"]) -> Format:
    """The format that a tokenizer states itself, in its `response_template`. It has to have the part."""
    format = _stated_once(tokenizer)
    if getattr(format, part) is None:
        raise UnbraidError(f"the tokenizer's `response_template` has no field for {part}")
    return format


# --- The tools of a request --------------------------------------------------------------------------------------

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
        self.joins = format.headers is not None and not format.reasoning_in_content
        """Whether there may be several blocks."""
        self._end: int | None = None
        """Where the reasoning ended that came last."""

    def before(self, event: Reasoning) -> str:
        """What stands between this piece of reasoning and the one before it."""
        gap = self.joins and self._end is not None and event.start > self._end
        self._end = event.end
        return "\n" if gap else ""


def is_of_speech(markup: str, speech: SpeechMarkup | None) -> bool:
    """Whether markup is that of speech, which the engines have no field for: it stays where it stands, so that speech
    is found there."""
    if speech is None:
        return False
    return any(markup.strip() == text.strip() for text in (speech.open, speech.close, *speech.out_of_band) if text)
