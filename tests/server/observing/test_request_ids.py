"""`x-request-id`: taken or made, in every reply, in every line of the log, and passed on."""

from __future__ import annotations

import re
import socket
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from unbraid.engines.replay import script
from unbraid.engines.routing import Routing
from unbraid.engines.sglang import SGLangEngine
from unbraid.engines.vllm.server import VLLMEngine
from unbraid.server.app import create_app
from unbraid.server.observing.exchange import request_id
from unbraid.server.observing.otel import OpenTelemetry

from ...support import patient_http
from ...support.byte_vocabulary import END
from ...support.fake_servers import FakeSGLang, FakeVLLM
from ...support.in_loop import in_loop
from ...support.real_tokenizers import qwen3_huggingface
from ...support.running_server import service_of
from ...support.waiting import PATIENCE, until
from .conftest import HELLO, ORIGIN, ROUTES, Log, Watched

MADE = re.compile(r"req_[0-9a-f]{24}")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

JSON = {"Content-Type": "application/json"}


@given(st.one_of(st.none(), st.text(max_size=200)))
def test_an_id_is_taken_or_made(given_id: str | None) -> None:
    found = request_id(given_id)
    assert re.fullmatch(r"[!-~]{1,128}", found)
    assert found == given_id or MADE.fullmatch(found)


@pytest.mark.parametrize("taken", ["a", "x" * 128, "3fa85f64-5717-4562-b3fc-2c963f66afa6", "a/b:c=d\"'<>"])
def test_what_is_taken(taken: str) -> None:
    assert request_id(taken) == taken


@pytest.mark.parametrize("refused", ["", "x" * 129, "two words", "a\nb", "a\r\nX: y", "é", "\x1b[31m", "\x7f"])
def test_what_is_replaced(refused: str) -> None:
    assert MADE.fullmatch(request_id(refused))


@pytest.mark.parametrize("given_id", ["mine", None])
@pytest.mark.parametrize(
    ("method", "path", "status", "more"),
    [
        ("GET", "/health", 200, {}),
        ("GET", "/v1/models", 200, {}),
        ("GET", "/nowhere", 404, {}),
        ("PATCH", "/v1/models", 405, {}),
        ("POST", "/v1/chat/completions", 200, {"json": {"messages": HELLO}}),
        ("POST", "/v1/chat/completions", 200, {"json": {"messages": HELLO, "stream": True}}),
        ("POST", "/v1/chat/completions", 400, {"content": b"{", "headers": JSON}),
        ("POST", "/v1/chat/completions", 404, {"json": {"messages": HELLO, "model": "other"}}),
        ("POST", "/v1/chat/completions", 413, {"content": b"x" * 10_000, "headers": JSON}),
        ("POST", "/v1/messages", 200, {"json": ROUTES["/v1/messages"]}),
        ("POST", "/v1/messages", 400, {"json": {}}),
        ("OPTIONS", "/v1/models", 200, {"headers": {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}}),
        ("OPTIONS", "/v1/models", 403, {"headers": {"Origin": "https://x", "Access-Control-Request-Method": "GET"}}),
        ("GET", "/v1/models", 200, {"headers": {"Origin": ORIGIN}}),
    ],
)
def test_every_reply_has_it(
    watched: Watched, log: Log, method: str, path: str, status: int, more: dict[str, Any], given_id: str | None
) -> None:
    headers = {**more.get("headers", {}), **({} if given_id is None else {"x-request-id": given_id})}
    watched.service.max_body = 1000
    response = patient_http.request(method, watched.server.url + path, **{**more, "headers": headers})
    assert response.status_code == status, response.text
    (id,) = response.headers.get_list("x-request-id")
    assert id == given_id or (given_id is None and MADE.fullmatch(id))
    if path == "/v1/messages":
        assert response.headers["request-id"] == id
    if "Origin" in headers and headers["Origin"] == ORIGIN and method == "GET":
        assert response.headers["access-control-expose-headers"] == "*"


def test_a_wrong_key_and_a_server_that_is_down(watched: Watched) -> None:
    watched.service.api_keys = ("key",)
    id, response = watched.ask()
    assert (response.status_code, response.headers["x-request-id"]) == (401, id)
    watched.service.api_keys = ()
    watched.engine.down = True
    id, response = watched.ask()
    assert (response.status_code, response.headers["x-request-id"]) == (503, id)


