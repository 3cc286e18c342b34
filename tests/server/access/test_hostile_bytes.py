"""Bytes that are no HTTP, or too much of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.replay import script
from unbraid.server.access.addresses import proxies_of
from unbraid.server.access.protocol import MOST_HEADER_BYTES, MOST_HEADERS
from unbraid.server.access.timing import Patience

from ...support.examples import examples
from ...support.waiting import wait_for
from .support import (
    ASK,
    CHAT,
    HEALTH,
    HELLO,
    JSON,
    PATIENT,
    SOON,
    Limited,
    error,
    head,
    limited,
    read_all,
    read_reply,
    send,
    status,
)

BRIEF = replace(PATIENT, farewell=SOON)
HASTY = Patience(headers=SOON, keep_alive=SOON, sending=SOON, farewell=SOON)
CHUNKED = JSON + "Transfer-Encoding: chunked\r\nx-request-id: mine\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS handshake
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\n bad: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 1000,
    ],
)
def test_what_is_no_http_is_answered_with_an_error_object(sent: bytes) -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(sent)
        reply = read_all(client)
        assert status(reply) == 400
        assert error(reply)["code"] == "invalid_http"
        wait_for(lambda: server.connections.count == 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * 2 * MOST_HEADER_BYTES,
        b"GET /" + b"a" * 2 * MOST_HEADER_BYTES,
        b"GET / HTTP/1.1\r\n" + b"a" * 2 * MOST_HEADER_BYTES,
        b"GET / HTTP/1.1\r\nX: " + b"a" * MOST_HEADER_BYTES + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * MOST_HEADERS + b"\r\n",
        head(headers=JSON + "Transfer-Encoding: chunked\r\n") + b"0\r\n" + b"a: b\r\n" * MOST_HEADER_BYTES,
        head(headers=JSON + "Transfer-Encoding: chunked\r\n") + b"1;" + b"a" * 16 * MOST_HEADER_BYTES,
    ],
    ids=["value", "path", "name", "whole", "number", "trailers", "chunk"],
)
def test_headers_that_are_too_large(sent: bytes) -> None:
    with limited(BRIEF) as server, server.connect() as client:
        send(client, sent)
        reply = read_all(client)
        assert status(reply) == 431
        assert error(reply)["code"] == "headers_too_large"


@pytest.mark.parametrize(
    ("sent", "code", "line", "route"),
    [
        (b"\x00", 400, "- - 400 failed", "other"),
        (
            b"GET /none?secret HTTP/1.1\r\nx-request-id: mine\r\n" + b"a: b\r\n" * 2 * MOST_HEADERS,
            431,
            "- /none 431",
            "other",
        ),
        (head(headers=CHUNKED) + b"?\r\n", 400, f"POST {CHAT} 400", CHAT),
        (head(headers=CHUNKED) + b"2\r\n{}\r\n" + b"1;" + b"a" * 2 * MOST_HEADER_BYTES, 431, f"POST {CHAT} 431", CHAT),
    ],
    ids=["no HTTP", "headers", "body", "extensions"],
)
def test_what_is_refused_early_is_told_as_all_else(
    sent: bytes, code: int, line: str, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "unbraid.access")
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(HEALTH.replace(b"Host", b"x-request-id: before\r\nHost"))
        read_reply(client)
        client.sendall(sent)
        reply = read_all(client)
        assert status(reply) == code
        id = re.search(rb"x-request-id: (\S+)", reply)
        assert id is not None
        assert id[1] == b"mine" if b"mine" in sent else id[1].startswith(b"req_")
        wait_for(lambda: len(caplog.records) > 1)
        assert [line in record.getMessage() for record in caplog.records] == [False, True], caplog.text
        counted = server.server.service.metrics.text().decode()
        assert f'unbraid_requests_total{{route="{route}",status="{code}"}} 1.0' in counted
        assert "secret" not in caplog.text


def test_headers_that_never_end_are_not_kept() -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        while send(client, b"X: " + b"a" * 1000 + b"\r\n"):
            pass
        wait_for(lambda: server.connections.count == 0)
        assert server.healthy()


def test_headers_as_large_as_clients_have_them() -> None:
    with limited() as server, server.connect() as client:
        client.sendall(head("/health", "X: " + "a" * (MOST_HEADER_BYTES - 100) + "\r\n", method="GET"))
        assert status(read_reply(client)) == 200


def test_trailers_are_no_headers() -> None:
    """They come when the request has been let in, and could say who sent it."""
    with limited(api_keys=("key",)) as server, server.connect() as client:
        chunked = head(headers=JSON + "Transfer-Encoding: chunked\r\n")
        client.sendall(chunked + b"0\r\nAuthorization: Bearer key\r\n\r\n")
        assert status(read_reply(client)) == 401


# Several requests at once


def test_a_request_ahead_of_the_reply_is_left_for_the_client_to_send_again() -> None:
    with limited() as server, server.connect() as client:
        client.sendall(ASK + ASK + b"garbage")
        reply = read_all(client)
        assert reply.count(b"HTTP/1.1 200") == 1
        assert b"connection: close" in reply
        assert len(server.engine.requests) == 1


def test_garbage_behind_a_stream_does_not_get_into_it() -> None:
    with limited(said=script("one two three", chunks=3)) as server, server.connect() as client:
        body = HELLO[:-1] + b', "stream": true}'
        client.sendall(head(length=len(body)) + body + b"\x00garbage\r\n\r\n")
        reply = read_all(client)
        assert reply.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("behind", [ASK, b"\x00\x01garbage"], ids=["a request", "garbage"])
def test_a_client_that_sends_more_and_leaves_is_seen_to_leave(behind: bytes) -> None:
    """uvicorn stops reading then, and the engine would go on for nobody."""
    with limited(said=script("Hi.").hanging(0)) as server:
        with server.connect() as client:
            client.sendall(ASK)
            wait_for(lambda: len(server.engine.requests) == 1)
            client.sendall(behind)
        wait_for(lambda: server.engine.aborted == 1)
        wait_for(lambda: server.connections.count == 0)


def test_a_flood_behind_a_request_ends_the_connection() -> None:
    with limited(said=script("Hi.").hanging(0)) as server, server.connect() as client:
        client.sendall(ASK + ASK)
        while send(client, ASK * 100):
            pass
        wait_for(lambda: server.connections.count == 0)
        assert server.healthy()


def test_empty_lines_behind_a_request_are_nothing() -> None:
    """Old clients send one."""
    with limited() as server, server.connect() as client:
        for _ in range(3):
            client.sendall(ASK + b"\r\n")
            assert status(read_reply(client)) == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_that_there_is_not(protocol: str) -> None:
    """The request is answered as if it had not asked. Java's client asks for HTTP/2 by default."""
    with limited() as server, server.connect() as client:
        upgrade = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n"
        client.sendall(head(headers=JSON + upgrade, length=len(HELLO)) + HELLO)
        reply = read_reply(client)
        assert status(reply) == 200
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == "Hi there."
    with limited() as server, server.connect() as client:
        client.sendall(head("/health", upgrade, method="GET"))
        assert status(read_reply(client)) == 200


