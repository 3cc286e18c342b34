"""A queue for a few places, in which one client cannot keep the others out.

Whatever clients share has one: the engine in this process, replicas elsewhere, worker processes, recordings, sockets.

- *Turns.* Clients take turns, however many requests each of them has. What runs in the background comes last.
- *Places.* While several clients come or are expected, none of them holds all places: a quarter, and at least one, is
  for the others. The same part is never for the background. A client that is alone may hold all. A crowd of requests
  that wait, or are refused, does not make it alone: only what it has had since somebody else came.
- *Room.* Where no more may wait, the client with the most requests that wait gives up its last one for a client with
  fewer. So nobody who waits with one request is refused because somebody else waits with many.

All of it is counted, nothing is timed. `client` says who asks: the caller of an engine sets it, in its task.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_ALONE = 100
"""After so many places that one client was given since another came, it is taken to be alone."""
_SPARE = 4
"""One place of so many is for the others."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, and whether somebody waits for the answer."""

    name: str = ""
    background: bool = False
    others: bool = False
    """Others are expected, even where none has come for long."""


_NOBODY = Client()
client: ContextVar[Client] = ContextVar("unbraid.client", default=_NOBODY)
"""Who the current task works for. Those who say nothing are one client."""


class QueueFull(Exception):
    """Too many requests wait. `own`: some of them are of this client, so that it should send fewer."""

    def __init__(self, own: bool) -> None:
        super().__init__("too many requests wait")
        self.own = own


