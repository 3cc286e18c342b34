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

    def __post_init__(self) -> None:
        if not all(0.0 < seconds < float("inf") for seconds in (self.connect, self.first, self.piece)):
            raise UnbraidError(f"a timeout is a number of seconds above 0, and these are {self}: give others")


class PieceClock:
    """The time that is left for the next piece of one output.

    One timer runs for the whole output. A piece only sets `came`, and a wait only stores its task. When the timer goes
    off, it checks whether the time is really up, and sets itself again if not.
    """

    __slots__ = ("_cancelled", "_loop", "_piece", "_timer", "_until", "_waiting", "came", "seconds")

    def __init__(self, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._piece = timeouts.piece
        self._until = self._loop.time() + timeouts.first
        self._timer: asyncio.TimerHandle | None = None
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
            self.came = False
            self.seconds = self._piece
            self._until = self._loop.time() + self._piece
        if self._timer is None or self._timer.when() > self._until:
            self._set()
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
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._loop.time() < self._until:
            self._set()
        elif self._waiting is not None:
            self._cancelled = self._waiting.cancelling()
            self._waiting.cancel()