def test_a_newline_in_a_path_stays_in_its_line(watched: Watched, log: Log) -> None:
    forged = "%0A2026-01-01T00:00:00.000Z%20INFO%20unbraid.access%20forged%1b[31m"
    response = patient_http.get(f"{watched.server.url}/v1/models/{forged}", headers={"x-request-id": "forging"})
    assert response.status_code == 404
    line = log.access("forging")
    assert line["path"].lower() == f"/v1/models/{forged}".lower()
    assert all(isinstance(each, dict) for each in log.objects())


def test_raw_bytes_in_an_id_do_no_harm(watched: Watched) -> None:
    with socket.create_connection(("127.0.0.1", int(watched.server.url.rpartition(":")[2])), PATIENCE) as connection:
        head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-request-id: \xff\xfe\x01evil\r\n\r\n"
        connection.sendall(head)
        reply = b"".join(iter(lambda: connection.recv(1000), b""))
    assert b"evil" not in reply


def test_all_lines_of_a_request_have_its_id(watched: Watched, log: Log) -> None:
    watched.script = script("x").failing(0)
    id, _ = watched.ask()
    log.access(id)
    lines = [line for line in log.objects() if line.get("request_id") == id]
    assert {line["logger"] for line in lines} == {"unbraid.access", "unbraid.server.errors"}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_engines_get_the_id_and_the_trace(kind: str, stream: bool) -> None:
    servers: dict[str, tuple[Any, Any]] = {"vllm": (FakeVLLM, VLLMEngine), "sglang": (FakeSGLang, SGLangEngine)}
    fake, engine = servers[kind]
    async with fake([*b"Hi", END]) as server:
        service = service_of(engine([server.url]), "qwen3", tokenizer=qwen3_huggingface())
        app = create_app(service)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE) as client:
            body = {"messages": HELLO, "n": 2, "stream": stream}
            sent = {"x-request-id": "mine", "traceparent": TRACEPARENT, "tracestate": "a=1"}
            assert (await client.post("/v1/chat/completions", json=body, headers=sent)).status_code == 200
            malformed = {"x-request-id": "with space", "traceparent": "garbage", "tracestate": "a=1"}
            reply = await client.post("/v1/chat/completions", json={**body, "n": 1}, headers=malformed)
        await service.models[0].engine.close()
        first, second, third = [asked.headers for asked in server.asked if asked.path == server.generates]
    for headers in (first, second):
        assert {name: headers.get(name) for name in sent} == sent
    assert third["x-request-id"] == reply.headers["x-request-id"] != "with space"
    assert "traceparent" not in third
    assert "tracestate" not in third


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_the_spans_of_engines_are_children_of_ours(stream: bool) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with FakeVLLM([*b"Hi", END]) as server:
        service = service_of(VLLMEngine([server.url], model="fake"), "qwen3", tokenizer=qwen3_huggingface())
        transport = httpx.ASGITransport(create_app(service, tracer=OpenTelemetry(provider)))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE) as client:
            headers = {"traceparent": TRACEPARENT, "tracestate": "a=1"}
            body = {"messages": HELLO, "stream": stream}
            assert (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
        await service.models[0].engine.close()
        (asked,) = [asked for asked in server.asked if asked.path == server.generates]
        port = int(server.url.rpartition(":")[2])
    call, request = exporter.get_finished_spans()
    assert call.kind is SpanKind.CLIENT
    assert call.parent is not None
    assert call.parent.span_id == request.context.span_id
    trace = TRACEPARENT.split("-")[1]
    assert asked.headers["traceparent"] == f"00-{trace}-{call.context.span_id:016x}-01"
    assert asked.headers["tracestate"] == "a=1"
    found = dict(call.attributes or {})
    assert (found["server.address"], found["server.port"]) == ("127.0.0.1", port)
    assert found["gen_ai.provider.name"] == "vllm"
    assert found["gen_ai.request.model"] == "fake"


@in_loop
async def test_checks_in_the_background_belong_to_no_request() -> None:
    """They begin with the first request, and are not part of it."""
    async with FakeVLLM([*b"Hi", END]) as server:
        engine = VLLMEngine([server.url], routing=Routing(check_interval=0.01))
        transport = httpx.ASGITransport(create_app(service_of(engine, "qwen3")))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE) as client:
            headers = {"x-request-id": "mine", "traceparent": TRACEPARENT}
            await client.post("/v1/chat/completions", json={"messages": HELLO}, headers=headers)
        await until(lambda: any(asked.path == "/health" for asked in server.asked))
        await engine.close()
        checks = [asked.headers for asked in server.asked if asked.path == "/health"]
    assert not any("x-request-id" in headers or "traceparent" in headers for headers in checks)
