"""An output taken apart: which character went where, by which event, in which chunk, and what came of it.

The page folds nothing itself. Every event says which part of the message it belongs to (`Fold.part_of`), and the page
shows the pieces that have come so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from ...core.events import (
    Content,
    Diagnostic,
    Event,
    Language,
    Markup,
    Reasoning,
    SpeechAudio,
    SpeechText,
    Timestamp,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from ...core.message import Fold, Message
from .asked import Question

STRANDS: dict[type[Event], str] = {
    Content: "content",
    Reasoning: "reasoning",
    SpeechText: "speech",
    SpeechAudio: "audio",
    ToolCallStart: "call",
    ToolCallArguments: "call",
    ToolCallEnd: "call",
    Language: "tag",
    Timestamp: "tag",
    Markup: "markup",
    Diagnostic: "diagnostic",
}
"""What the page calls, and colours, the strand of an event."""


def taken_apart(asked: Question) -> dict[str, Any]:
    """All about an output in chunks: the events, each with the chunk that brought it, and the message."""
    pieces = asked.pieces
    steps = list(asked.steps(pieces, markup=True))
    fold, told, ends, end = Fold(), [], [], 0
    for number, events in enumerate(steps):
        for event in events:
            fold.add_one(event)
            told.append(_event(event, fold.part_of(event), number))
        end += len(pieces[number]) if number < len(pieces) else 0
        ends.append(end)
    message = fold.message()
    everything = [event for events in steps for event in events]
    return {
        "format": asked.format.name,
        "ends": ends,
        "events": told,
        "message": message.to_openai(),
        "complete": [call.complete for call in message.tool_calls],
        "same": _is_same(asked, everything, message),
    }


def _is_same(asked: Question, events: Iterable[Event], message: Message) -> dict[str, bool]:
    """Whether the same comes of the whole text at once, and of single characters: the message, its diagnostics, and the
    strand of every character."""
    text = asked.text("text")
    strands = _strands(events, len(text))
    found = {}
    for name, pieces in (("whole", [text] if text else []), ("characters", list(text))):
        fold, others = Fold(), [event for step in asked.steps(pieces, markup=True) for event in step]
        fold.add(others)
        other = fold.message()
        alike = other == message and other.diagnostics == message.diagnostics
        found[name] = alike and _strands(others, len(text)) == strands
    return found


def _strands(events: Iterable[Event], length: int) -> list[str]:
    """The strand of each character."""
    found = [""] * length
    for event in events:
        if not isinstance(event, Diagnostic | ToolCallEnd):
            found[event.start : event.end] = [STRANDS[type(event)]] * (event.end - event.start)
    return found


def _event(event: Event, part: int | None, step: int) -> dict[str, Any]:
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(event, Diagnostic):
        values["diagnostic"] = values.pop("kind")
    return {"kind": type(event).__name__, "strand": STRANDS[type(event)], "part": part, "step": step, **values}
