"""Load balancing: several engines with the same model as one engine.

    routed.py    `Routed`, the engine that others see: tries, moves, gives up
    begun.py     an output that has begun, and how another replica goes on with it
    choice.py    which replica gets the next try
    replica.py   one replica: what it runs, and what is known of its health
    breaker.py   leaves a replica out that fails, then tries it with one request
    slowness.py  finds a replica whose first pieces come much later than the others'
    retries.py   how many tries there may be in all
    rules.py     the numbers

A request goes to the replica with the fewest requests of ours. If that fails, another is tried; an output that has
begun goes on there. Nothing here reads the clock or draws a random number but by `Routing.clock` and `Routing.chance`,
so tests decide both. What costs time is done once a request, never once a piece.
"""

from __future__ import annotations

from .breaker import State
from .replica import Replica, ReplicaState
from .routed import Routed
from .rules import BreakerRules, RetryRules, Routing, SlownessRules

__all__ = ["BreakerRules", "Replica", "ReplicaState", "RetryRules", "Routed", "Routing", "SlownessRules", "State"]
