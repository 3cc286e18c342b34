"""Clients that send slowly, or not at all, or do not read: each is cut off, and nobody else waits for it."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from unbraid.engines.replay import script
from unbraid.server.http import SLOWEST, BodyProgress

from ...support.waiting import wait_for
from .support import (
    ASK,
    CHAT,
    HEALTH,
    HELLO,
    JSON,
    PATIENT,
    SOON,
    error,
    head,
    limited,
    read_all,
    read_reply,
    send,
    status,
)

HASTY_HEADERS = replace(PATIENT, headers=SOON, farewell=SOON)
HASTY_BODIES: dict[str, Any] = {"patience": replace(PATIENT, farewell=SOON), "body_seconds": SOON}


def trickle(client: socket.socket, piece: bytes) -> None:
    """Send one piece after the other, until the server ends it."""
    client.settimeout(0.01)
    while send(client, piece):
        try:
            if not client.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
        break
    client.settimeout(None)


# Headers


@pytest.mark.parametrize("begun", [b"P", b"POST /v1", b"POST / HTTP/1.1\r\nHost: x\r\nA: b", b"\r\n"])
def test_headers_that_stop(begun: bytes) -> None:
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        client.sendall(begun)
        reply = read_all(client)
        assert status(reply) == 408
        assert "--header-seconds" in error(reply)["message"]
        assert b"connection: close" in reply


def test_headers_that_trickle_in() -> None:
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nX: ")
        trickle(client, b"a")
        assert status(read_all(client)) == 408


def test_lines_before_a_request_do_not_help() -> None:
    """HTTP lets empty lines come before a request. They are not waited for again and again."""
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        client.sendall(HEALTH)
        assert status(read_reply(client)) == 200
        trickle(client, b"\r\n")
        assert status(read_all(client)) == 408


def test_an_error_speaks_the_dialect_as_far_as_it_is_known() -> None:
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nanthropic-version: 2023-06-01\r\nX: ")
        assert error(read_all(client))["type"] == "invalid_request_error"
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nanthropic-version: 2023-06-01\r\nX: ")
        assert b"request_id" in read_all(client)


def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    """Browsers open connections ahead of time, and would take a reply for that of their next request."""
    with limited(HASTY_HEADERS) as server, server.connect() as client:
        assert read_all(client) == b""


def test_a_connection_between_requests() -> None:
    with limited(replace(PATIENT, keep_alive=SOON, farewell=SOON)) as server, server.connect() as client:
        client.sendall(HEALTH)
        assert status(read_reply(client)) == 200
        assert read_all(client) == b""


def test_many_connections_that_trickle_cost_the_others_nothing() -> None:
    """They wait for a hundred thousand seconds, and the others are answered meanwhile."""
    with limited() as server:
        slow = [server.connect() for _ in range(300)]
        for number, client in enumerate(slow):
            client.sendall(b"POST / HTTP/1.1\r\nX: " if number % 2 else head(length=1000) + b"{")
        wait_for(lambda: server.connections.count == 300)
        assert server.healthy()
        with server.connect() as client:
            client.sendall(ASK)
            assert status(read_reply(client)) == 200
        for client in slow:
            client.close()
        wait_for(lambda: server.connections.count == 0)


# Bodies


@pytest.mark.parametrize("begun", [b"", b"{", HELLO[:-1]])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_bodies_that_stop(begun: bytes, path: str) -> None:
    with limited(**HASTY_BODIES) as server, server.connect() as client:
        client.sendall(head(path, length=len(HELLO)) + begun)
        reply = read_all(client)
        assert status(reply) == 408
        assert "--body-seconds" in error(reply)["message"]
        assert (b"request_id" in reply) == (path == "/v1/messages")
        metrics = server.server.service.metrics.text().decode()
        assert f'unbraid_requests_total{{route="{path}",status="408"}} 1.0' in metrics


def test_bodies_that_trickle_in() -> None:
    """Each piece comes in time, and all of them too slowly."""
    with limited(**HASTY_BODIES) as server, server.connect() as client:
        client.sendall(head(length=1_000_000))
        trickle(client, b" ")
        assert status(read_all(client)) == 408


@pytest.mark.parametrize("piece", [b"1;" + b"a" * 10, b"1\r\n \r\n"], ids=["extensions", "chunks"])
def test_bodies_in_chunks_that_trickle_in(piece: bytes) -> None:
    with limited(**HASTY_BODIES) as server, server.connect() as client:
        client.sendall(head(headers=JSON + "Transfer-Encoding: chunked\r\n"))
        trickle(client, piece)
        assert status(read_all(client)) in (400, 408)


def test_trailers_that_trickle_in() -> None:
    with limited(**HASTY_BODIES) as server, server.connect() as client:
        client.sendall(head(headers=JSON + "Transfer-Encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\nX: ")
        trickle(client, b"a")
        assert status(read_all(client)) == 408


def test_a_form_that_stops() -> None:
    """Forms are read elsewhere than JSON."""
    with limited(**HASTY_BODIES) as server, server.connect() as client:
        kind = "Content-Type: multipart/form-data; boundary=x\r\n"
        client.sendall(
            head("/v1/audio/transcriptions", kind, 1000) + b'--x\r\nContent-Disposition: form-data; name="a"'
        )
        assert status(read_all(client)) in (404, 408)


def test_a_body_behind_a_reply_is_not_waited_for() -> None:
    """The route needs no body, so the reply comes at once. What was announced may come for a moment."""
    with limited(replace(PATIENT, farewell=SOON)) as server, server.connect() as client:
        client.sendall(head("/health", "", 1_000_000, method="GET"))
        assert status(read_reply(client)) == 200
        trickle(client, b" ")
        assert read_all(client) == b""


def test_a_body_behind_a_reply_that_comes_leaves_the_connection_open() -> None:
    with limited() as server, server.connect() as client:
        for _ in range(3):
            client.sendall(head(headers="Content-Type: text/plain\r\n", length=3))
            assert status(read_reply(client)) == 415
            client.sendall(b"abc" + HEALTH)
            assert status(read_reply(client)) == 200


def test_a_body_that_is_large_may_take_its_time() -> None:
    """25 MB over a line of 8 kB a second is more than 50 minutes. Sixty thousand bytes in pieces of 20 kB."""
    with limited() as server, server.connect() as client:
        body = b" " * 60_000 + HELLO
        client.sendall(head(length=len(body)))
        for at in range(0, len(body), 20_000):
            client.sendall(body[at : at + 20_000])
        assert status(read_reply(client)) == 200


@pytest.mark.parametrize(
    ("rate", "size", "arrives"),
    [(8000, 25_000_000, True), (SLOWEST, 25_000_000, True), (SLOWEST // 2, 25_000_000, False), (1, 1000, False)],
)
def test_progress(rate: int, size: int, arrives: bool) -> None:
    """A piece each second, for as long as it takes. No time passes here."""
    progress, received = BodyProgress(30.0), 0
    while received < size and progress.left() >= 1.0:
        progress.came(rate, 1.0)
        received += rate
    assert (received >= size) == arrives


def test_progress_has_no_credit_for_silence() -> None:
    progress = BodyProgress(30.0)
    progress.came(50_000_000, 1.0)
    assert progress.left() == 30.0
    assert BodyProgress(0).left() > 1e9


# Clients that do not read


def test_a_client_that_stops_reading() -> None:
    """Its stream is cut off, and the engine's work for it ends."""
    endless = script("word " * 5_000_000, chunks=500)
    with limited(replace(PATIENT, sending=SOON), said=endless) as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.server.port))
            body = HELLO[:-1] + b', "stream": true}'
            client.sendall(head(length=len(body)) + body)
            wait_for(lambda: server.engine.aborted == 1)
        wait_for(lambda: server.connections.count == 0)
        assert server.healthy()


def test_a_client_that_does_not_read_a_last_reply() -> None:
    """The connection is to close, and waits for what was written. It does not wait for ever."""
    long = script("word " * 2_000_000, chunks=100)
    with limited(replace(PATIENT, sending=SOON), said=long) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.server.port))
        client.sendall(head(headers=JSON + "Connection: close\r\n", length=len(HELLO)) + HELLO)
        wait_for(lambda: len(server.engine.requests) == 1)
        wait_for(lambda: server.connections.count == 0)


def test_a_client_that_closes_one_half_has_left() -> None:
    """There is no telling it from one that has gone."""
    with limited(said=script("Hi.").hanging(0)) as server, server.connect() as client:
        client.sendall(ASK)
        wait_for(lambda: len(server.engine.requests) == 1)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b""
        wait_for(lambda: server.engine.aborted == 1)
        assert server.connections.count == 0
