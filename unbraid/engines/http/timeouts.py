"""How long a server may take: to be reached, to its first piece, and from one piece to the next.

A piece is output: tokens or text. Other bytes (comments that keep a connection open, empty messages) do not count, so
a server that only trickles is given up like a silent one. The time that our own consumer takes between two pieces does
not count either: the clock of a piece starts when it is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import UnbraidError
from ...patience import LoopClock, PatientTimer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    connect: float = 5.0
    """To open a connection."""
    first: float = 120.0
    """To the first piece of an output, from when the request is sent. For a server that does not stream, to its whole
    answer."""
    piece: float = 120.0
    """To each further piece, and from the last one to the end."""
    follows: bool = False
    """Whether the time for further pieces follows what the server usually takes, up to `piece`. For replicas, where an
    output can go on elsewhere."""

    def __post_init__(self) -> None:
        if not all(0.0 < seconds < float("inf") for seconds in (self.connect, self.first, self.piece)):
            raise UnbraidError(f"a timeout is a number of seconds above 0, and these are {self}: give others")


class UsualGap:
    """How long one server usually takes from one piece to the next, and how long it may take by that."""

    __slots__ = ("_slowest",)

    def __init__(self) -> None:
        self._slowest = 0.0
        """The longest gap lately: older ones count less and less."""

    def note(self, seconds: float) -> None:
        self._slowest = max(seconds, self._slowest * _FORGET)

    def patience(self, most: float) -> float:
        """Seconds that the next piece may take: a multiple of the longest gap, and `most` before there was any."""
        if not self._slowest:
            return most
        return min(most, max(_LEAST, _FACTOR * self._slowest))


_FORGET = 0.999
"""What is left of a gap for the next piece: a few thousand pieces later it is forgotten."""
_FACTOR, _LEAST = 20.0, 10.0
"""A server may take so many times its longest gap, and so many seconds in any case."""


class PieceClock:
    """The time that is left for the next piece of one output. What our own event loop lost does not count
    (`unbraid.patience`).

    One timer runs for the whole output. A piece only sets `came`, and a wait only stores its task. When the timer goes
    off, it checks whether the time is really up, and sets itself again if not.

    usual: how long the server usually takes; the patience follows it.
    """

    __slots__ = ("_cancelled", "_clock", "_last", "_piece", "_timer", "_usual", "_waiting", "came", "seconds")

    def __init__(self, timeouts: Timeouts, usual: UsualGap | None = None) -> None:
        self._clock = LoopClock.current()
        self._piece = timeouts.piece
        self._usual = usual
        self._last: float | None = None
        self._timer = PatientTimer(self._ring)
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled: int | None = None
        """How often the task was cancelled before the timer did it."""
        self.seconds = timeouts.first
        """How long the piece that is waited for may take."""
        self.came = False
        """Set it when a piece has come. This is all that a piece costs."""

    async def wait(self, work: Awaitable[T]) -> T:
        """The result of `work`, which waits for the server. Raises `TimeoutError` when the time for the piece is up."""
        if self.came:
            self._next()
        elif not self._timer.runs:
            self._timer.begin(self.seconds)
        task = self._waiting = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if self._cancelled is None or task is None or task.uncancel() > self._cancelled:
                raise
            raise TimeoutError from None
        finally:
            self._waiting = None

    def close(self) -> None:
        """Stop the timer."""
        self._timer.end()

    def _next(self) -> None:
        """A piece has come: the next one is waited for."""
        self.came = False
        self.seconds = self._piece
        if self._usual is not None:
            now = self._clock.now()
            if self._last is not None:
                self._usual.note(now - self._last)
            self._last = now
            self.seconds = self._usual.patience(self._piece)
        self._timer.begin(self.seconds)

    def _ring(self) -> None:
        if self._waiting is not None:  # otherwise our own consumer takes its time
            self._cancelled = self._waiting.cancelling()
            self._waiting.cancel()
