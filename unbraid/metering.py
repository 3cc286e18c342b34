"""How much work one request may cause: CPU time that is counted while it is spent.

A small input can mean much work: alternatives multiply, automata grow. So every loop that an input can make long calls
`spend`, and `working_on` says which part of the input it is about. Without a meter both do nothing. Inside `metered`
they count, and once the thread has used its time, or somebody has called `Meter.cancel`, the next `spend` raises. The
error names the part of the input that cost most.

Time is read every few hundred steps only, and counted from the first reading on, so that `spend` stays cheap; one step
should take microseconds. Counts of their own (states, alternatives, characters) bound single algorithms on top of that,
with the same verdict on every machine; the meter bounds all of them together.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextvars import ContextVar

from .errors import OverBudget, Place

cpu_time = getattr(time, "thread_time", time.process_time)
"""Seconds of CPU time of this thread. Python in a browser has one thread, and no clock for it."""
_STEPS = 200
"""How many steps pass between two looks at the clock."""


class Cancelled(BaseException):
    """Nobody waits for the work any more. It is no error, so that no handler for errors swallows it."""


class Meter:
    """What one piece of work may still spend. It counts the CPU time of the thread that it is made in."""

    __slots__ = ("_cancelled", "_costs", "_end", "_last", "_left", "_seconds", "place")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: float | None = None
        """The clock when it was last looked at. Most work is done before it is."""
        self._end = 0.0
        self._left = _STEPS
        self._cancelled = False
        self._costs: dict[str, int] = defaultdict(int)
        self.place = ""
        """The part of the input that is being worked on."""

    def cancel(self) -> None:
        """Have the work given up. May be called from any thread."""
        self._cancelled = True

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left <= 0:
            self._left = _STEPS
            self.look()

    def look(self) -> None:
        """Raises `OverBudget` where the time is used up, and `Cancelled` where nobody waits for the rest."""
        if self._cancelled:
            raise Cancelled
        now: float = cpu_time()
        if self._last is None:
            self._last, self._end = now, now + self._seconds
        self._costs[self.place] += int(1e9 * (now - self._last))
        self._last = now
        if now > self._end:
            place = costliest(self._costs)
            message = f" takes more than {self._seconds:g} seconds to work out: simplify it"
            raise OverBudget(Place(text=place) if place else "the request", message)


def costliest(costs: Mapping[str, int]) -> str:
    """The innermost place in which at least half of the costs arose. Places in each other begin alike."""
    inside: Counter[str] = Counter()
    for place, cost in costs.items():
        for at in (at for at, char in enumerate(place + ".") if char in ".["):
            inside[place[:at]] += cost
    half = sum(costs.values()) / 2
    return max((place for place, cost in inside.items() if cost >= half), key=len, default="")


_current: ContextVar[Meter | None] = ContextVar("unbraid_meter", default=None)


def spend(steps: int = 1) -> None:
    """So many steps of work are about to be done. Raises `OverBudget` where there is a meter and it has run out."""
    meter = _current.get()
    if meter is not None:
        meter.spend(steps)


def working_on(place: str) -> None:
    """What follows is about this part of the input, if it has a name."""
    meter = _current.get()
    if meter is not None and place:
        meter.place = place


class metered:  # noqa: N801  # what `contextmanager` makes of a generator takes three times as long
    """Count what is spent inside, in this thread."""

    __slots__ = ("_meter", "_token")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._token = _current.set(self._meter)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
