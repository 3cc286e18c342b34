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
from .question import Question

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
"""The page's name for the strand of an event. Each has its colour."""


def taken_apart(question: Question) -> dict[str, Any]:
    """All about an output in chunks: the events, each with the chunk that brought it, and the message."""
    pieces = question.pieces
    steps = list(question.steps(pieces, markup=True))
    fold, rows, ends, end = Fold(), [], [], 0
    for number, events in enumerate(steps):
        for event in events:
            fold.add_one(event)
            rows.append(_event(event, fold.part_of(event), number))
        end += len(pieces[number]) if number < len(pieces) else 0
        ends.append(end)
    message = fold.message()
    everything = [event for events in steps for event in events]
    return {
        "format": question.format.name,
        "ends": ends,
        "events": rows,
        "message": message.to_openai(),
        "complete": [call.complete for call in message.tool_calls],
        "same": _is_same(question, everything, message),
    }


def _is_same(question: Question, events: Iterable[Event], message: Message) -> dict[str, bool]:
    """Whether the same comes of the whole text at once, and of single characters: the message, its diagnostics, and the
    strand of every character."""
    text = question.text("text")
    strands = _strands(events, len(text))
    same = {}
    for name, pieces in (("whole", [text] if text else []), ("characters", list(text))):
        fold, others = Fold(), [event for step in question.steps(pieces, markup=True) for event in step]
        fold.add(others)
        other = fold.message()
        alike = other == message and other.diagnostics == message.diagnostics
        same[name] = alike and _strands(others, len(text)) == strands
    return same


def _strands(events: Iterable[Event], length: int) -> list[str]:
    """The strand of each character."""
    strands = [""] * length
    for event in events:
        if not isinstance(event, Diagnostic | ToolCallEnd):
            strands[event.start : event.end] = [STRANDS[type(event)]] * (event.end - event.start)
    return strands


def _event(event: Event, part: int | None, step: int) -> dict[str, Any]:
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(event, Diagnostic):
        values["diagnostic"] = values.pop("kind")
    return {"kind": type(event).__name__, "strand": STRANDS[type(event)], "part": part, "step": step, **values}
