"""What a turn says: updates, token counts, and which events go out when.

Every dialect's writer takes these and nothing else of a turn, so writers run where no engine and no server is: the
playground writes its chunks with them, in a browser. Import nothing here that is not pure.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from msgspec import Struct

from ...core.events import Content, Diagnostic, Event, Reasoning, ToolCallArguments, ToolCallEnd, is_line_break
from ...core.message import Message, Part, Text, ToolCall
from ...engines import Finish, TokenLogprob

_UNREMARKABLE = frozenset((Reasoning, ToolCallArguments))
"""Events that say nothing about the turn as a whole."""


class Update(Struct):
    """What is new in one of the choices. One is made for each piece; a `Struct` is made in a third of the time of a
    dataclass."""

    choice: int
    events: Sequence[Event] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    sound: bytes = b""
    end: str | None = None
    """The finish reason, in the last update of a choice."""
    ids: tuple[int, ...] = ()
    """The tokens that came since the update before, where the engine gives ids."""
    stopped_by: str | None = None
    """The stop text of the client's that ended it, in the last update of a choice."""

    @property
    def cut_off(self) -> bool:
        """Whether the output ended before the model did."""
        return self.end == "length" or self.stopped_by is not None


class Usage(Struct):
    """The tokens of one prompt and of all that was written after it."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    told: int = 0
    """How many tokens of the prompt have been added to the metrics."""
    strands: dict[str, int] | None = None
    """How many tokens of the completion belong to each strand: `reasoning`, `content`, `tool_calls`, `speech` and
    `audio`. None where that is not known."""

    def add(self, finish: Finish, strands: dict[str, int] | None = None) -> None:
        if strands is None or (self.completion and self.strands is None):
            self.strands = None
        else:
            counts = self.strands or {}
            self.strands = {strand: counts.get(strand, 0) + count for strand, count in strands.items()}
        self.prompt = max(self.prompt, finish.prompt_tokens)
        self.cached = max(self.cached, finish.cached_tokens)
        self.completion += finish.completion_tokens


class Outgoing:
    """Holds back content while it is only whitespace: beside calls that is no answer. Notes whether a call was made.

    A call that breaks is told as a call all the same, so that it fails as one and the model hears of it: what the model
    wrote after the break is text of its arguments, up to the next part of the output. Only a call that was cut off
    stays without an end.
    """

    __slots__ = ("blank", "broken", "called", "unremarkable")

    def __init__(self) -> None:
        self.blank: list[Event] | None = []
        """The content so far, while it is only whitespace. None once there is an answer."""
        self.broken: ToolCallEnd | None = None
        """The end of a call that broke, while more of it may come."""
        self.called = False
        self.unremarkable: Set[type[Event]] = _UNREMARKABLE
        """Events of these kinds go out as they are."""

    @property
    def end(self) -> str:
        """The finish reason of a turn that the model ended."""
        return "tool_calls" if self.called else "stop"

    def passed(self, events: Sequence[Event]) -> list[Event]:
        """The events that go out now. Whitespace comes with the first content that is more."""
        passed: list[Event] = []
        for event in events:
            kind = type(event)
            if self.broken is not None and kind is not Diagnostic:
                if kind is Content:
                    if is_line_break(event):  # type: ignore[arg-type]  # nobody wrote it
                        continue
                    event = ToolCallArguments(self.broken.index, event.text, event.start, event.end)  # type: ignore[union-attr]
                    kind = ToolCallArguments
                else:
                    passed += self._ended(self.broken)
            if kind is ToolCallEnd:
                if not event.complete:  # type: ignore[union-attr]
                    self.broken = event  # type: ignore[assignment]
                    continue
                self.called = True
            if kind is not Content or self.blank is None:
                passed.append(event)
            elif event.text.isspace():  # type: ignore[union-attr]
                self.blank.append(event)
            else:
                passed += [*self.blank, event]
                self.blank = None
        if self.broken is not None:
            self.unremarkable = frozenset()
        else:
            self.unremarkable = _UNREMARKABLE | {Content} if self.blank is None else _UNREMARKABLE
        return passed

    def last(self, passed: list[Event], *, cut_off: bool) -> list[Event]:
        """The last events of a turn, after `passed`. Without a call, whitespace alone is an answer."""
        if self.broken is not None:
            passed = [*passed, self.broken] if cut_off else [*passed, *self._ended(self.broken)]
        return passed if self.called else [*(self.blank or ()), *passed]

    def _ended(self, broken: ToolCallEnd) -> tuple[Event, ...]:
        self.called, self.broken = True, None
        return (ToolCallEnd(broken.index, True, "", broken.start, broken.end),)


def as_told(message: Message, *, cut_off: bool) -> Message:
    """A whole message as `Outgoing` sends it: only a call that was cut off is incomplete."""
    parts: list[Part] = []
    broken = False
    for part in message.parts:
        last = parts[-1] if parts else None
        if broken and isinstance(last, ToolCall) and isinstance(part, Text) and part.strand == "content":
            parts[-1] = replace(last, arguments=last.arguments + part.text)
            continue
        broken = isinstance(part, ToolCall) and not part.complete
        parts.append(replace(part, complete=True) if isinstance(part, ToolCall) else part)
    if broken and cut_off and isinstance(last := parts[-1], ToolCall):
        parts[-1] = replace(last, complete=False)
    return Message(tuple(parts), message.diagnostics)
