"""Affinity: a conversation stays on the replica that has its beginning in its cache, as long as that has room.

A prompt is cut into blocks, and each block has a digest of all that stands up to its end. Two things follow from them:

- Known beginnings. A table says which replica last got a prompt with such a beginning. The longest that is known
  decides, if it is at least half of the prompt: a system message that all prompts share says little.
- Home. Where nothing is known, all replicas are ordered by a hash of the prompt's first blocks and their names
  (rendezvous hashing), and the first with room is taken. So servers that know nothing of each other choose alike, and a
  replica that comes or goes moves its own share of the prompts and no other.

Room is bounded load: a replica has at most `factor` times its share of all requests. What knows of no room, and prompts
shorter than a block, go to the least loaded.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from .replica import Replica
from .rules import AffinityRules

Digests = tuple[bytes, ...]


class Affinity:
    """Which replicas have which beginnings of prompts."""

    def __init__(self, rules: AffinityRules) -> None:
        self._rules = rules
        self._known: OrderedDict[bytes, Replica] = OrderedDict()

    def digests(self, prompt: tuple[int, ...] | str) -> Digests:
        """The digest of each beginning of a prompt, the shortest first. None where nothing is preferred."""
        rules = self._rules
        if rules.factor <= 0:
            return ()
        if isinstance(prompt, str):
            size, data = rules.block * _CHARACTERS, prompt.encode("utf-8", "surrogatepass")
        else:
            size, data = rules.block * _WIDTH, array("q", prompt).tobytes()
        running = blake2b(digest_size=_SIZE)
        found = []
        for at in range(size, min(len(data), size * rules.most_blocks) + 1, size):
            running.update(data[at - size : at])
            found.append(running.copy().digest())
        return tuple(found)

    def preferred(self, replicas: Sequence[Replica], digests: Digests) -> Replica | None:
        """The replica to take among these, None if the prompt does not say."""
        if not digests:
            return None
        bound = self.bound(replicas)
        for at in range(len(digests), (len(digests) - 1) // 2, -1):
            known = self._known.get(digests[at - 1])
            if known is not None and known in replicas and known.load < bound:
                return known
        home = digests[min(len(digests), self._rules.home_blocks) - 1]
        order = sorted(replicas, key=lambda replica: _weight(home, replica.name), reverse=True)
        return next((replica for replica in order if replica.load < bound), None)

    def bound(self, replicas: Sequence[Replica]) -> int:
        """How many requests one of them has at most, the next one included, for the sake of what it knows."""
        requests = sum(replica.load for replica in replicas) + 1
        return max(self._rules.free, math.ceil(self._rules.factor * requests / len(replicas)))

    def note(self, digests: Digests, replica: Replica) -> None:
        """The replica gets a prompt."""
        for digest in digests:
            self._known[digest] = replica
            self._known.move_to_end(digest)
        while len(self._known) > self._rules.most_known:
            self._known.popitem(last=False)


_SIZE = 8
_WIDTH = 8
"""Bytes of a token's id."""
_CHARACTERS = 4
"""Bytes of text that are about a token."""


def _weight(digest: bytes, name: str) -> bytes:
    return blake2b(name.encode(), key=digest, digest_size=_SIZE).digest()
