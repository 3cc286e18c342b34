"""What a turn says: updates, token counts, and which events go out when.

Every dialect's writer takes these and nothing else of a turn, so writers run where no engine and no server is: the
playground writes its chunks with them, in a browser. Import nothing here that is not pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from ...core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd
from ...engines import Finish, TokenLogprob

UNREMARKABLE = (Reasoning, ToolCallArguments)
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


@dataclass(slots=True)
class Usage:
    """The tokens of one prompt and of all that was written after it."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
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
    """Holds back content while it is only whitespace: beside calls that is no answer. Notes whether a call was made."""

    __slots__ = ("blank", "called")

    def __init__(self) -> None:
        self.blank: list[Event] | None = []
        """The content so far, while it is only whitespace. None once there is an answer."""
        self.called = False

    @property
    def end(self) -> str:
        """The finish reason of a turn that the model ended."""
        return "tool_calls" if self.called else "stop"

    def passed(self, events: Sequence[Event]) -> list[Event]:
        """The events that go out now. Whitespace comes with the first content that is more."""
        passed: list[Event] = []
        for event in events:
            kind = type(event)
            if kind is ToolCallEnd:
                self.called = self.called or event.complete  # type: ignore[union-attr]
            if kind is not Content or self.blank is None:
                passed.append(event)
            elif event.text.isspace():  # type: ignore[union-attr]
                self.blank.append(event)
            else:
                passed += [*self.blank, event]
                self.blank = None
        return passed

    def last(self, passed: list[Event]) -> list[Event]:
        """The events that end the turn, `passed` among them: without a call, whitespace is an answer."""
        return passed if self.called else [*(self.blank or ()), *passed]
