"""A server with small limits, and clients that are no HTTP clients: they send the bytes that a test says.

Nothing here measures time. A test waits for what the server does (a reply, the end of the connection), and the settings
are so small that it comes soon, or so large that it could not come in a lifetime.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.access.connections import Connections
from unbraid.server.access.door import Access
from unbraid.server.access.timing import Pace, Patience
from unbraid.server.app import write_error
from unbraid.server.observing.middleware import observed

from ...support.running_server import RunningServer, service_of, serving
from ...support.waiting import PATIENCE

CHAT = "/v1/chat/completions"
SOON = 0.2
"""Seconds for a limit that is to be reached."""
NEVER = 100_000.0
"""Seconds for one that is not."""
PATIENT = Patience(headers=NEVER, keep_alive=NEVER, sending=NEVER, farewell=NEVER)
HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]}).encode()
JSON = "Content-Type: application/json\r\n"


def head(path: str = CHAT, headers: str = JSON, length: int | None = None, method: str = "POST") -> bytes:
    """The beginning of a request, up to its body."""
    announced = "" if length is None else f"Content-Length: {length}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{announced}\r\n".encode()


HEALTH = head("/health", "", method="GET")
ASK = head(length=len(HELLO)) + HELLO


class Limited:
    """A server with limits of its own, whose engine plays what the test says."""

    def __init__(self, server: RunningServer, engine: ReplayEngine) -> None:
        self.server = server
        self.engine = engine

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)

    def healthy(self) -> bool:
        """Whether somebody else is answered."""
        with self.connect() as client:
            client.sendall(HEALTH)
            return status(read_reply(client)) == 200

    @property
    def connections(self) -> Connections:
        return self.server.access.connections


@contextmanager
def limited(
    patience: Patience = PATIENT,
    connections: Connections | None = None,
    *,
    said: Any = None,
    pace: Pace | None = None,
    **settings: Any,
) -> Iterator[Limited]:
    """A server that runs, with these limits. `said` is what its engine plays."""
    engine = ReplayEngine(lambda _: said or script("Hi there."))
    service = service_of(engine, "qwen3", **{"body_seconds": NEVER, **settings})
    write = observed(write_error, service.metrics, service.proxies)
    access = Access(write_error=write, patience=patience, connections=connections or Connections(), pace=pace or Pace())
    access.connections.count_refused = service.metrics.count_refused
    with serving(service, access=access) as server:
        yield Limited(server, engine)


def read_reply(client: socket.socket) -> bytes:
    """One reply: its headers, and as much of a body as they announce. Less where the connection ends before."""
    found = b""
    while b"\r\n\r\n" not in found:
        data = receive(client)
        if not data:
            return found
        found += data
    headers, _, body = found.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
    )
    while len(body) < length:
        data = receive(client)
        if not data:
            break
        body += data
    return headers + b"\r\n\r\n" + body


def read_all(client: socket.socket) -> bytes:
    """Everything until the server ends the connection, in whatever way."""
    found = b""
    while data := receive(client):
        found += data
    return found


def receive(client: socket.socket) -> bytes:
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""


def send(client: socket.socket, data: bytes) -> bool:
    """Send, unless the server has ended the connection."""
    try:
        client.sendall(data)
    except ConnectionError:
        return False
    return True


def status(reply: bytes) -> int:
    assert reply.startswith(b"HTTP/1.1 "), reply
    return int(reply[9:12])


def error(reply: bytes) -> dict[str, Any]:
    """The error object of a reply."""
    told = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]
    assert isinstance(told, dict)
    return told
