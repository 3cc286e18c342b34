"""The retry budget: all retries together are at most a share of the recent requests, and a few besides. When a replica
dies, all that it had comes back at once: for requests without output there may be a share of what runs besides. Its
outputs always move, and are no retries: they are work that is there already, and no more of it.

Without it, replicas that fail because they have too much to do get each request several times. Requests and retries
count less the older they are, both at the same rate, so there are no windows with edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .rules import RetryRules


class RetryBudget:
    """Counts requests and retries."""

    def __init__(self, rules: RetryRules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._at = clock()
        self._requests = 0.0
        self._retries = 0.0

    def request(self) -> None:
        """There is a new request."""
        self._age()
        self._requests += 1.0

    def retry(self, running: int = 0) -> bool:
        """Whether a request may be tried again. If so, it counts as done. `running`: how many requests run, where this
        one was on a replica that died."""
        self._age()
        rules = self._rules
        if self._retries + 1.0 > rules.minimum + rules.share * self._requests + rules.moves * running:
            return False
        self._retries += 1.0
        return True

    def _age(self) -> None:
        now = self._clock()
        if now > self._at:
            left = math.exp((self._at - now) / self._rules.window)
            self._requests *= left
            self._retries *= left
            self._at = now
