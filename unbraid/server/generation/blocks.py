"""Blocks: the events of a turn as the parts of a reply, one after another, each opened, continued and closed.

Dialects whose replies are lists of parts (Responses, Messages) write them from these steps. What a part is called and
how it looks is theirs; that there is one at a time, in the order of the output, is decided here. Text that is only
whitespace opens no part beside others, as whitespace before a call is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...core.events import (
    Content,
    Event,
    Reasoning,
    SpeechText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    is_line_break,
)
from ...core.message import Message, Speech, Text, ToolCall

Kind = Literal["text", "reasoning", "call", "speech"]
StepKind = Literal["open", "delta", "close"]


@dataclass(slots=True)
class Block:
    """One part of a reply, as far as it has come."""

    index: int
    kind: Kind
    call_id: str = ""
    """The id of a call, and below it the tool's name."""
    name: str = ""
    complete: bool = False
    """Whether its end has come. A call that was cut off is never complete."""
    raw: str = ""
    """What the model wrote for a call that is not complete, where the parser keeps that."""
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text, or the arguments of a call, so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)


BlockStep = tuple[StepKind, Block, str]
"""What happened to a block, and the text that was added to it."""


class Blocks:
    """Folds the events of one turn into steps.

    speech_apart: whether what is spoken is a part of its own, beside text. Otherwise it is text.
    """

    def __init__(self, *, speech_apart: bool = False) -> None:
        self._spoken: Kind = "speech" if speech_apart else "text"
        self._open: Block | None = None
        self._count = 0
        self._blank = ""
        """Whitespace that would be a text of its own, while nothing else follows it."""

    def feed(self, events: Sequence[Event]) -> Iterator[BlockStep]:
        """The steps for these events. Take all of them: blocks change as you go."""
        for event in events:
            kind = type(event)
            if kind is Content:
                if not is_line_break(event):  # type: ignore[arg-type]  # blocks are apart without it
                    yield from self._text("text", event.text)  # type: ignore[union-attr]
            elif kind is SpeechText:
                yield from self._text(self._spoken, event.text)  # type: ignore[union-attr]
            elif kind is Reasoning:
                if not is_line_break(event):  # type: ignore[arg-type]
                    yield from self._text("reasoning", event.text)  # type: ignore[union-attr]
            elif kind is ToolCallArguments:
                if self._open is not None and self._open.kind == "call":
                    yield self._added(self._open, event.fragment)  # type: ignore[union-attr]
            elif kind is ToolCallStart:
                yield from self._opened("call", event.id, event.name)  # type: ignore[union-attr]
            elif kind is ToolCallEnd:
                yield from self._closed(event.complete, event.raw)  # type: ignore[union-attr]

    def finish(self, cut_off: bool = False) -> Iterator[BlockStep]:
        """The steps that end the turn. `cut_off`: the output ended before the model did."""
        if self._blank and self._count == 0:
            yield from self._opened("text")
            assert self._open is not None
            yield self._added(self._open, self._blank)
        yield from self._closed(complete=not cut_off)

    def _text(self, kind: Kind, text: str) -> Iterator[BlockStep]:
        if self._open is None or self._open.kind != kind:
            if kind == "text":
                text = self._blank + text
                self._blank = ""
                if not text or text.isspace():
                    self._blank = text
                    return
            yield from self._opened(kind)
        assert self._open is not None
        yield self._added(self._open, text)

    def _opened(self, kind: Kind, call_id: str = "", name: str = "") -> Iterator[BlockStep]:
        yield from self._closed(complete=True)
        self._open = Block(self._count, kind, call_id, name)
        self._count += 1
        yield "open", self._open, ""

    def _added(self, block: Block, text: str) -> BlockStep:
        block.add(text)
        return "delta", block, text

    def _closed(self, complete: bool, raw: str = "") -> Iterator[BlockStep]:
        block, self._open = self._open, None
        if block is not None:
            block.complete, block.raw = complete, raw
            yield "close", block, ""


def events_of_message(message: Message) -> Iterator[Event]:
    """A message as events again. Whole replies are made of a settled message in this way, so that they have the blocks
    of a streamed one."""
    for number, part in enumerate(message.parts):
        if isinstance(part, Text):
            end = len(part.text)
            yield Content(part.text, 0, end) if part.strand == "content" else Reasoning(part.text, 0, end)
        elif isinstance(part, Speech):
            yield SpeechText(part.text, part.section, 0, 0)
        elif isinstance(part, ToolCall):
            yield ToolCallStart(number, part.id, part.name, 0, 0)
            yield ToolCallArguments(number, part.arguments, 0, 0)
            yield ToolCallEnd(number, part.complete, part.raw, 0, 0)
