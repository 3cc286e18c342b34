"""How much of the memory bodies take that are being received or wait to be worked out.

One body is bounded by `--max-body`. Many clients can each send one of that size, slowly, so all of them together are
bounded, too. What a small body takes is always there, and one client has at most half: nobody keeps the others out.
"""

from __future__ import annotations

from collections import Counter

from ..errors import ApiError
from .sender import Sender

MOST = 1_000_000_000
"""Bytes of all bodies together."""
SMALL = 131_072
"""Bytes of a body that nobody is refused."""
_RETRY_AFTER = 5.0


class HeldBodies:
    """The bodies in the memory of one process."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.size = 0
        self._clients: Counter[str] = Counter()

    def add(self, asking: Sender, size: int) -> None:
        """More of a body has come. Raises `ApiError` where there is no room for it."""
        asking.held += size
        self.size += size
        self._clients[asking.client] += size
        if asking.held <= SMALL:
            return
        if self.size > self.most:
            message = "the large requests of all clients are too much at once: ask again later"
            raise ApiError(503, message, code="overloaded", retry_after=_RETRY_AFTER)
        if self._clients[asking.client] > self.most // 2:
            message = "your large requests are too much at once: send fewer at a time"
            raise ApiError(429, message, code="rate_limit_exceeded", retry_after=_RETRY_AFTER)

    def release(self, asking: Sender) -> None:
        """A body is worked out, or nobody wants it any more. May be called again."""
        self.size -= asking.held
        self._clients[asking.client] -= asking.held
        if self._clients[asking.client] <= 0:
            del self._clients[asking.client]
        asking.held = 0


held = HeldBodies()
