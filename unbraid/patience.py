"""How long others may take, by a clock that does not count what this process lost.

A timer that blames another (a server that does not answer, a client that does not send) must not blame it for our own
slowness: while the event loop is busy or the process is stopped, nobody's answer is read. So a `LoopClock` looks, every
twentieth of a second, how late it comes to do so. That lateness is no time of its own: `now` stands still meanwhile.

    clock = LoopClock.current()
    start = clock.now()
    ...                            # the process is stopped for six seconds
    clock.now() - start            # 0.05

`patient` is a timeout by this clock, `PatientTimer` a timer, and `PatientLimit` a timeout that is set later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

_BEAT = 0.05
"""Seconds from one look to the next."""
_GRACE = 0.02
"""Seconds by which any timer is late."""


class LoopClock:
    """The time of one event loop, in seconds, less what the loop lost. It looks while somebody waits by it (`hold`)."""

    def __init__(self, time: Callable[[], float], call_at: Callable[[float, Callable[[], None]], object]) -> None:
        self._time, self._call_at = time, call_at
        self._lost = 0.0
        self._waiting = 0
        self._next: float | None = None
        """When the next look is due. None while nobody waits."""

    @staticmethod
    def current() -> LoopClock:
        """The clock of the running event loop."""
        loop = asyncio.get_running_loop()
        clock = _clocks.get(loop)
        if clock is None:
            for other in tuple(_clocks):  # a clock keeps its loop alive; other threads have loops of their own
                if other.is_closed():
                    _clocks.pop(other, None)
            clock = _clocks[loop] = LoopClock(loop.time, loop.call_at)
        return clock

    def now(self) -> float:
        """The time. What passes after a look was due does not count."""
        now = self._time()
        if self._next is not None and now > self._next + _GRACE:
            now = self._next
        return now - self._lost

    def hold(self) -> None:
        """Somebody waits by this clock, until `release`."""
        self._waiting += 1
        if self._next is None:
            self._set(self._time())

    def release(self) -> None:
        self._waiting -= 1

    def _set(self, now: float) -> None:
        self._next = now + _BEAT
        self._call_at(self._next, self._look)

    def _look(self) -> None:
        assert self._next is not None
        now = self._time()
        if now > self._next + _GRACE:
            self._lost += now - self._next
        if self._waiting:
            self._set(now)
        else:
            self._next = None


_clocks: dict[asyncio.AbstractEventLoop, LoopClock] = {}


def patient_time() -> float:
    """The time of the running event loop's clock; that of the system where no loop runs."""
    try:
        return LoopClock.current().now()
    except RuntimeError:
        return time.monotonic()


class PatientTimer:
    """Calls `ring` when so many seconds have passed by the clock of the running loop."""

    __slots__ = ("_clock", "_due", "_loop", "_ring", "_timer", "_until")

    def __init__(self, ring: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = LoopClock.current()
        self._ring = ring
        self._until = self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        return self._timer is not None

    def begin(self, seconds: float) -> None:
        """Begin to wait, or begin anew. A timer that is set already and comes early enough is kept."""
        now = self._clock.now()
        self._until = now + seconds
        if self._timer is None or self._due > self._until:
            self._set(now)

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._clock.release()

    def _set(self, now: float) -> None:
        self.end()
        self._due = self._until
        self._clock.hold()
        self._timer = self._loop.call_later(self._until - now, self._look)

    def _look(self) -> None:
        now = self._clock.now()
        if now < self._until:
            self._set(now)
        else:
            self.end()
            self._ring()


class PatientLimit:
    """As `asyncio.timeout`, by the clock of the running loop. It counts from `begin` to `end`, inside of its block."""

    def __init__(self) -> None:
        self._timeout = asyncio.timeout(None)
        loop = asyncio.get_running_loop()
        self._timer = PatientTimer(lambda: self._timeout.reschedule(loop.time()))
        self.begin, self.end = self._timer.begin, self._timer.end

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        self.end()
        await self._timeout.__aexit__(*raised)


@asynccontextmanager
async def patient(seconds: float) -> AsyncGenerator[None, None]:
    """Raises `TimeoutError` if the block takes more seconds by the clock of the running loop."""
    limit = PatientLimit()
    async with limit:
        limit.begin(seconds)
        yield
