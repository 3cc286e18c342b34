"""Parts of streams are written in their order, in the turn of the event loop in which they are ready."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.access.protocol import RequestLine
from unbraid.server.api.sse import stream_of


class Connection:
    """Stands for `RequestLine`: a client that may not read for a while."""

    def __init__(self, written: list[tuple[int, bytes]], number: int) -> None:
        self.paused = False
        self._written = written
        self._number = number

    def ready(self) -> bool:
        return not self.paused

    def write(self, part: bytes) -> None:
        self._written.append((self._number, part))


STREAMS = 3
ACTS = st.one_of(
    st.integers(0, STREAMS - 1),  # this stream has a part
    st.just("turn"),
    st.tuples(st.just("pause"), st.integers(0, STREAMS - 1), st.booleans()),
)


@given(st.lists(ACTS, max_size=40), st.integers(1, STREAMS))
def test_nothing_is_lost_or_late_or_out_of_order(acts: list[Any], count: int) -> None:
    async def run() -> None:
        written: list[tuple[int, bytes]] = []
        connections = [Connection(written, number) for number in range(count)]
        streams = [stream_of(cast(RequestLine, connection)).__enter__() for connection in connections]
        put: defaultdict[int, list[bytes]] = defaultdict(list)
        for at, act in enumerate(acts):
            if act == "turn":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert {number: [part for who, part in written if who == number] for number in put} == put
            elif isinstance(act, tuple):
                if act[1] < count:
                    connections[act[1]].paused = act[2]
            elif act < count:
                part = b"%d" % at
                if not streams[act].put(part):
                    assert connections[act].paused
                    written.append((act, part))  # as a message
                elif count == 1:
                    assert written[-1] == (act, part)  # at once
                put[act].append(part)
        for stream in streams:
            stream.__exit__()
        assert {number: [part for who, part in written if who == number] for number in put} == put

    asyncio.run(run())


def test_a_server_that_takes_only_messages() -> None:
    async def run() -> None:
        with stream_of(None) as stream, stream_of(None):
            assert not stream.put(b"a")

    asyncio.run(run())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_client_that_leaves_holds_up_nobody(run: Callable[[Any], None]) -> None:
    """Its connection is closed between the moment that a part is ready and the end of the turn."""

    async def leave() -> None:
        loop = asyncio.get_running_loop()
        ends = [socket.socketpair() for _ in range(2)]
        transports = [(await loop.create_connection(asyncio.Protocol, sock=ours))[0] for ours, _ in ends]
        cycles = [
            SimpleNamespace(
                flow=SimpleNamespace(write_paused=False),
                transport=transport,
                disconnected=False,
                response_complete=False,
                chunked_encoding=True,
            )
            for transport in transports
        ]
        streams = [stream_of(RequestLine(cast(Any, cycle))).__enter__() for cycle in cycles]
        assert all(stream.put(b"hello") for stream in streams)
        transports[0].abort()
        stays = ends[1][1]
        stays.setblocking(False)
        assert await asyncio.wait_for(loop.sock_recv(stays, 100), 60) == b"5\r\nhello\r\n"
        for transport, (_, theirs) in zip(transports, ends, strict=True):
            transport.abort()
            theirs.close()

    run(leave())
