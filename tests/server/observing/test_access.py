"""How each request ended: in the access line, in the metrics and in the spans, which must all say the same."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from unbraid.engines import EngineBusy, EngineError, EngineFailed
from unbraid.engines.replay import script
from unbraid.server.access.addresses import proxies_of
from unbraid.server.app import create_app
from unbraid.server.http import expire_all

from ...support import patient_http
from ...support.waiting import wait_for
from .conftest import HELLO, ROUTES, Log, Watched, logged

each_route = pytest.mark.parametrize("path", list(ROUTES))
whole_or_streamed = pytest.mark.parametrize("stream", [False, True])
CHAT = "/v1/chat/completions"
SECRET = "secret"
"""It stands in every prompt and in every output."""


def check(watched: Watched, log: Log, id: str, path: str, status: int, outcome: str) -> dict[str, Any]:
    """What the log, the metrics and the spans say of a request. Returns the access line."""
    line = log.access(id)
    assert (line["method"], line["path"], line["status"], line["outcome"]) == ("POST", path, status, outcome)
    assert (line["level"], line["client"], line["model"]) == ("info", "127.0.0.1", "played")
    assert line["ms"] > 0
    span, _ = watched.spans(id)
    assert line["trace_id"] == f"{span.context.trace_id:032x}"
    assert SECRET not in log.getvalue()
    assert SECRET not in repr(span.attributes)
    return line


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def counted(watched: Watched, path: str, status: int) -> float:
    return watched.metric("unbraid_requests_total", route=path, status=str(status))


@each_route
@whole_or_streamed
def test_complete(watched: Watched, log: Log, path: str, stream: bool) -> None:
    before = counted(watched, path, 200)
    id, response = watched.ask(path, stream=stream)
    assert response.status_code == 200
    line = check(watched, log, id, path, 200, "complete")
    assert (line["completion_tokens"], "error" in line, "sent" in line) == (len("The secret is out."), False, False)
    assert line.get("bytes") == (None if stream else len(response.content))
    wait_for(lambda: counted(watched, path, 200) == before + 1)
    span, (call,) = watched.spans(id)
    found = attributes(span)
    operation = "text_completion" if path == "/v1/completions" else "chat"
    assert (span.name, span.kind, span.status.status_code) == (f"{operation} played", SpanKind.SERVER, StatusCode.UNSET)
    assert found["gen_ai.operation.name"] == operation
    assert found["gen_ai.provider.name"] == found["gen_ai.system"] == "unbraid"
    assert found["gen_ai.request.model"] == found["gen_ai.response.model"] == "played"
    assert found["gen_ai.usage.output_tokens"] == line["completion_tokens"]
    assert found["gen_ai.usage.input_tokens"] == line["prompt_tokens"]
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert found["gen_ai.response.id"] in response.text
    assert (found["http.route"], found["http.response.status_code"]) == (path, 200)
    assert (found["server.address"], found["client.address"]) == ("127.0.0.1", "127.0.0.1")
    assert f":{found['server.port']}" in watched.server.url
    assert "error.type" not in found
    assert (call.name, call.kind) == ("text_completion played", SpanKind.INTERNAL)
    assert attributes(call)["gen_ai.provider.name"] == "replay"


def test_what_was_asked_for(watched: Watched, log: Log) -> None:
    chosen: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 3,
        "top_k": 5,
        "presence_penalty": 0.25,
    }
    id, _ = watched.ask(**chosen, n=3)
    span, calls = watched.spans(id)
    for name, value in chosen.items():
        assert attributes(span)[f"gen_ai.request.{name}"] == value
    assert attributes(span)["gen_ai.response.finish_reasons"] == ("stop",) * 3
    assert attributes(span)["gen_ai.usage.output_tokens"] == log.access(id)["completion_tokens"]
    assert len(calls) == 3


@each_route
@whole_or_streamed
@pytest.mark.parametrize("pieces", [0, 3])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(EngineFailed(f"it says {SECRET[::-1]}"), 502, "engine_failed"), (EngineBusy("full"), 503, "engine_busy")],
)
def test_failed(
    watched: Watched, log: Log, path: str, stream: bool, pieces: int, error: EngineError, status: int, code: str
) -> None:
    """A stream that fails midway was sent as 200, and is not counted as 200."""
    watched.script = script("The secret is out.").failing(pieces, error)
    before, good = counted(watched, path, status), counted(watched, path, 200)
    id, response = watched.ask(path, stream=stream)
    midway = stream and pieces > 0
    assert response.status_code == (200 if midway else status)
    line = check(watched, log, id, path, status, "failed")
    assert (line["error"], line.get("sent")) == (code, 200 if midway else None)
    wait_for(lambda: counted(watched, path, status) == before + 1)
    assert counted(watched, path, 200) == good
    span, (call,) = watched.spans(id)
    assert span.status.status_code == call.status.status_code == StatusCode.ERROR
    assert attributes(span)["error.type"] == code
    assert attributes(span)["http.response.status_code"] == response.status_code
    assert attributes(call)["error.type"] == type(error).__name__


@each_route
@whole_or_streamed
def test_client_left(watched: Watched, log: Log, path: str, stream: bool) -> None:
    watched.script = script("The secret is out.").hanging(3)
    before, good = counted(watched, path, 499), counted(watched, path, 200)
    aborted = watched.metric("unbraid_requests_aborted_total", route=path)
    id = watched.leave(path, stream=stream)
    line = check(watched, log, id, path, 499, "client left")
    assert line.get("sent") == (200 if stream else None)
    wait_for(lambda: counted(watched, path, 499) == before + 1)
    assert counted(watched, path, 200) == good
    assert watched.metric("unbraid_requests_aborted_total", route=path) == aborted + 1
    span, (call,) = watched.spans(id)
    assert attributes(span)["error.type"] == "client_left"
    assert attributes(call)["error.type"] == "cancelled"
    assert span.status.status_code == StatusCode.UNSET


def test_refused(watched: Watched, log: Log) -> None:
    """The client's fault is no error of the span."""
    id, response = watched.ask(temperature=-1)
    assert response.status_code == 400
    line = log.access(id)
    assert (line["status"], line["outcome"]) == (400, "failed")
    span, calls = watched.spans(id)
    assert (span.status.status_code, attributes(span)["error.type"], calls) == (StatusCode.UNSET, "400", [])


