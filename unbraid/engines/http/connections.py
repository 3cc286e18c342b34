"""ConnectionPool to one server: how many requests share a pool, and how many connections are opened at a time.

httpx looks at all connections of a pool for every request. So pools are small, and there are as many as are needed.

When an engine fails, hundreds of requests turn to another one at once. Opening a connection for each takes seconds of
our own time, which must not count as the server's. So a few are opened at a time, and the others wait for their turn.
If one of them cannot reach the server, those behind it do not try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from ...patience import PatientLimit

_MOST_REQUESTS = 32
"""Most requests that share a pool."""
_AT_A_TIME = 16
"""ConnectionPool that are opened together."""


@dataclass
class _Pool:
    client: httpx.AsyncClient
    requests: int = 0


class _Turn:
    """The right to open a connection."""

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns = turns
        self._has_begun = False

    async def begin(self) -> None:
        await self._turns.acquire()
        self._has_begun = True

    def end(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self._turns.release()


class ConnectionPool:
    """All connections to one server.

    make: makes a client with a pool of its own.
    seconds: how long the server may take to take a connection.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._pools: list[_Pool] = []
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._failure: httpx.TransportError | None = None
        """The last failure to reach the server."""

    @contextmanager
    def pool(self) -> Iterator[httpx.AsyncClient]:
        """A client whose pool has room for one more request."""
        pool = next((pool for pool in self._pools if pool.requests < _MOST_REQUESTS), None)
        if pool is None:
            pool = _Pool(self._make())
            self._pools.append(pool)
        pool.requests += 1
        try:
            yield pool.client
        finally:
            pool.requests -= 1

    async def send(self, client: httpx.AsyncClient, request: httpx.Request, *, at_once: bool = False) -> httpx.Response:
        """Status and headers of the answer. The server may drop a kept connection just when it is used; then the
        request is sent again, on a new one. If the connection was new, the request itself may have broken it, and is
        not sent again.

        at_once: do not wait for a turn.
        """
        turn, connected = _Turn(self._turns), False
        limit = PatientLimit()

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            nonlocal connected
            if event.startswith("connection.connect_"):
                connected = True
                limit.begin(self._seconds)
            if event.startswith("http11."):  # there is a connection
                limit.end()
                turn.end()

        failure = self._failure
        if not at_once:
            await turn.begin()
        request.extensions["trace"] = trace
        try:
            if self._failure is not None and self._failure is not failure:
                raise self._failure.with_traceback(None)
            try:
                async with limit:
                    return await self._sent(client, request, lambda: connected)
            except TimeoutError as error:
                raise httpx.ConnectTimeout("it takes no connection") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._failure = error
            raise
        finally:
            turn.end()
            del request.extensions["trace"]  # the body is read without it

    @staticmethod
    async def _sent(client: httpx.AsyncClient, request: httpx.Request, is_new: Callable[[], bool]) -> httpx.Response:
        try:
            return await client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if is_new():
                raise
            return await client.send(request, stream=True)

    async def close(self) -> None:
        for pool in self._pools:
            await pool.client.aclose()
