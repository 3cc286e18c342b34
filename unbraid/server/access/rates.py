"""Requests and tokens a minute, for each client.

A client has two buckets, one of requests and one of tokens. A bucket holds what a minute allows and fills evenly. A
request takes one of the requests when it comes; tokens are taken when they are known, which is after the fact, so a
bucket of tokens can be in debt. A request is refused while there is not one request and one token in its buckets. So
over any length of time nobody gets more than the rate and what was under way when it was used up.

Memory: a client whose buckets are full again is as good as one never seen, and is forgotten. Of the others at most
`MOST_CLIENTS` are kept; beyond that the one seen longest ago is forgotten, and begins anew. Somebody with that many
addresses has as many limits anyway. Keys are few, and none is forgotten.

With several worker processes each counts by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

MOST_CLIENTS = 65_536
_MINUTE = 60.0

Counted = Literal["requests", "tokens"]


@dataclass(slots=True)
class Bucket:
    """What is left of a limit, at a time."""

    limit: int
    level: float
    at: float

    def fill(self, now: float) -> None:
        self.level = min(float(self.limit), self.level + (now - self.at) * self.limit / _MINUTE)
        self.at = now

    def until(self, level: float) -> float:
        """Seconds until there is so much in it."""
        return max(0.0, (level - self.level) * _MINUTE / self.limit)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left for a client, of one of its limits."""

    counted: Counted
    limit: int
    remaining: int
    reset: float
    """Seconds until all of it is there again."""
    wait: float
    """Seconds until a request is taken; 0 where it is taken now."""


@dataclass(kw_only=True)
class Rates:
    """The limits of a server. 0: none."""

    requests: int = 0
    tokens: int = 0
    clock: Callable[[], float] = time.monotonic
    most_clients: int = MOST_CLIENTS
    _clients: dict[str, dict[Counted, Bucket]] = field(default_factory=dict, init=False)
    """Those that are known, the one seen longest ago first."""

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens)

    def __len__(self) -> int:
        return len(self._clients)

    def ask(self, client: str) -> list[Standing]:
        """Take one request of a client's, if all its limits allow it: then none of them says to wait."""
        buckets = self._buckets(client)
        taken = all(bucket.level >= 1 for bucket in buckets.values())
        if taken and "requests" in buckets:
            buckets["requests"].level -= 1
        return [_standing(counted, bucket, taken) for counted, bucket in buckets.items()]

    def standing(self, client: str) -> list[Standing]:
        """What is left for a client now."""
        return [_standing(counted, bucket, True) for counted, bucket in self._buckets(client).items()]

    def charge(self, client: str, tokens: int) -> None:
        """Take tokens, as many as there were; give some back where they are less than none."""
        if self.tokens and tokens:
            self._buckets(client)["tokens"].level -= tokens

    def _buckets(self, client: str) -> dict[Counted, Bucket]:
        now = self.clock()
        buckets = self._clients.pop(client, None)
        if buckets is None:
            self._forget(now)
            limits: dict[Counted, int] = {"requests": self.requests, "tokens": self.tokens}
            buckets = {name: Bucket(limit, float(limit), now) for name, limit in limits.items() if limit}
        for bucket in buckets.values():
            bucket.fill(now)
        self._clients[client] = buckets
        return buckets

    def _forget(self, now: float) -> None:
        """Make room for one more. Two at a time, so that those that are full again go sooner than others come."""
        for _ in range(2):
            oldest = next(iter(self._clients), None)
            if oldest is None:
                return
            buckets = self._clients[oldest]
            for bucket in buckets.values():
                bucket.fill(now)
            full = all(bucket.level >= bucket.limit for bucket in buckets.values())
            if not full and len(self._clients) < self.most_clients:
                return
            del self._clients[oldest]


def _standing(counted: Counted, bucket: Bucket, taken: bool) -> Standing:
    wait = 0.0 if taken else bucket.until(1)
    remaining = max(0, math.floor(bucket.level))
    return Standing(counted, bucket.limit, remaining, bucket.until(bucket.limit), wait)
