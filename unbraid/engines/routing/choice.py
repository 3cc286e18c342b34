"""The choice: which replica gets the next try of a request.

Every replica that is up gets a rank. Of those with the best rank, the one that has the beginning of the prompt in its
cache is taken, or else the least loaded, or the one unused for longest. A replica that is left out only ranks last: if
all are left out, they are used all the same.

Affinity keeps a conversation on the replica that has its beginning cached, as long as that replica has room. A prompt
is cut into blocks, and each block gets a digest of the prompt up to its end. The digests are used twice:

- Cached beginnings. A table has the replica that last got a prompt with such a beginning. The longest beginning in the
  table decides, if it is at least half of the prompt: a system message that all prompts share says little.
- Home. If the table says nothing, all replicas are ordered by a hash of the prompt's first blocks and their names
  (rendezvous hashing), and the first with room is taken. So servers that know nothing of each other choose alike, and a
  replica that comes or goes moves only its own share of the prompts.

Room is bounded load: a replica has at most `factor` times its share of all requests. If none has room, or a prompt is
shorter than a block, the least loaded is taken.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from hashlib import blake2b

from ...caching import LruCache
from .replica import Replica
from .rules import AffinityRules

Digests = tuple[bytes, ...]


class Affinity:
    """Which replica has which beginnings of prompts in its cache."""

    def __init__(self, rules: AffinityRules) -> None:
        self._rules = rules
        self._cached: LruCache[bytes, Replica] = LruCache(rules.most_known)

    def digests(self, prompt: tuple[int, ...] | str) -> Digests:
        """The digest of each beginning of a prompt, the shortest first. Empty if affinity is off."""
        rules = self._rules
        if rules.factor <= 0:
            return ()
        if isinstance(prompt, str):
            size, data = rules.block * _CHARACTERS, prompt.encode("utf-8", "surrogatepass")
        else:
            size, data = rules.block * _WIDTH, array("q", prompt).tobytes()
        running = blake2b(digest_size=_SIZE)
        digests = []
        for at in range(size, min(len(data), size * rules.most_blocks) + 1, size):
            running.update(data[at - size : at])
            digests.append(running.copy().digest())
        return tuple(digests)

    def preferred(self, replicas: Sequence[Replica], digests: Digests) -> Replica | None:
        """The replica that the prompt prefers, or None."""
        if not digests:
            return None
        bound = self.bound(replicas)
        for at in range(len(digests), (len(digests) - 1) // 2, -1):
            cached = self._cached.get(digests[at - 1])
            if cached is not None and cached in replicas and cached.load < bound:
                return cached
        home = digests[min(len(digests), self._rules.home_blocks) - 1]
        order = sorted(replicas, key=lambda replica: _weight(home, replica.name), reverse=True)
        return next((replica for replica in order if replica.load < bound), None)

    def bound(self, replicas: Sequence[Replica]) -> int:
        """Upper bound on a replica's load for which cache affinity still wins over balance."""
        requests = sum(replica.load for replica in replicas) + 1
        return max(self._rules.free, math.ceil(self._rules.factor * requests / len(replicas)))

    def note(self, digests: Digests, replica: Replica) -> None:
        """Note that the replica gets a prompt."""
        for digest in digests:
            self._cached[digest] = replica


_SIZE = 8
_WIDTH = 8
"""Bytes of a token's id."""
_CHARACTERS = 4
"""Bytes of text, about, of one token."""


def _weight(digest: bytes, name: str) -> bytes:
    return blake2b(name.encode(), key=digest, digest_size=_SIZE).digest()


def choose(
    replicas: Sequence[Replica], tried: Collection[Replica], now: float, affinity: Affinity, digests: Digests
) -> Replica | None:
    """The best replica that has not been tried, or None."""
    left = [replica for replica in replicas if not replica.down and replica not in tried]
    if not left:
        return None
    ranks = [_rank(replica, bool(tried), now) for replica in left]
    best = [replica for replica, rank in zip(left, ranks, strict=True) if rank == min(ranks)]
    return affinity.preferred(best, digests) or min(best, key=lambda replica: (replica.load, replica.used))


def _rank(replica: Replica, again: bool, now: float) -> int:
    """0 is the best. A half-open replica comes first, or it would never get its probe; but not for a request that has
    failed once already (`again`)."""
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
