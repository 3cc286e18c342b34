"""Load balancing: several engines with the same model as one engine.

    routed.py    `Routed`, the engine that others see: tries, moves, gives up
    begun.py     an output that has begun, and how another replica goes on with it
    choice.py    which replica gets the next try
    affinity.py  which replicas know the beginning of a prompt
    reports.py   what a server says of its own load
    replica.py   one replica: what it runs, and what is known of its health
    breaker.py   leaves a replica out that fails, then tries it with one request
    slowness.py  finds a replica whose first pieces come much later than the others'
    retries.py   how many tries there may be in all
    rules.py     the numbers

A request goes to the replica that knows its prompt, or to the one with the least to do. If that fails, another is
tried; an output that has begun goes on there. Nothing here reads the clock or draws a random number but by
`Routing.clock` and `Routing.chance`, so tests decide both. What costs time is done once a request, never once a piece.
"""

from __future__ import annotations

from .breaker import State
from .replica import Replica, ReplicaState
from .routed import Routed
from .rules import AffinityRules, BreakerRules, RetryRules, Routing, SlownessRules

__all__ = [
    "AffinityRules",
    "BreakerRules",
    "Replica",
    "ReplicaState",
    "RetryRules",
    "Routed",
    "Routing",
    "SlownessRules",
    "State",
]
