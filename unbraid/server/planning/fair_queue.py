"""A queue for a few places, in which one client cannot keep the others out.

Clients take turns, however many requests each of them has. One client holds all places but one at most, where there is
more than one, and waits with no more than its share of the queue. What does not fit is refused at once: the client is
told to come back, which is better than an answer that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class QueueFull(Exception):
    """There are too many who wait. `own`: all of them are of this client."""

    def __init__(self, own: bool) -> None:
        super().__init__("too many requests wait")
        self.own = own


class FairQueue:
    """Gives out so many places. Belongs to one event loop."""

    def __init__(self, places: int, most_waiting: int, most_waiting_each: int) -> None:
        self._free = places
        self._most_held = max(1, places - 1)
        self._most, self._most_each = most_waiting, most_waiting_each
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The clients that wait, in the order of their turns."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def place(self, client: str) -> AsyncGenerator[None, None]:
        """One place, for as long as it lasts. Raises `QueueFull`."""
        await self._enter(client)
        try:
            yield
        finally:
            self._leave(client)

    async def _enter(self, client: str) -> None:
        if self._free and self._may_hold(client):
            self._take(client)
            return
        own = self._waiting.get(client, ())
        if len(own) >= self._most_each or self.waiting >= self._most:
            raise QueueFull(own=len(own) >= self._most_each)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self._leave(client)
            else:
                self._forget(client, turn)
            raise

    def _may_hold(self, client: str) -> bool:
        return self._held[client] < self._most_held

    def _take(self, client: str) -> None:
        self._free -= 1
        self._held[client] += 1

    def _leave(self, client: str) -> None:
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        for other in list(self._waiting):
            # One that is done was cancelled just now, and is about to notice.
            turn = next((turn for turn in self._waiting[other] if not turn.done()), None)
            if turn is not None and self._free and self._may_hold(other):
                self._take(other)
                self._forget(other, turn)
                if other in self._waiting:
                    self._waiting.move_to_end(other)
                turn.set_result(None)

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[client]
        turns.remove(turn)
        if not turns:
            del self._waiting[client]
