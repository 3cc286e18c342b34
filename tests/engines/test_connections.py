"""Connections to a server: a few are opened at a time, pools stay small, and nobody tries in vain behind another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from unbraid.engines.http.connections import _AT_A_TIME, _MOST_REQUESTS, ConnectionPool

REQUESTS = 5 * _MOST_REQUESTS


class Network(httpx.AsyncBaseTransport):
    """Stands for a network on which connections take as long as the test says."""

    def __init__(self) -> None:
        self.opening = self.most = self.tried = 0
        self.answered = asyncio.Event()
        self.connected = asyncio.Event()
        self.error: Exception | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tried += 1
        self.opening += 1
        self.most = max(self.most, self.opening)
        trace = request.extensions["trace"]
        try:
            await trace("connection.connect_tcp.started", {})
            await self.connected.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.opening -= 1
        await trace("http11.send_request_headers.started", {})
        await self.answered.wait()
        return httpx.Response(200, stream=_Nothing())


class _Nothing(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        return
        yield b""


def on(network: Network) -> tuple[ConnectionPool, list[httpx.AsyncClient]]:
    made: list[httpx.AsyncClient] = []

    def make() -> httpx.AsyncClient:
        made.append(httpx.AsyncClient(transport=network, base_url="http://engine"))
        return made[-1]

    return ConnectionPool(make, 60.0), made


async def ask(connections: ConnectionPool, **options: Any) -> int:
    with connections.pool() as client:
        response = await connections.send(client, client.build_request("POST", "/"), **options)
        await response.aclose()
        return response.status_code


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_few_are_opened_at_a_time() -> None:
    async def run() -> None:
        network = Network()
        connections, pools = on(network)
        asked = [asyncio.create_task(ask(connections)) for _ in range(REQUESTS)]
        await turns()
        assert network.opening == _AT_A_TIME
        network.connected.set()
        network.answered.set()
        assert await asyncio.gather(*asked) == [200] * REQUESTS
        assert network.most <= _AT_A_TIME
        assert len(pools) == REQUESTS // _MOST_REQUESTS
        await ask(connections)
        assert len(pools) == REQUESTS // _MOST_REQUESTS

    asyncio.run(run())


def test_a_connection_that_stands_is_nobody_elses_turn() -> None:
    """Answers may take minutes."""

    async def run() -> None:
        network = Network()
        network.connected.set()
        connections, _ = on(network)
        asked = [asyncio.create_task(ask(connections)) for _ in range(REQUESTS)]
        while network.tried < REQUESTS:
            await asyncio.sleep(0)
        network.answered.set()
        await asyncio.gather(*asked)

    asyncio.run(run())


def test_who_waits_shares_the_failure_of_who_tried() -> None:
    async def run() -> None:
        network = Network()
        network.error = httpx.ConnectTimeout("nobody there")
        connections, _ = on(network)
        asked = [asyncio.create_task(ask(connections)) for _ in range(REQUESTS)]
        await turns()
        network.connected.set()
        for each in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(each, httpx.ConnectTimeout)
        assert network.tried == _AT_A_TIME
        network.error = None
        network.answered.set()
        assert await ask(connections) == 200  # who comes later tries again

    asyncio.run(run())


def test_a_check_does_not_wait() -> None:
    async def run() -> None:
        network = Network()
        connections, _ = on(network)
        asked = [asyncio.create_task(ask(connections)) for _ in range(REQUESTS)]
        await turns()
        check = asyncio.create_task(ask(connections, at_once=True))
        await turns()
        assert network.opening == _AT_A_TIME + 1
        network.connected.set()
        network.answered.set()
        await asyncio.gather(check, *asked)

    asyncio.run(run())


def test_who_leaves_gives_up_the_turn() -> None:
    async def run() -> None:
        network = Network()
        connections, _ = on(network)
        asked = [asyncio.create_task(ask(connections)) for _ in range(2 * _AT_A_TIME)]
        await turns()
        for each in asked[:_AT_A_TIME]:
            each.cancel()
        await turns()
        assert network.opening == _AT_A_TIME
        network.connected.set()
        network.answered.set()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        assert await asyncio.gather(*asked[_AT_A_TIME:]) == [200] * _AT_A_TIME

    asyncio.run(run())
