"""Calls that are held until their end, where the operator wants their arguments checked (`common.SETTINGS`).

    get_weather(city="Paris", city="Rome")   ->   get_weather(city=["Paris", "Rome"])   UNBRAID_REPEATED_ARGUMENTS=list
    get_weather(town="Paris")                ->   nothing, and a line in the log        UNBRAID_INVALID_ARGUMENTS=drop

Without these settings arguments go out as they arrive, and `parser_for` makes a plain `Parser`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..core.events import Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ..core.grammar import Format
from ..core.json_text import Number, as_json
from ..core.tools import Tools
from ..parsing import Parser
from .common import INVALID_ARGUMENTS, REPEATED_ARGUMENTS, chooses, is_set

_log = logging.getLogger(__name__)
_Call = ToolCallStart | ToolCallArguments | ToolCallEnd


def checks_calls() -> bool:
    """Whether the environment may want calls to be checked."""
    return chooses() and (is_set(REPEATED_ARGUMENTS.name) or is_set(INVALID_ARGUMENTS.name))


def parser_for(format: Format, tools: Tools | None, **options: Any) -> Parser:
    """A parser of one response, as the environment wants it."""
    if not checks_calls():
        return Parser(format, tools=tools, **options)
    lists, drops = REPEATED_ARGUMENTS.value == "list", INVALID_ARGUMENTS.value == "drop"
    if not (lists or drops):
        return Parser(format, tools=tools, **options)
    return CheckedParser(CheckedCalls(tools or Tools([]), lists=lists, drops=drops), format, tools=tools, **options)


class CheckedParser(Parser):
    """A parser whose calls are checked before they go out."""

    __slots__ = ("_calls",)

    def __init__(self, calls: CheckedCalls, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._calls = calls

    def feed(self, text: str) -> list[Event]:
        return self._calls.check(super().feed(text))

    def feed_tokens(self, ids: Iterable[int]) -> list[Event]:
        return self._calls.check(super().feed_tokens(ids))

    def finish(self, *, end_of_turn: bool = False) -> list[Event]:
        return self._calls.check(super().finish(end_of_turn=end_of_turn))


class CheckedCalls:
    """The events of one response, with each call in one piece. Calls that were cut off or broken are not checked."""

    def __init__(self, tools: Tools, *, lists: bool, drops: bool) -> None:
        """lists: what comes twice becomes a list. drops: what the schemas do not name, or what lacks, is left out."""
        self._tools = tools
        self._lists, self._drops = lists, drops
        self._held: list[_Call] = []
        self._number = 0
        """The number of the next call that goes out."""

    def check(self, events: Sequence[Event]) -> list[Event]:
        """The next events, as far as they can go out."""
        out: list[Event] = []
        for event in events:
            if not isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd):
                out.append(event)
                continue
            self._held.append(event)
            if isinstance(event, ToolCallEnd):
                call, self._held = self._held, []
                out += self._checked(call) if event.complete else self._numbered(call)
        return out

    def _numbered(self, call: Sequence[_Call]) -> list[_Call]:
        number, self._number = self._number, self._number + 1
        return [replace(event, index=number) for event in call]

    def _checked(self, call: Sequence[_Call]) -> list[_Call]:
        begun, *pieces, end = call
        assert isinstance(begun, ToolCallStart)
        text = "".join(piece.fragment for piece in pieces if isinstance(piece, ToolCallArguments))
        arguments = self._arguments(begun.name, text)
        if arguments is None:
            _log.warning("A call of %s is left out: its arguments do not fit the tool: %s", begun.name, text)
            return []
        if arguments == text:
            return self._numbered(call)
        return self._numbered([begun, ToolCallArguments(begun.index, arguments, begun.end, end.end), end])

    def _arguments(self, name: str, text: str) -> str | None:
        """The arguments as they may go out; None where the call may not."""
        try:
            pairs = _decode(text)
        except (ValueError, RecursionError):
            return text  # more than Python's `json` takes
        if not isinstance(pairs, _Pairs):
            return text
        schema = self._tools.get(name, {})
        kept = _Pairs(pair for pair in pairs if not self._drops or _is_named(schema, pair[0]))
        if self._drops:
            keys = [key for key, _ in kept]
            lacks = not set(schema.get("required", ())) <= set(keys)
            if lacks or (len(set(keys)) < len(keys) and not self._lists):
                return None
        if kept == pairs and not (self._lists and _repeats(pairs)):
            return text
        return _encode(kept, self._lists)


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object."""


_decode = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=Number, parse_float=Number).decode


def _is_named(schema: Any, key: str) -> bool:
    """Whether a schema names an argument, or speaks of others than those that it names."""
    named = schema.get("properties")
    return not named or key in named or bool({"additionalProperties", "patternProperties"} & schema.keys())


def _repeats(value: object) -> bool:
    """Whether a key comes twice anywhere in a value."""
    if isinstance(value, _Pairs):
        return max(Counter(key for key, _ in value).values(), default=0) > 1 or any(_repeats(item) for _, item in value)
    return isinstance(value, list) and any(map(_repeats, value))


def _encode(value: object, lists: bool) -> str:
    """JSON, with the numbers as they were written."""
    if isinstance(value, _Pairs):
        pairs: dict[str, list[str]] = {}
        texts = [(as_json(key), _encode(item, lists)) for key, item in value]
        for key, text in texts if lists else ():
            pairs.setdefault(key, []).append(text)
        if lists:
            texts = [(key, some[0] if len(some) == 1 else f"[{', '.join(some)}]") for key, some in pairs.items()]
        return "{" + ", ".join(f"{key}: {text}" for key, text in texts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_encode(item, lists) for item in value) + "]"
    return as_json(value)
