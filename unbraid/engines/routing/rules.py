"""The numbers by which replicas are chosen, left out and tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import UnbraidError
from ...patience import patient_time


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When a replica is left out, and for how long."""

    failures: int = 3
    """Failed requests in a row that leave it out. One is enough if the replica broke off, was silent or unreachable."""
    rate: float = 0.5
    """Share of failures among the last requests that leaves it out."""
    outcomes: int = 20
    """How many requests are the last ones. The share counts as soon as there are half as many."""
    shortest: float = 5.0
    """Seconds that it is left out at first. The time doubles each time that it fails again soon after."""
    longest: float = 120.0
    jitter: float = 0.2
    """Largest random share added to that time, so that many servers do not come back to a replica at once."""
    trial: float = 10.0
    """Seconds of output after which the probe counts as answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlownessRules:
    """When a replica is too slow to its first pieces."""

    factor: float = 5.0
    """A first piece is late if it takes more than this many times the others' median …"""
    seconds: float = 2.0
    """… and more than this many seconds."""
    requests: int = 8
    """How many requests are looked at. A replica is slow if more than half of them were late."""
    left: float = 0.5
    """Share of all replicas that always stays. Slow is better than none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """How often requests are tried again."""

    most: int = 3
    """Most retries of one request, each on a replica that has not tried it."""
    share: float = 0.2
    """Most retries of all recent requests together, as a share of them …"""
    minimum: float = 10.0
    """… plus this many …"""
    moves: float = 0.5
    """… plus this share of all running requests, if a replica has died. Outputs that it had begun always move."""
    window: float = 10.0
    """Seconds after which a request hardly counts as recent."""

    def __post_init__(self) -> None:
        if self.most < 0:
            raise UnbraidError(f"requests cannot be tried again {self.most} times: give 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityRules:
    """When a request goes to the replica that has the beginning of its prompt in its cache."""

    factor: float = 1.25
    """As long as that replica has less than this many times its share of all requests (0 turns affinity off) …"""
    free: int = 4
    """… or less than this many requests."""
    block: int = 64
    """Tokens of a block. A prompt is compared block by block."""
    home_blocks: int = 4
    """Blocks that decide where a prompt goes that no replica has cached."""
    most_blocks: int = 1024
    """Most blocks of a prompt that are compared."""
    most_known: int = 32_768
    """Most beginnings that are kept."""

    def __post_init__(self) -> None:
        if 0 < self.factor < 1:
            raise UnbraidError(f"replicas cannot all have {self.factor:g} times their share: give 1 or more, or 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How requests are spread over replicas."""

    parallel: int = 1024
    """Requests that one replica has at once, about. More wait here, where clients take turns. 0: any number."""
    check_interval: float = 5.0
    """Seconds from one check of a replica to the next."""
    recheck: float = 1.0
    """The same after a check that failed, as long as the replica still gets requests."""
    failures: int = 3
    """Failed checks in a row after which a replica gets no more requests, until a check succeeds."""
    breaker: BreakerRules = BreakerRules()
    slowness: SlownessRules = SlownessRules()
    retries: RetryRules = RetryRules()
    affinity: AffinityRules = AffinityRules()
    clock: Callable[[], float] = patient_time
    chance: Callable[[], float] = random.random
