"""What a parser says: plain values, in the order of the text.

Every event carries the span `start:end` of the raw output that it came from, in characters; special tokens count as
their text. With `markup=True` a parser also reports what it recognised as markup, and then the spans of all events tile
the raw output, without gap or overlap: law 3 (docs/laws.md#law-3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def _event(cls: type[_T]) -> type[_T]:
    # Frozen to type checkers. At run time it is not: a frozen dataclass costs five times as much to make, and one is
    # made for every delta.
    return dataclass(slots=True)(cls)


LINE_BREAK = "\n"
"""The text of an event of no width that keeps text before a call and text after it on lines of their own. No part of a
message holds it: `Message.content` puts it in again."""


def is_line_break(event: Content | Reasoning) -> bool:
    """Whether an event is such a line break."""
    return event.start == event.end and event.text == LINE_BREAK


class _Silent:
    """Base of the events that a chat API has no words for."""

    __slots__ = ()

    def to_openai(self) -> None:
        return None


@_event
class Content:
    """Text of the answer."""

    text: str
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        return {"content": self.text}


@_event
class Reasoning:
    """Text of the reasoning."""

    text: str
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        return {"reasoning_content": self.text}


@_event
class SpeechText:
    """Text that is spoken, in speech section `section` (0, 1, 2…)."""

    text: str
    section: int
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        return {"tts_content": {"tts_text": self.text}}


@_event
class SpeechAudio:
    """Audio codes, in speech section `section`."""

    codes: tuple[int, ...]
    section: int
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        return {"tts_content": {"tts_audio": audio_text(self.codes)}}


@_event
class Language(_Silent):
    """The language of what was heard, as a code (`de`)."""

    code: str
    start: int
    end: int


@_event
class Timestamp(_Silent):
    """When what follows was said, or what came before ended, in seconds from the start of the audio."""

    seconds: float
    start: int
    end: int


@_event
class ToolCallStart:
    """A call begins: its name is whole and is sent once."""

    index: int
    id: str
    name: str
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": ""}
        return {"tool_calls": [{"index": self.index, "id": self.id, "type": "function", "function": function}]}


@_event
class ToolCallArguments:
    """The next fragment of a call's arguments, which are JSON text."""

    index: int
    fragment: str
    start: int
    end: int

    def to_openai(self) -> dict[str, Any]:
        return {"tool_calls": [{"index": self.index, "function": {"arguments": self.fragment}}]}


@_event
class ToolCallEnd(_Silent):
    """A call ends. `complete` says that its arguments are whole and valid JSON.

    `raw` is what the model wrote for a call that is not complete (kept only by a parser that keeps the message).
    """

    index: int
    complete: bool
    raw: str
    start: int
    end: int


@_event
class Diagnostic(_Silent):
    """Something in the output was not as its format says. Nothing is lost by it; `kind` is one of `diagnostics`."""

    kind: str
    message: str
    start: int
    end: int


@_event
class Markup(_Silent):
    """Text that only separates: markers, and the whitespace that the format writes around them."""

    text: str
    start: int
    end: int
    of_calls: bool = False
    """Whether it is a part of tool calls, or stands around them."""


Event = (
    Content
    | Reasoning
    | SpeechText
    | SpeechAudio
    | Language
    | Timestamp
    | ToolCallStart
    | ToolCallArguments
    | ToolCallEnd
    | Diagnostic
    | Markup
)


def audio_text(codes: tuple[int, ...] | list[int]) -> str:
    """Audio codes the way chat APIs carry them: `<audio_1499><audio_2187>…`."""
    return "".join([f"<audio_{code}>" for code in codes])
