"""HTTPS, with certificates that are made here."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from unbraid import UnbraidError
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.access.connections import Connections
from unbraid.server.access.door import Access, tls_context
from unbraid.server.access.timing import Patience
from unbraid.server.app import write_error

from ...support.certificates import Certificate, make, trusting
from ...support.running_server import RunningServer, service_of, serving
from ...support.serve_process import record, serve
from ...support.waiting import PATIENCE, wait_for
from .support import HEALTH, PATIENT, SOON, read_all, read_reply, send, status


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("mine"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("other"))


@pytest.mark.system
def test_the_command_serves_https(mine: Certificate, tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    flags = ("--replay", path, "--format", "qwen3", "--tls-cert", mine.certificate, "--tls-key", mine.locked_key)
    with serve(*flags, UNBRAID_TLS_KEY_PASSWORD="word") as process:
        assert process.url.startswith("https://127.0.0.1:")
        with httpx.Client(verify=trusting(mine), timeout=PATIENCE) as client:
            asks = {"messages": [{"role": "user", "content": "Hello!"}]}
            for _ in range(2):
                reply = client.post(f"{process.url}/chat/completions", json=asks).json()
            assert reply["choices"][0]["message"]["content"] == "Hi!"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{process.url}/models", timeout=PATIENCE)


def test_a_certificate_that_is_wrong_is_told_before_a_model_is_loaded() -> None:
    command = [sys.executable, "-m", "unbraid", "serve", "--model", "/no/such.gguf", "--tls-cert", "/no/cert.pem"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode != 0
    assert "--tls-cert /no/cert.pem cannot be read" in found.stderr
    assert "Traceback" not in found.stderr


# Files


def test_files_that_are_right(mine: Certificate) -> None:
    assert tls_context(None) is None
    assert tls_context(mine.certificate, mine.key) is not None
    assert tls_context(mine.both) is not None
    assert tls_context(mine.certificate, mine.locked_key, "word", mine.certificate) is not None


def test_files_that_are_wrong(mine: Certificate, other: Certificate, tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    wrong = [
        ((None, mine.key), "need --tls-cert"),
        ((None, None, None, mine.certificate), "need --tls-cert"),
        ((str(tmp_path / "none.pem"), mine.key), "none.pem cannot be read: No such file"),
        ((str(tmp_path), mine.key), "cannot be read: Is a directory"),
        ((mine.certificate, str(tmp_path / "none.pem")), "--tls-key .*none.pem cannot be read"),
        ((mine.certificate, other.key), "is not the key of the certificate"),
        ((mine.certificate,), "give the key as --tls-key"),
        ((str(text), mine.key), "no certificate and key in PEM"),
        ((mine.certificate, str(text)), "no certificate and key in PEM"),
        ((mine.certificate, mine.locked_key), "the password is missing for .*locked.pem"),
        ((mine.certificate, mine.locked_key, "no"), "the password is not the one of .*locked.pem"),
        ((mine.certificate, mine.key, None, str(text)), "--tls-client-ca .*text.pem has no certificate"),
    ]
    for given, said in wrong:
        with pytest.raises(UnbraidError, match=said):
            tls_context(*given)


# Connections


def running(patience: Patience, mine: Certificate, authority: str | None = None, most: int = 0) -> Access:
    tls = tls_context(mine.certificate, mine.key, None, authority)
    return Access(write_error=write_error, patience=patience, tls=tls, connections=Connections(0, most))


@pytest.fixture
def secure(mine: Certificate) -> Iterator[RunningServer]:
    with serving(service_of(ReplayEngine(lambda _: script("Hi.")), "qwen3"), access=running(PATIENT, mine)) as server:
        yield server


def connect(server: RunningServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def ask(server: RunningServer, context: ssl.SSLContext) -> None:
    """Since TLS 1.3, a client is told only when it reads that its certificate was refused."""
    with connect(server, context) as client:
        client.sendall(HEALTH)
        if not client.recv(1):
            raise ConnectionError("the server closed the connection")


def test_requests_one_after_the_other(secure: RunningServer, mine: Certificate) -> None:
    with connect(secure, trusting(mine)) as client:
        for _ in range(3):
            client.sendall(HEALTH)
            assert status(read_reply(client)) == 200
    wait_for(lambda: secure.access.connections.count == 0)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_refused(secure: RunningServer, mine: Certificate) -> None:
    context = trusting(mine)
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(secure, context)


def test_a_handshake_that_stops_is_counted_and_cut_off(mine: Certificate) -> None:
    access = running(replace(PATIENT, headers=SOON), mine)
    with serving(service_of(ReplayEngine(lambda _: script("Hi.")), "qwen3"), access=access) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(20)]
        for client in clients:
            client.sendall(b"\x16\x03\x01")
            assert read_all(client) == b""
            client.close()
        wait_for(lambda: access.connections.count == 0)


def test_handshakes_count_as_connections(mine: Certificate) -> None:
    access = running(PATIENT, mine, most=2)
    with serving(service_of(ReplayEngine(lambda _: script("Hi.")), "qwen3"), access=access) as server:
        waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(2)]
        wait_for(lambda: access.connections.count == 2)
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as more:
            assert read_all(more) == b""
        for client in waiting:
            client.close()
        wait_for(lambda: access.connections.count == 0)
        with connect(server, trusting(mine)) as client:
            client.sendall(HEALTH)
            assert status(read_reply(client)) == 200


@pytest.mark.parametrize("sent", [HEALTH, b"\x00" * 1000])
def test_what_is_no_tls(secure: RunningServer, mine: Certificate, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secure.port), timeout=PATIENCE) as client:
        send(client, sent)
        assert b"HTTP" not in read_all(client)
    wait_for(lambda: secure.access.connections.count == 0)


def test_clients_with_certificates(mine: Certificate, other: Certificate) -> None:
    access = running(PATIENT, mine, authority=other.certificate)
    with serving(service_of(ReplayEngine(lambda _: script("Hi.")), "qwen3"), access=access) as server:
        with connect(server, trusting(mine, other)) as client:
            client.sendall(HEALTH)
            assert status(read_reply(client)) == 200
        for shown in (None, mine):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(server, trusting(mine, shown))
        wait_for(lambda: access.connections.count == 0)
