"""Slowness: a replica whose first pieces come much later than the others'.

One late piece says little, since a long prompt takes long anywhere. So a replica is slow if most of its last requests
were late, and late is measured by the others' median. Requests that still wait count by how long they have waited, so a
replica that hangs is noticed before its requests time out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from .rules import SlownessRules


class FirstPieces:
    """How long one replica took to its first pieces, and what it lets wait for them now."""

    __slots__ = ("_rules", "latest", "times", "waiting")

    def __init__(self, rules: SlownessRules) -> None:
        self._rules = rules
        self.times: deque[float] = deque(maxlen=rules.requests)
        self.waiting: dict[object, float] = {}
        """The requests without a piece, oldest first, and when they began."""
        self.latest: float | None = None
        """The last time."""

    def add(self, seconds: float) -> None:
        self.latest = seconds
        self.times.append(seconds)

    def give_up(self, seconds: float) -> None:
        """A request ended without a piece. If that took long, the piece would have taken longer."""
        if seconds >= self._rules.seconds:
            self.times.append(seconds)

    def worth_a_look(self, now: float) -> bool:
        """Whether it can be slow at all. Almost always it cannot, and nothing has to be compared."""
        oldest = next(iter(self.waiting.values()), now)
        return max(now - oldest, self.times[-1] if self.times else 0.0) >= self._rules.seconds

    def is_slow(self, now: float, others: Iterable[FirstPieces]) -> bool:
        """Whether most of the last requests were late."""
        limit = self.limit(others)
        if limit is None:
            return False
        waits = [now - began for began in self.waiting.values() if now - began > limit]
        known = [*waits, *reversed(self.times)][: self._rules.requests]
        return 2 * sum(seconds > limit for seconds in known) > self._rules.requests

    def limit(self, others: Iterable[FirstPieces]) -> float | None:
        """From how many seconds on a first piece is late; None where the others have not shown what is usual."""
        usual = [seconds for other in others for seconds in other.times]
        if 2 * len(usual) < self._rules.requests:
            return None
        return max(self._rules.seconds, self._rules.factor * median(usual))