class HeldPlace:
    """A place that a client holds until it leaves."""

    __slots__ = ("_client", "_queue")

    def __init__(self, queue: FairQueue, client: Client) -> None:
        self._queue: FairQueue | None = queue
        self._client = client

    def leave(self) -> None:
        """Give the place to whoever is next. May be called by any thread, and again."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue._leave(self._client)


class _Turn:
    """A request that waits."""

    __slots__ = ("client", "future", "granted", "loop")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.granted = False

    def wake(self, error: Exception | None = None) -> bool:
        """Have the request go on, or raise. False if its event loop is closed."""
        try:
            self.loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            return False
        return True

    def _settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class FairQueue:
    """Gives out so many places. Event loops and threads may share it.

    most_waiting: how many may wait, besides those in the background.
    shared: several clients are expected from the start.
    """

    def __init__(self, places: int, most_waiting: int, *, shared: bool = False) -> None:
        self._places, self._most = places, most_waiting
        self._expected = shared
        self._lock = threading.Lock()
        self._held: defaultdict[str, int] = defaultdict(int)
        self._taken = self._taken_in_background = 0
        self._lines: tuple[OrderedDict[str, deque[_Turn]], ...] = (OrderedDict(), OrderedDict())
        """The clients that wait, in the order of their turns: those whose answer is waited for, and the others."""
        self._previous: str | None = None
        self._in_a_row = _ALONE
        """How many places the same client was given since another one came."""
        self._closed: Exception | None = None

    @property
    def waiting(self) -> int:
        return sum(len(turns) for line in self._lines for turns in tuple(line.values()))

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def places(self) -> int:
        return self._places

    @places.setter
    def places(self, places: int) -> None:
        with self._lock:
            self._places = places
            self._grant()

    @asynccontextmanager
    async def place(self, client: Client) -> AsyncGenerator[None, None]:
        """One place, for as long as it lasts. Raises `QueueFull`."""
        place = await self.enter(client)
        try:
            yield
        finally:
            place.leave()

    def take(self, client: Client) -> HeldPlace:
        """A place at once. Raises `QueueFull` where the client would have to wait."""
        with self._lock:
            self._come(client)
            if self._lines[0] or self._lines[1] or not self._may_hold(client):
                raise QueueFull(own=self._held.get(client.name, 0) > 0)
            self._take(client)
        return HeldPlace(self, client)

    async def enter(self, client: Client) -> HeldPlace:
        """Wait for a place. Raises `QueueFull`."""
        with self._lock:
            turn = self._join(client)
        if turn is not None:
            try:
                await turn.future
            except BaseException:
                with self._lock:
                    self._quit(turn)
                raise
        return HeldPlace(self, client)

    def close(self, error: Exception) -> None:
        """Have all who wait, and all who come, raise `error`."""
        with self._lock:
            self._closed = error
            for line in self._lines:
                for turn in [turn for turns in line.values() for turn in turns]:
                    turn.wake(error)
                line.clear()

    # All below is called with the lock.

    def _join(self, client: Client) -> _Turn | None:
        """Take a place, or a turn to wait for."""
        self._come(client)
        if not any(self._lines) and self._may_hold(client):
            self._take(client)
            return None
        line = self._lines[client.background]
        turn = _Turn(client)
        line.setdefault(client.name, deque()).append(turn)
        self._grant()
        if turn.granted:
            return None
        if not client.background and sum(map(len, line.values())) > self._most:
            self._make_room(turn)
        return turn

    def _come(self, client: Client) -> None:
        if self._closed is not None:
            raise self._closed
        if self._previous not in (None, client.name):
            self._in_a_row = 0
        self._previous = client.name

    def _make_room(self, turn: _Turn) -> None:
        """One who waits has to go: the last of the client with the most, unless the newcomer has as many."""
        line, name = self._lines[False], turn.client.name
        greedy = max(line, key=lambda name: len(line[name]))
        if len(line[greedy]) <= len(line[name]):
            self._forget(turn)
            raise QueueFull(own=name in line or self._held.get(name, 0) > 0)
        last = line[greedy][-1]
        self._forget(last)
        last.wake(QueueFull(own=True))

    def _may_hold(self, client: Client) -> bool:
        if self._taken >= self._places:
            return False
        if self._places == 1:
            return True
        most = self._places - max(1, self._places // _SPARE)
        if client.background and self._taken_in_background >= most:
            return False
        shared = self._expected or client.others or self._in_a_row < _ALONE
        return not shared or self._held.get(client.name, 0) < most

    def _take(self, client: Client) -> None:
        self._taken += 1
        self._in_a_row += client.name == self._previous
        self._taken_in_background += client.background
        self._held[client.name] += 1

    def _leave(self, client: Client) -> None:
        with self._lock:
            self._give_back(client)
            self._grant()

    def _give_back(self, client: Client) -> None:
        self._taken -= 1
        self._taken_in_background -= client.background
        self._held[client.name] -= 1
        if not self._held[client.name]:
            del self._held[client.name]

    def _grant(self) -> None:
        """Give out what is free."""
        while (turn := self._next()) is not None:
            self._take(turn.client)
            turn.granted = True
            if not turn.wake():
                self._give_back(turn.client)

    def _next(self) -> _Turn | None:
        for line in self._lines:
            for name, turns in line.items():
                if self._may_hold(turns[0].client):
                    turn = turns[0]
                    self._forget(turn)
                    if name in line:
                        line.move_to_end(name)
                    return turn
        return None

    def _quit(self, turn: _Turn) -> None:
        """A request waits no longer: it was cancelled, perhaps in the moment in which its turn came."""
        if turn.granted:
            self._give_back(turn.client)
            self._grant()
        else:
            self._forget(turn)

    def _forget(self, turn: _Turn) -> None:
        line, name = self._lines[turn.client.background], turn.client.name
        turns = line.get(name)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del line[name]


class LoopTurns:
    """Has a few requests begin in each turn of the event loop, each client in its turn.

    Many that come at once would otherwise all be worked out before the first of them is answered, and what streams
    already would pause meanwhile. Who comes alone does not wait.
    """

    def __init__(self, each: Callable[[], int]) -> None:
        """each: how many may begin in a turn."""
        self._each = each
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = 0
        """How many have begun in this turn. If any have, or wait, `_next` is called in the next one."""
        self._line: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0

    def begin(self, name: Callable[[], str]) -> asyncio.Future[None] | None:
        """None where a request may begin now; otherwise what it has to wait for. `name` tells whose request it is."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._begun, self._line, self.waiting = loop, 0, OrderedDict(), 0
        if not self._begun:
            loop.call_soon(self._next)
        elif self._line or self._begun >= self._each():
            future = loop.create_future()
            self._line.setdefault(name(), deque()).append(future)
            self.waiting += 1
            return future
        self._begun += 1
        return None

    def _next(self) -> None:
        self._begun, most = 0, self._each()
        while self._line and self._begun < most:
            name, waiting = next(iter(self._line.items()))
            future = waiting.popleft()
            self.waiting -= 1
            self._line.move_to_end(name)
            if not waiting:
                del self._line[name]
            if not future.done():
                future.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next)
