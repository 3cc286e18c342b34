"""Load balancing: several engines with the same model as one engine.

    routed.py          `Routed`, the engine that others see: tries, retries, moves, gives up
    choice.py          which replica gets the next try, and which one has a prompt in its cache
    replica.py         one replica and its health: checks, circuit breaker, slowness
    partial_output.py  an output that another replica goes on with
    rules.py           the numbers

A request goes to the replica that has its prompt cached, or to the least loaded. If that replica fails, another is
tried; an output that has begun goes on there (`partial_output`). The clock and random numbers are only read
through `Routing.clock` and `Routing.chance`, so tests decide both. Costly work is done once a request, never once a
piece.
"""

from __future__ import annotations

from .replica import BreakerState, Replica, ReplicaState
from .routed import Routed
from .rules import AffinityRules, BreakerRules, RetryRules, Routing, SlownessRules

__all__ = [
    "AffinityRules",
    "BreakerRules",
    "BreakerState",
    "Replica",
    "ReplicaState",
    "RetryRules",
    "Routed",
    "Routing",
    "SlownessRules",
]
