"""Short ways to parse a text and to say what should come of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import unbraid
from unbraid import Event, Format, Message, Text, ToolCall


def stream(
    format: str | Format, pieces: Iterable[str], end_of_turn: bool = False, **options: Any
) -> tuple[Message, list[Event]]:
    """The message of a response that comes in pieces, and its events."""
    parser = unbraid.parser(format, **{"seed": 7, **options})
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.finish(end_of_turn=end_of_turn)
    return parser.message, events


def parse(format: str | Format, text: str, **options: Any) -> Message:
    """The message of a text: whole and one character at a time, which must say the same."""
    whole, _ = stream(format, [text], **options)
    streamed, _ = stream(format, text, **options)
    assert streamed.parts == whole.parts
    assert [(call.id, call.raw) for call in streamed.tool_calls] == [(call.id, call.raw) for call in whole.tool_calls]
    assert streamed.diagnostics == whole.diagnostics
    return whole


def kinds(message: Message) -> list[str]:
    """The kinds of a message's diagnostics."""
    return [diagnostic.kind for diagnostic in message.diagnostics]


def content(text: str) -> Text:
    return Text("content", text)


def reasoning(text: str) -> Text:
    return Text("reasoning", text)


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name, arguments)


def broken(name: str, arguments: str) -> ToolCall:
    """A call that began, and is not complete."""
    return ToolCall(name, arguments, complete=False)
