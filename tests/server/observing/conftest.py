"""A server that is watched: its log as lines, its spans in memory, its metrics by name."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.observing.logs import Format, logging_as
from unbraid.server.observing.otel import OpenTelemetry

from ...support import patient_http
from ...support.running_server import RunningServer, service_of
from ...support.waiting import PATIENCE, wait_for

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "What is the secret?"}]
ORIGIN = "https://app.example"
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "What is the secret?"},
    "/v1/responses": {"input": "What is the secret?"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 100},
}
"""Every route that generates, with a request to it."""


class Log(io.StringIO):
    """What was logged. Lines come from several threads."""

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def access(self, id: str) -> dict[str, Any]:
        """The access line of a request, which comes after the reply."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [each for each in self.objects() if each["logger"] == "unbraid.access"]
            found[:] = [each for each in found if each["request_id"] == id]
            return bool(found)

        wait_for(look)
        (line,) = found
        return line


class Watched:
    """A server on an engine that plays what the test says."""

    def __init__(self) -> None:
        self.script = script("The secret is out.")
        self.engine = ReplayEngine(lambda _: self.script, model="played")
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.service = service_of(self.engine, "qwen3", names=("played",))
        self.server = RunningServer(self.service, (ORIGIN,), OpenTelemetry(provider))
        self._ids = iter(range(10**6))

    def ask(self, path: str = "/v1/chat/completions", **more: Any) -> tuple[str, httpx.Response]:
        """Send a request under an id of its own. Returns both."""
        id = f"test-{threading.get_ident()}-{next(self._ids)}"
        body = {**ROUTES[path], **more}
        return id, patient_http.post(self.server.url + path, json=body, headers={"x-request-id": id})

    def leave(self, path: str = "/v1/chat/completions", **more: Any) -> str:
        """Send a request, and leave when its work has begun. Returns its id."""
        id, body = f"left-{next(self._ids)}", json.dumps({**ROUTES[path], **more}).encode()
        before = len(self.engine.requests)
        with socket.create_connection(("127.0.0.1", int(self.server.url.rpartition(":")[2])), PATIENCE) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nx-request-id: {id}\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            wait_for(lambda: len(self.engine.requests) > before)
            if more.get("stream"):
                assert connection.recv(100)
        return id

    def spans(self, id: str) -> tuple[ReadableSpan, list[ReadableSpan]]:
        """The span of a request, and those below it."""
        key = "http.response.header.x-request-id"

        def of_request() -> list[ReadableSpan]:
            return [span for span in self._exporter.get_finished_spans() if (span.attributes or {}).get(key) == (id,)]

        wait_for(lambda: bool(of_request()))
        (span,) = of_request()
        below = [
            each
            for each in self._exporter.get_finished_spans()
            if each.parent is not None and each.parent.span_id == span.context.span_id
        ]
        return span, below

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric now."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in patient_http.get(f"{self.server.url}/metrics").text.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name and wanted == set(filter(None, (found[2] or "").split(","))):
                return float(found[3])
        return 0.0


@pytest.fixture(scope="session")
def watched_server() -> Iterator[Watched]:
    watched = Watched()
    watched.server.start()
    yield watched
    watched.server.stop()


@pytest.fixture
def watched(watched_server: Watched) -> Iterator[Watched]:
    yield watched_server
    watched_server.script = script("The secret is out.")
    watched_server.engine.down = False
    watched_server.service.api_keys = ()
    watched_server.service.max_body = 64_000_000


@contextmanager
def logged(format: Format = "json", level: str = "info") -> Iterator[Log]:
    log = Log()
    with logging_as(format, level, log):
        yield log


@pytest.fixture
def log() -> Iterator[Log]:
    """What is logged at info, as JSON."""
    with logged() as log:
        yield log