def test_a_body_in_wrong_chunks_gives_the_request_up() -> None:
    with limited(BRIEF) as server, server.connect() as client:
        client.sendall(head(headers=JSON + "Transfer-Encoding: chunked\r\n") + b"zz\r\n")
        assert status(read_all(client)) == 400


PIECES = st.sampled_from(
    [
        ASK,
        HEALTH,
        HEALTH[:-2],
        ASK[:-5],
        b"\r\n",
        b"\x00",
        b"GET ",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"Connection: close\r\n\r\n",
        b"Upgrade: h2c\r\nConnection: upgrade\r\n",
        b"Expect: 100-continue\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    ]
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Limited]:
    with limited(HASTY, body_seconds=SOON) as server:
        yield server


@examples(4)
@given(st.lists(PIECES | st.binary(max_size=20), max_size=8))
def test_any_bytes_end_in_replies_or_in_nothing(shared: Limited, sent: list[bytes]) -> None:
    """And the connection ends, with nothing left of it."""
    with shared.connect() as client:
        for piece in sent:
            if not send(client, piece):
                break
        reply = read_all(client)
        assert not reply or reply.startswith(b"HTTP/1.1 ")
        assert b" 500 " not in reply
    wait_for(lambda: shared.connections.count == 0)
    assert not shared.connections.waiting


def test_a_refusal_names_the_client_behind_a_proxy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unbraid.access")
    with limited(BRIEF, proxies=proxies_of(["127.0.0.1"])) as server, server.connect() as client:
        client.sendall(b"GET /none HTTP/1.1\r\nX-Forwarded-For: 9.9.9.9\r\n" + b"a: b\r\n" * 2 * MOST_HEADERS)
        assert status(read_all(client)) == 431
        wait_for(lambda: "client=9.9.9.9" in caplog.text)
