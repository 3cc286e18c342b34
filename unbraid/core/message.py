"""What a response says in the end: its events, folded into one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Literal

from .events import (
    LINE_BREAK,
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
    audio_text,
    is_line_break,
)
from .fast_import import frozen


@frozen
class Text:
    """A stretch of content or reasoning."""

    strand: Literal["content", "reasoning"]
    text: str


@frozen
class ToolCall:
    name: str
    arguments: str
    """JSON text, as the model wrote it."""
    id: str = field(default="", compare=False)
    """Not part of what the call says: most models write none."""
    complete: bool = True
    """Whether the arguments are whole and valid JSON."""
    raw: str = field(default="", compare=False)
    """What the model wrote, for a call that is not complete."""

    def to_openai(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@frozen
class Speech:
    """What is spoken in one speech section, as text and as audio codes. A tool call inside a section cuts it into two
    parts with the same number."""

    text: str = ""
    codes: tuple[int, ...] = ()
    section: int = 0


@frozen
class Tag:
    """What a transcript says about the text: its language, or a time in seconds."""

    value: str | float


Part = Text | ToolCall | Speech | Tag


@dataclass(frozen=True)
class Message:
    """A response: its parts in the order of the text."""

    parts: tuple[Part, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=(), compare=False)

    @property
    def content(self) -> str:
        return self._text("content")

    @property
    def reasoning(self) -> str:
        return self._text("reasoning")

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def speech(self) -> tuple[Speech, ...]:
        """One for each speech section."""
        sections: dict[int, tuple[list[str], list[int]]] = {}
        for part in self.parts:
            if isinstance(part, Speech):
                texts, codes = sections.setdefault(part.section, ([], []))
                texts.append(part.text)
                codes.extend(part.codes)
        return tuple(Speech("".join(texts), tuple(codes), number) for number, (texts, codes) in sections.items())

    @property
    def language(self) -> str | None:
        """The language of a transcript, where it says one."""
        return next((part.value for part in self.parts if isinstance(part, Tag) and isinstance(part.value, str)), None)

    def settled(self) -> Message:
        """This message as a reader may take it who saw nothing of the stream: a call that is not complete is no call,
        and its text stands in the content instead. (A reader of the stream has already seen the call begin.)"""
        parts = (Text("content", p.raw) if isinstance(p, ToolCall) and not p.complete else p for p in self.parts)
        return Message(tuple(_joined(parts)), self.diagnostics)

    def to_openai(self) -> dict[str, Any]:
        """The message of a chat completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.content or None,
            "reasoning_content": self.reasoning or None,
        }
        calls, speech = self.tool_calls, self.speech
        if calls:
            message["tool_calls"] = [call.to_openai() for call in calls]
        if speech:
            text = "".join(section.text for section in speech)
            audio = "".join(audio_text(section.codes) for section in speech)
            message["tts_content"] = {"tts_text": text, "tts_audio": audio}
        return message

    def _text(self, strand: str) -> str:
        """The text of a strand. What stands before a call and after it are two lines, as in the events."""
        texts: list[str] = []
        in_line = called = False
        for part in self.parts:
            if isinstance(part, ToolCall):
                called = True
            elif isinstance(part, Text) and part.strand == strand and part.text:
                if called and in_line and not part.text[0].isspace():
                    texts.append(LINE_BREAK)
                texts.append(part.text)
                line = part.text.rpartition("\n")
                in_line = bool(line[2].strip()) or (in_line and not line[1])
                called = False
        return "".join(texts)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Neighbouring text of one strand is one part."""
    joined: list[Part] = []
    for strand, group in groupby(parts, lambda part: part.strand if isinstance(part, Text) else None):
        if strand is None:
            joined.extend(group)
        else:
            joined.append(Text(strand, "".join(part.text for part in group if isinstance(part, Text))))
    return joined


class Fold:
    """Folds events into a message, in time linear in what is added."""

    __slots__ = ("_call", "_diagnostics", "_last", "_parts")

    def __init__(self) -> None:
        self._parts: list[_Growing] = []
        self._last: _Growing | None = None
        self._call = _Growing("call", 0)
        self._diagnostics: list[Diagnostic] = []

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if type(event) is ToolCallArguments:
                self._call.text.append(event.fragment)
            else:
                self.add_one(event)

    def add_one(self, event: Event) -> None:
        if isinstance(event, Content):
            last = self._last
            if last is not None and last.kind == "content" and event.end > event.start:
                last.text.append(event.text)  # as nearly always
            elif not is_line_break(event):
                self._part("content").text.append(event.text)
        elif isinstance(event, ToolCallArguments):
            self._call.text.append(event.fragment)
        elif isinstance(event, Reasoning):
            if not is_line_break(event):
                self._part("reasoning").text.append(event.text)
        elif isinstance(event, ToolCallStart):
            self._call = self._new("call", event.index)
            self._call.id, self._call.name = event.id, event.name
        elif isinstance(event, ToolCallEnd):
            self._call.complete, self._call.raw = event.complete, event.raw
        elif isinstance(event, Diagnostic):
            self._diagnostics.append(event)
        elif isinstance(event, SpeechText):
            self._part("speech", event.section).text.append(event.text)
        elif isinstance(event, SpeechAudio):
            self._part("speech", event.section).codes.extend(event.codes)
        elif isinstance(event, Language):
            self._new("language", 0).text.append(event.code)
        elif isinstance(event, Timestamp):
            self._new("time", 0).text.append(repr(event.seconds))

    def part_of(self, event: Event) -> int | None:
        """Which part the event that was added last belongs to; None for one that is no part of a message."""
        if isinstance(event, Diagnostic | Markup):
            return None
        of_call = isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd)
        growing = self._call if of_call else self._last
        return next((at for at in range(len(self._parts) - 1, -1, -1) if self._parts[at] is growing), None)

    def _part(self, kind: str, number: int = 0) -> _Growing:
        last = self._last
        if last is not None and last.kind == kind and last.number == number:
            return last
        return self._new(kind, number)

    def _new(self, kind: str, number: int) -> _Growing:
        self._last = _Growing(kind, number)
        self._parts.append(self._last)
        return self._last

    def message(self) -> Message:
        return Message(tuple([part.value() for part in self._parts]), tuple(self._diagnostics))

    def save(self) -> dict[str, Any]:
        values = [[getattr(part, slot) for slot in _Growing.__slots__] for part in self._parts]
        parts = [[list(value) if isinstance(value, list) else value for value in part] for part in values]
        return {"parts": parts, "diagnostics": [asdict(diagnostic) for diagnostic in self._diagnostics]}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Fold:
        fold = cls()
        for values in saved["parts"]:
            part = _Growing("", 0)
            for slot, value in zip(_Growing.__slots__, values, strict=True):
                setattr(part, slot, list(value) if isinstance(value, list) else value)
            fold._parts.append(part)
            if part.kind == "call":
                fold._call = part
            fold._last = part
        fold._diagnostics = [Diagnostic(**values) for values in saved["diagnostics"]]
        return fold


class _Growing:
    """A part that is not finished."""

    __slots__ = ("codes", "complete", "id", "kind", "name", "number", "raw", "text")

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.text: list[str] = []
        self.codes: list[int] = []
        self.id = self.name = self.raw = ""
        self.complete = False

    def value(self) -> Part:
        self.text = ["".join(self.text)]
        text = self.text[0]
        if self.kind == "call":
            return ToolCall(self.name, text, self.id, self.complete, self.raw)
        if self.kind == "speech":
            return Speech(text, tuple(self.codes), self.number)
        if self.kind in ("language", "time"):
            return Tag(text if self.kind == "language" else float(text))
        return Text("content" if self.kind == "content" else "reasoning", text)
