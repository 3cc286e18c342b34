"""Large bodies: refused before they are read where that is possible, and read at a pace that leaves time for others."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.access.timing import FREE, Pace, PacedFlow
from unbraid.server.http import body_memory

from ...support.examples import examples
from ...support.in_loop import in_loop
from ...support.waiting import until, wait_for
from .support import ASK, HEALTH, HELLO, JSON, PATIENT, SOON, error, head, limited, read_all, read_reply, send, status

BRIEF = replace(PATIENT, farewell=SOON)
OBJECTS = b'{"messages": [], "documents": [' + b'{"a":[]},' * 400_000
LARGE = 60_000_000
PLAIN = "Content-Type: text/plain\r\n"


# Replies before the end


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (head(length=LARGE) + OBJECTS, 413),
        (head(headers=JSON + "Transfer-Encoding: chunked\r\n") + b"%x\r\n" % LARGE + OBJECTS, 413),
        (head(length=100_000_000), 413),
        (head(headers=PLAIN, length=LARGE), 415),
        (head(headers=PLAIN + "Transfer-Encoding: chunked\r\n"), 415),
        (head(headers=JSON + "Content-Encoding: gzip\r\n", length=LARGE), 415),
        (head("/v1/none", length=LARGE), 404),
    ],
    ids=["values", "chunks", "announced", "type", "type of chunks", "packed", "no route"],
)
def test_a_body_that_is_refused_need_not_be_there(sent: bytes, code: int) -> None:
    """The rest never comes. The client is told, and the connection ends."""
    with limited(BRIEF) as server, server.connect() as client:
        send(client, sent)
        reply = read_all(client)
        assert status(reply) == code
        assert b"\r\nconnection: close\r\n" in reply
        wait_for(lambda: server.connections.count == 0)


@pytest.mark.parametrize("headers", [PLAIN, JSON])
def test_a_client_that_sends_all_before_it_reads_is_told(headers: str) -> None:
    """As most do. What it sends is thrown away until it has read."""
    with limited() as server, server.connect() as client:
        client.sendall(head(headers=headers, length=len(OBJECTS)) + OBJECTS)
        assert status(read_all(client)) in (413, 415)


def test_a_client_that_sends_on_is_cut_off() -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(head(headers=PLAIN, length=10**12))
        while send(client, b" " * 1_000_000):
            pass
        wait_for(lambda: server.connections.count == 0)
        assert server.healthy()


def test_who_asks_before_sending_a_body_is_refused_at_once() -> None:
    """`Expect: 100-continue`. The client cannot say any more whether a body follows, so the connection ends."""
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(head(headers=PLAIN + "Expect: 100-continue\r\n", length=3))
        reply = read_reply(client)
        assert status(reply) == 415
        assert b"\r\nconnection: close\r\n" in reply
        send(client, HEALTH)
        assert read_all(client) == b""


def test_who_asks_before_sending_a_body_and_may() -> None:
    with limited() as server, server.connect() as client:
        for _ in range(2):
            client.sendall(head(headers=JSON + "Expect: 100-continue\r\n", length=len(HELLO)))
            assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(HELLO)
            assert b"connection: close" not in (reply := read_reply(client))
            assert status(reply) == 200


def test_a_large_body_that_is_taken_leaves_the_connection_open() -> None:
    body = b" " * 1_000_000 + HELLO
    with limited() as server, server.connect() as client:
        for _ in range(2):
            client.sendall(head(length=len(body)) + body)
            assert status(read_reply(client)) == 200


def test_what_follows_a_request_and_is_no_http_does_not_cost_its_answer() -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(ASK + b"\x00" * 10)
        assert status(read_all(client)) == 200


def test_a_broken_body_is_told_in_the_dialect() -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(head("/v1/messages", JSON + "Transfer-Encoding: chunked\r\n") + b"zz\r\n")
        reply = read_all(client)
        assert status(reply) == 400
        assert b"request_id" in reply
        assert error(reply)["type"] == "invalid_request_error"


# The pace


@examples(4)
@given(
    st.lists(
        st.tuples(st.floats(0, 0.1), st.lists(st.integers(1, 300_000), min_size=1, max_size=9)), min_size=1, max_size=50
    )
)
def test_all_together_keep_to_the_rate(turns: list[tuple[float, list[int]]]) -> None:
    """Connections that send again as soon as they are read again. No time passes here."""
    pace, now, sent = Pace(1e6), 0.0, 0
    last = 0.0
    for seconds, sizes in turns:
        now = max(now + seconds, last)
        begun = now
        for size in sizes:
            sent += size
            last = now + pace.wait(size, now)
        assert last - begun <= sum(sizes) / 1e6 + 0.005 + 1e-9, "nobody waits for longer than what was sent is worth"
    assert sent / 1e6 <= last + 0.005 + 1e-9


def test_small_bodies_do_not_wait_for_large_ones() -> None:
    """A megabyte has to take ten days here, and others are answered."""
    pace = Pace(1.0)
    with limited(pace=pace) as server, server.connect() as client:
        client.sendall(head(length=LARGE))
        sending = threading.Thread(target=send, args=(client, b" " * LARGE))
        sending.start()
        wait_for(lambda: pace._free > 0)
        for _ in range(3):
            with server.connect() as other:
                other.sendall(ASK)
                assert status(read_reply(other)) == 200
        with server.connect() as other:
            body = b" " * (FREE - 1000) + HELLO
            other.sendall(head(length=len(body)) + body)
            assert status(read_reply(other)) == 200
        assert sending.is_alive(), "it is read"
        client.shutdown(socket.SHUT_RDWR)
        sending.join()


class Transport:
    reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


@in_loop
async def test_a_connection_is_read_when_neither_reason_is_left() -> None:
    transport = Transport()
    flow = PacedFlow(transport)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    flow.hold(1e6, loop)
    flow.hold(0.001, loop)
    flow.resume_reading()
    assert not transport.reading, "it is held"
    await until(lambda: transport.reading)
    flow.hold(0.001, loop)
    flow.pause_reading()
    await until(lambda: flow._held is None)
    assert not transport.reading, "nobody has taken what came"
    flow.resume_reading()
    assert transport.reading


# The memory of all


def test_many_large_bodies_at_once_are_refused_and_small_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come slowly, and each of them is small enough."""
    monkeypatch.setattr(body_memory, "most", 1_000_000)
    with limited() as server, server.connect() as first, server.connect() as second:
        first.sendall(head(length=LARGE) + b" " * 400_000)
        wait_for(lambda: body_memory.size >= 400_000)
        second.sendall(head(length=LARGE) + b" " * 400_000)
        reply = read_all(second)
        assert status(reply) == 429
        assert error(reply)["code"] == "rate_limit_exceeded"
        with server.connect() as other:
            other.sendall(ASK)
            assert status(read_reply(other)) == 200
        first.close()
        wait_for(lambda: body_memory.size == 0)
