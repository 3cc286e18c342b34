"""A parser for a turn that goes on inside a call.

It is fed what the model had written of the turn before, so that it stands where the model does. Of that it tells the
call that had broken off, from its name on and with its old id: the client gets it whole, and can run it. What came
before that call the client has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...core.events import Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.message import Fold
from ...parsing import Parser
from ...templates import BegunCall

_OF_CALLS = (ToolCallStart, ToolCallArguments, ToolCallEnd)


class ContinuedParser(Parser):
    """Takes the options of `Parser`. What the model wrote before is counted nowhere."""

    __slots__ = ("_begun", "_calls", "_counted", "_keeps", "_waiting")

    def __init__(self, begun: BegunCall, *args: Any, keep_message: bool = True, **options: Any) -> None:
        super().__init__(*args, keep_message=keep_message, **options)
        self._begun: BegunCall | None = begun
        self._keeps = keep_message
        self._calls = 0
        """The number of the call that had broken off."""
        self._counted: dict[str, int] = {}
        """The tokens of what was written before."""
        self._waiting: list[Event] = []
        """What is told of it, with the next events."""

    def feed(self, text: str) -> list[Event]:
        if self._begun is not None:
            self._begin(self._begun, super().feed(self._begun.text))
        return self._told(self._machine.feed(text))

    def feed_tokens(self, ids: Iterable[int]) -> list[Event]:
        if self._begun is not None:
            self._begin(self._begun, super().feed_tokens(self._begun.ids))
        return self._told(self._machine.feed_tokens(ids))

    def finish(self, *, end_of_turn: bool = False) -> list[Event]:
        if self._begun is not None:  # the model wrote nothing more
            self.feed("")
        return self._told(self._machine.finish(end_of_turn))

    @property
    def tokens(self) -> dict[str, int]:
        return {strand: count - self._counted.get(strand, 0) for strand, count in super().tokens.items()}

    def _begin(self, begun: BegunCall, events: Sequence[Event]) -> None:
        self._begun = None
        self._fold = Fold() if self._keeps else None
        self._counted = {} if self._machine.tally is None else super().tokens
        starts = [at for at, event in enumerate(events) if isinstance(event, ToolCallStart)]
        if starts:
            first = events[starts[-1]]
            assert isinstance(first, ToolCallStart)
            self._calls = first.index
            own = [event for event in events[starts[-1] :] if isinstance(event, _OF_CALLS)]
            self._waiting = [replace(first, id=begun.id or first.id), *own[1:]]

    def _told(self, events: list[Event]) -> list[Event]:
        events = [*self._waiting, *events]
        self._waiting = []
        if self._calls:
            events = [
                replace(event, index=event.index - self._calls) if isinstance(event, _OF_CALLS) else event
                for event in events
            ]
        return self._kept(events)
