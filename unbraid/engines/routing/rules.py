"""The numbers by which replicas are chosen, left out and tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import UnbraidError


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When a replica is left out, and for how long."""

    failures: int = 3
    """After how many failed requests in a row. One is enough if the replica broke off, was silent or out of reach."""
    rate: float = 0.5
    """After which share of failures among the last requests."""
    outcomes: int = 20
    """How many requests are the last ones. The share counts as soon as there are half as many."""
    shortest: float = 5.0
    """Seconds that it is left out at first. Each time that it fails again soon after, it is twice as long."""
    longest: float = 120.0
    jitter: float = 0.2
    """Up to which share this is lengthened at random, so that many servers do not come back to a replica at once."""
    trial: float = 10.0
    """Seconds of output after which the one request that a replica is tried with counts as answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlownessRules:
    """When a replica is too slow to its first pieces."""

    factor: float = 5.0
    """A first piece is late if it takes so many times the others' median,"""
    seconds: float = 2.0
    """and at least so long."""
    requests: int = 8
    """A replica is slow if more than half of its last so many requests were late."""
    left: float = 0.5
    """The share of all replicas that always stays. Slow is better than none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """How often requests are tried again."""

    most: int = 3
    """How often one request is, at most, each time on a replica that has not tried it."""
    share: float = 0.2
    """How often all recent requests together are: this share of them,"""
    minimum: float = 10.0
    """and so many besides,"""
    moves: float = 0.5
    """and this share of all that run, where a replica has died. Outputs that it had begun always move."""
    window: float = 10.0
    """Seconds after which a request hardly counts as recent."""

    def __post_init__(self) -> None:
        if self.most < 0:
            raise UnbraidError(f"requests cannot be tried again {self.most} times: give 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityRules:
    """When a request goes to the replica that knows the beginning of its prompt."""

    factor: float = 1.25
    """As long as that has less than so many times its share of all requests; 0 for never,"""
    free: int = 4
    """or less than so many requests at all."""
    block: int = 64
    """Tokens of a block. A prompt is compared block by block."""
    home_blocks: int = 4
    """How many blocks decide where a prompt goes of which nothing is known."""
    most_blocks: int = 1024
    """How many are looked at."""
    most_known: int = 32_768
    """How many beginnings are kept."""

    def __post_init__(self) -> None:
        if 0 < self.factor < 1:
            raise UnbraidError(f"replicas cannot all have {self.factor:g} times their share: give 1 or more, or 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How requests are spread over replicas."""

    check_interval: float = 5.0
    """Seconds from one check of a replica to the next."""
    failures: int = 3
    """After how many failed checks in a row a replica gets no more requests, until a check succeeds."""
    breaker: BreakerRules = BreakerRules()
    slowness: SlownessRules = SlownessRules()
    retries: RetryRules = RetryRules()
    affinity: AffinityRules = AffinityRules()
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
