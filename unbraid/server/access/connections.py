"""How many connections there are, in all and for each client.

A client that has its share gets no further one. When the server has its share in all, the connection that has gone
longest without a request makes room for the new one; only if all are being answered is the new one refused. So
connections that are opened and left alone cannot keep anybody out, however many they are.

Every operation takes constant time. Nothing here knows of sockets: whoever takes a `Seat` says how to close it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from ..errors import ApiError

_log = logging.getLogger(__name__)
_RESERVED = 256
"""Descriptors for everything else: engines, files, the store."""


class Seat:
    """The place of one connection. It is waiting (for a handshake, headers, the next request) or being answered."""

    __slots__ = ("_connections", "client", "close", "taken")

    def __init__(self, connections: Connections, client: str, close: Callable[[], None]) -> None:
        self._connections = connections
        self.client = client
        self.close = close
        self.taken = True

    def wait(self) -> None:
        """From now on the connection waits for a request."""
        if self.taken:
            self._connections.waiting[self] = None

    def answer(self) -> None:
        """The connection has a request."""
        self._connections.waiting.pop(self, None)

    def leave(self) -> None:
        """The connection has ended. May be called again."""
        self._connections.leave(self)


class Connections:
    """All connections of a server. 0: as many as there are."""

    def __init__(self, most: int = 0, most_for_client: int = 0) -> None:
        self._most = most
        self._most_for_client = most_for_client
        self.count_refused: Callable[[str], None] = lambda reason: None
        """Called for each connection that is turned away or closed to make room, with the reason in one word."""
        self._clients: Counter[str] = Counter()
        self.count = 0
        self.waiting: dict[Seat, None] = {}
        """Connections without a request, the one that has waited longest first."""

    def take(self, client: str | None, close: Callable[[], None]) -> Seat:
        """A place for a connection, which begins by waiting. `client` is None where connections of one are not counted.
        Raises `ApiError` where there is none."""
        if client and self._most_for_client and self._clients[client] >= self._most_for_client:
            self.count_refused("client")
            message = (
                f"your address has {self._most_for_client} connections open, the most that this server takes from one "
                "(--client-connections): close some, or use them again"
            )
            raise ApiError(429, message, code="too_many_connections", retry_after=1.0)
        if self._most and self.count >= self._most:
            self._make_room()
        seat = Seat(self, client or "", close)
        self.count += 1
        self._clients[seat.client] += 1
        seat.wait()
        return seat

    def _make_room(self) -> None:
        oldest = next(iter(self.waiting), None)
        self.count_refused("server" if oldest is None else "idle")
        if oldest is None:
            message = f"the server answers on {self._most} connections, the most that it takes (--connections): wait"
            raise ApiError(503, message, code="too_many_connections", retry_after=1.0)
        self.leave(oldest)
        oldest.close()

    def leave(self, seat: Seat) -> None:
        if seat.taken:
            seat.taken = False
            self.waiting.pop(seat, None)
            self.count -= 1
            self._clients[seat.client] -= 1
            if not self._clients[seat.client]:
                del self._clients[seat.client]


def affordable(count: int) -> int:
    """How many connections there can be: as many as wanted, or as the system has descriptors for. The limit of this
    process is raised as far as the system lets it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return count
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _RESERVED
    if not count or soft == resource.RLIM_INFINITY or soft >= needed:
        return count
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError) as error:  # macOS has a limit of its own below the hard one
            _log.debug("the limit on open files stays at %d: %s", soft, error)
    if soft >= needed:
        return count
    most = max(1, soft - _RESERVED)
    _log.warning("the limit on open files (%d) leaves %d connections of %d: see `ulimit -n`", soft, most, count)
    return most