def test_no_such_route(watched: Watched, log: Log) -> None:
    before = counted(watched, "other", 404)
    patient_http.get(f"{watched.server.url}/{'x' * 1000}", headers={"x-request-id": "lost"})
    line = log.access("lost")
    assert (line["status"], len(line["path"])) == (404, 256)
    wait_for(lambda: counted(watched, "other", 404) == before + 1)
    assert watched.spans("lost")[0].name == "GET"


@each_route
def test_the_server_ends_first(watched: Watched, log: Log, path: str) -> None:
    watched.script = script("The secret is out.").hanging(3)
    before = len(watched.engine.requests)
    found: list[tuple[str, httpx.Response]] = []
    asking = threading.Thread(target=lambda: found.append(watched.ask(path, stream=True)))
    asking.start()
    wait_for(lambda: len(watched.engine.requests) > before)
    wait_for(lambda: watched.engine.load.running == 1)
    while asking.is_alive():  # it may not have begun to stream
        watched.server.call(expire_all)
        asking.join(0.05)
    ((id, _),) = found
    line = check(watched, log, id, path, 503, "failed")
    assert line["error"] == "shutdown"


def test_a_trace_is_continued(watched: Watched) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"x-request-id": "traced", "traceparent": parent, "tracestate": "a=1"}
    patient_http.post(watched.server.url + CHAT, json={"messages": HELLO}, headers=headers)
    span, (call,) = watched.spans("traced")
    assert span.parent is not None
    assert f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-01" == parent
    assert call.context.trace_id == span.context.trace_id == span.parent.trace_id
    assert dict(call.context.trace_state) == {"a": "1"}


def test_a_malformed_trace_is_replaced(watched: Watched) -> None:
    headers = {"x-request-id": "untraced", "traceparent": "00-zz", "tracestate": "a=1"}
    patient_http.post(watched.server.url + CHAT, json={"messages": HELLO}, headers=headers)
    span, _ = watched.spans("untraced")
    assert span.parent is None
    assert not span.context.trace_state


def test_text_lines(watched: Watched) -> None:
    with logged("text") as log:
        id, _ = watched.ask()
        wait_for(lambda: f"unbraid.access [{id}]" in log.getvalue())
    (line,) = [line for line in log.lines() if "unbraid.access" in line]
    assert f"INFO unbraid.access [{id}] POST {CHAT} 200 complete " in line
    assert "ms client=127.0.0.1 model=played bytes=" in line
    assert SECRET not in log.getvalue()


def test_nothing_is_kept_of_a_prompt_that_the_template_does_not_take(watched: Watched, log: Log) -> None:
    id, response = watched.ask(messages=[{"role": "user", "content": [{"type": "secret_kind"}]}])
    assert response.status_code == 400
    log.access(id)
    assert SECRET not in log.getvalue()


def test_what_fails_outside_of_the_handlers(watched: Watched, log: Log) -> None:
    """The reply is an error object with the id, and the log has the reason."""
    app = create_app(watched.service)

    class Broken(Exception):
        pass

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/broken/", headers={"x-request-id": "broken"})

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise Broken("it is broken")

    app.router.routes.clear()
    app.mount("/broken", broken)
    response = asyncio.run(ask())
    assert (response.status_code, response.headers["x-request-id"]) == (500, "broken")
    assert response.json()["error"]["code"] == "internal_error"
    assert log.access("broken")["status"] == 500
    assert "it is broken" in next(line for line in log.objects() if "exception" in line)["exception"]


@pytest.mark.parametrize(
    ("trusted", "told", "seen"),
    [
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7"),
        (("127.0.0.1",), "203.0.113.7, 127.0.0.1", "203.0.113.7"),
        (("127.0.0.1",), '1.2.3.4 model="x" status=200', "127.0.0.1"),
        ((), "203.0.113.7", "127.0.0.1"),
    ],
)
def test_the_client_behind_a_proxy(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, trusted: tuple[str, ...], told: str, seen: str
) -> None:
    """A proxy that is trusted says who the client is. What is no address is not believed."""
    monkeypatch.setattr(watched.service, "proxies", proxies_of(trusted))
    with logged("text") as log:
        headers = {"x-forwarded-for": told, "x-request-id": "proxied"}
        patient_http.get(f"{watched.server.url}/health", headers=headers)
        wait_for(lambda: "[proxied]" in log.getvalue())
    assert f"client={seen} bytes=15" in log.getvalue()
