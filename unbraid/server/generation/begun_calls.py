"""A parser for a turn that goes on inside a call.

It is fed what the model had written of the turn before, so that it stands where the model does. Of that it tells the
calls that the client does not have whole: the one that had broken off, from its name on and with its old id, so that
the client can run it. What else came before the client has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.machine.driver import Driver
from ...core.message import Fold
from ...parsing import Parser
from ...templates import BegunCall


class ContinuedParser(Parser):
    """A parser of the rest of a call. Takes the options of `Parser`. Tokens from before the rest are not counted."""

    __slots__ = ("_begun", "_counted", "_keeps", "_size", "_waiting")

    def __init__(self, begun: BegunCall, *args: Any, keep_message: bool = True, **options: Any) -> None:
        super().__init__(*args, keep_message=keep_message, **options)
        self._begun: BegunCall | None = begun
        self._keeps = keep_message
        self._size = len(begun.text)
        self._counted: dict[str, int] = {}
        """The tokens of the beginning, by strand."""
        self._waiting: list[Event] = []
        """Events about what was written before. They go out with the next ones."""

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
        self._waiting = taken_up(self._machine, begun, events)

    def _told(self, events: list[Event]) -> list[Event]:
        events = [*self._waiting, *past_beginning(events, self._size)]
        self._waiting = []
        return self._kept(events)


def taken_up(machine: Driver, begun: BegunCall, events: Sequence[Event]) -> list[Event]:
    """Tell the beginning of a call, whose events a machine has given. From here on, calls are counted from the first
    one that the client is told of."""
    machine.call_count -= begun.before
    machine.call.index -= begun.before
    started = [event.index for event in events if isinstance(event, ToolCallStart)]
    kept: list[Event] = []
    for event in events:
        if isinstance(event, ToolCallStart) and begun.id and event.index == started[-1]:
            event = replace(event, id=begun.id)
        if isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd) and event.index >= begun.before:
            kept.append(replace(event, index=event.index - begun.before))
    return kept


def past_beginning(events: list[Event], size: int) -> list[Event]:
    """The events without the text of the beginning. The client already has text that was held back and turned out to be
    no call."""
    if not events or events[0].start >= size:
        return events
    return [event for each in events if (event := _past(each, size)) is not None]


def _past(event: Event, size: int) -> Event | None:
    if not isinstance(event, Content | Reasoning) or event.start >= size:
        return event
    text = event.text[size - event.start :]
    return replace(event, text=text, start=size) if text else None
