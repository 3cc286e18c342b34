"""The choice: which replica gets the next try of a request.

Every replica that is up gets a rank. Among those of the best rank the one is taken that knows the beginning of the
prompt (`affinity`), or else the one with the least to do, or the one that was not used for longest. A replica that is
left out only ranks last: if all are, they are used all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .affinity import Affinity, Digests
from .replica import Replica


def choose(
    replicas: Sequence[Replica], tried: Collection[Replica], now: float, affinity: Affinity, digests: Digests
) -> Replica | None:
    """The best replica that has not been tried, None if there is none."""
    left = [replica for replica in replicas if not replica.down and replica not in tried]
    if not left:
        return None
    ranks = [_rank(replica, bool(tried), now) for replica in left]
    best = [replica for replica, rank in zip(left, ranks, strict=True) if rank == min(ranks)]
    known = affinity.preferred(best, digests)
    return known or min(best, key=lambda replica: (replica.load, replica.used))


def _rank(replica: Replica, again: bool, now: float) -> int:
    """0 is the best. A replica that is to be tried with one request comes first, or it would never be; but not for a
    request that has failed once already."""
    breaker = replica.breaker
    state = breaker.refresh()
    if state == "open":
        return 5 if breaker.broken else 4  # slow is better than broken
    if state == "half-open" and breaker.probe is not None:
        return 4
    if replica.busy_until > now:
        return 3
    if replica.failed_checks or (state == "half-open" and again):
        return 2
    return 0 if state == "half-open" else 1
