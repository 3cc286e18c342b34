"""Parts of streams are written in their order, in the turn of the event loop in which they are ready."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.access.protocol import PARTS, Parts
from unbraid.server.api.outbox import stream_of


class Connection:
    """Stands for `Parts`: a client that may not read for a while."""

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
        streams = [stream_of({PARTS: cast(Parts, connection)}).__enter__() for connection in connections]
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
        with stream_of({}) as stream, stream_of({}):
            assert not stream.put(b"a")

    asyncio.run(run())
