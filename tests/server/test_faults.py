"""What a client is told when a request is bad, or the engine fails it; and what happens when the client leaves."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from unbraid.engines import EngineBusy, EngineDown, EngineError, EngineFailed, PromptTooLong, Unsupported
from unbraid.engines.http.refusals import refusal
from unbraid.engines.replay import ReplayEngine, Script, script

from ..support import patient_http
from ..support.running_server import RunningServer, service_of, serving
from ..support.waiting import PATIENCE, wait_for

CHAT = "/v1/chat/completions"
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello!"}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


class Playing:
    """A server on an engine that plays what the test says."""

    def __init__(self) -> None:
        self.script = script("Hi there.")
        self.engine = ReplayEngine(lambda _: self.script)
        self.server = RunningServer(service_of(self.engine, "qwen3"))

    def post(self, body: Any, path: str = CHAT, **more: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **more.pop("headers", {})}
        return patient_http.post(self.server.url + path, content=content, headers=headers, **more)

    def chat(self, **more: Any) -> httpx.Response:
        return self.post({"messages": HELLO, **more})


@pytest.fixture(scope="module")
def running() -> Iterator[Playing]:
    playing = Playing()
    playing.server.start()
    yield playing
    playing.server.stop()


@pytest.fixture
def playing(running: Playing) -> Iterator[Playing]:
    running.script = script("Hi there.")
    yield running
    running.engine.down = False
    running.server.service.draining = False
    running.server.service.api_keys = ()


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, which is always of the same shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    kind = "invalid_request_error" if status < 500 else "server_error"
    assert error["type"] == ("rate_limit_error" if status == 429 else kind)
    return dict(error)


# Bad input


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"messages": "\\ud800"', "not JSON"),
        (b"[]", "must be a JSON object, not a list"),
        (b"null", "must be a JSON object, not null"),
        (b"{}", "messages is missing"),
    ],
    ids=repr,
)
def test_no_request_at_all(playing: Playing, body: bytes, said: str) -> None:
    assert said in refused(playing.post(body), 400)["message"]


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"messages": []}, "messages", "nothing to answer"),
        ({"messages": "hello"}, "messages", "expected array"),
        ({"messages": [1]}, "messages[0]", "expected object"),
        ({"messages": [{}]}, "messages[0].role", "must be one of system, developer, user"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "not 'robot'"),
        ({"messages": [*HELLO, {"role": "user"}]}, "messages[1]", "has no content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", "a string or a list of parts"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "messages[0].content[0]",
            "'image_url' are not supported here",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function", "object"),
        ({"temperature": "hot"}, "temperature", "expected float | null, got str"),
        ({"temperature": 3}, "temperature", "<= 2.0"),
        ({"top_p": -0.1}, "top_p", ">= 0.0"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens", "expected int | null, got float"),
        ({"n": 0}, "n", ">= 1"),
        ({"n": 1000}, "n", "<= 128"),
        ({"stream": "yes"}, "stream", "expected bool | null, got str"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "expected bool | null"),
        ({"stop": [1]}, "stop[0]", "expected str, got int"),
        ({"stop": ["a", ""]}, "stop", "empty"),
        ({"seed": 2**70}, "seed", "<= 9223372036854775807"),
        ({"logit_bias": {"the": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"1": 1000}}, "logit_bias", "<= 100.0"),
        ({"top_logprobs": 3}, "top_logprobs", "`logprobs: true`"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "<= 20"),
        ({"tools": {}}, "tools", "expected array"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", 'only tools of type "function" and "custom"'),
        ({"tools": [{"type": "custom"}]}, "tools[0].name", "has no name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "has no name"),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"$ref": "#/no"}}}
                ]
            },
            "tools[0].function.parameters",
            "tool 'f': parameters.$ref: '#/no' leads nowhere",
        ),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice", "not 'maybe'"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "fly"}}},
            "tool_choice",
            "'fly', which is not among the tools: 'look_up'",
        ),
        ({"response_format": {"type": "xml"}}, "response_format", "not {'type': 'xml'}"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/no"}}}},
            "response_format.json_schema.schema",
            "",
        ),
        ({"max_token": 3}, "max_token", "did you mean max_tokens?"),
        ({"temprature": 3}, "temprature", "did you mean temperature?"),
        ({"functions": [{}]}, "functions", "give `tools`"),
        ({"guided_json": {}}, "guided_json", "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities", "tts_output"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs", "expected object | null, got int"),
        ({"continue_final_message": True}, "continue_final_message", "assistant"),
        ({"messages": [{**HELLO[0], "tool_calls": [{}]}]}, "messages[0].tool_calls", "only a message of the assistant"),
        ({"messages": [{"role": "assistant", "content": "x", "thinking": {}}]}, "messages[0].thinking", "a string"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty", ">= 0.01"),
        ({"tools": [TOOL] * 600}, "tools", "there are 600, and 512 are the most"),
        ({"thinking_token_budget": -2}, "thinking_token_budget", ">= -1"),
        ({"reasoning": {"max_tokens": "x"}}, "reasoning.max_tokens", "got str"),
        ({"reasoning": {"summary": "auto"}}, "reasoning", "unknown field summary"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_fields_that_are_wrong(playing: Playing, more: dict[str, Any], param: str, said: str) -> None:
    error = refused(playing.chat(**more), 400)
    assert said in error["message"]
    assert error["param"] == param


def test_a_user_message_as_clients_dump_it(playing: Playing) -> None:
    assert playing.chat(messages=[{**HELLO[0], "tool_calls": None, "name": None}]).status_code == 200


@pytest.mark.parametrize("nested", ["chat_template_kwargs", "messages"])
def test_a_request_that_nests_too_deeply(playing: Playing, nested: str) -> None:
    deep: Any = {}
    for _ in range(800):
        deep = {"a": deep}
    more = (
        {"chat_template_kwargs": deep} if nested == "chat_template_kwargs" else {"messages": [{**HELLO[0], "x": deep}]}
    )
    assert "nest" in refused(playing.chat(**more), 400)["message"]


def test_a_flood_of_unknown_fields(playing: Playing) -> None:
    error = refused(playing.chat(**{f"mx_tok_{at}": 1 for at in range(20_000)}), 400)
    assert "20000 fields that are not known, such as mx_tok_0" in error["message"]


@pytest.mark.parametrize("body", [{"prompt": [[1]] * 20_000}, {"prompt": ["a"] * 65, "n": 2}])
def test_too_many_prompts(playing: Playing, body: dict[str, Any]) -> None:
    assert refused(playing.post(body, "/v1/completions"), 400)["param"] == "prompt"


def test_a_body_that_is_announced_too_large(playing: Playing) -> None:
    """It is refused at once, and not waited for."""
    port = int(playing.server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(f"{HEAD}Content-Length: 1000000000\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_fields_of_other_servers_have_no_effect(playing: Playing, caplog: pytest.LogCaptureFixture) -> None:
    response = playing.chat(store=True, service_tier="auto", num_ctx=4096, verbosity="low", functions=None)
    assert response.status_code == 200
    assert "num_ctx" in caplog.text


def test_null_is_as_if_it_were_not_there(playing: Playing) -> None:
    optional = ["temperature", "tools", "tool_choice", "stop", "n", "stream", "max_tokens", "response_format", "user"]
    assert playing.chat(**dict.fromkeys(optional)).status_code == 200


def test_an_unknown_model(playing: Playing) -> None:
    error = refused(playing.chat(model="gpt-9"), 404)
    assert error["code"] == "model_not_found"
    assert "'replay'" in error["message"]
    refused(patient_http.get(f"{playing.server.url}/v1/models/gpt-9"), 404)


def test_no_such_route(playing: Playing) -> None:
    assert "POST /v1/chat/completions" in refused(playing.post({}, "/v1/chats"), 404)["message"]
    refused(patient_http.get(playing.server.url + CHAT), 405)


def test_a_body_that_is_too_large(playing: Playing) -> None:
    playing.server.service.max_body = 1000
    try:
        refused(playing.chat(user="x" * 2000), 413)
    finally:
        playing.server.service.max_body = 64_000_000


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}])
def test_a_key_that_is_missing_or_wrong(playing: Playing, headers: dict[str, str]) -> None:
    playing.server.service.api_keys = ("another", "right")
    if headers.get("Authorization") == "secret":
        headers = {"Authorization": "Basic right"}
    body = {"messages": HELLO}
    assert refused(playing.post(body, headers=headers), 401)["code"] == "invalid_api_key"
    assert playing.post(body, headers={"Authorization": "Bearer right"}).status_code == 200
    for path in ("/health", "/metrics", "/version", "/openapi.json", "/ready"):
        assert patient_http.get(playing.server.url + path).status_code == 200


# Engines that fail


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineDown("it is down", retry_after=7.2), 503, "engine_down"),
        (EngineBusy("its queue is full", retry_after=7.2), 503, "engine_busy"),
        (refusal(429, "slow down", 7.2), 429, "rate_limit_exceeded"),
        (EngineFailed("it broke"), 502, "engine_failed"),
        (EngineError("it says 401"), 502, "engine_failed"),
        (PromptTooLong("a prompt of 9 tokens does not fit"), 400, "context_length_exceeded"),
        (Unsupported("it cannot do that: leave it out"), 400, "unsupported"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failing_before_the_first_token(
    playing: Playing, error: EngineError, status: int, code: str, stream: bool
) -> None:
    """A status of its own, even where a stream was asked for."""
    playing.script = Script((), error)
    response = playing.chat(stream=stream)
    found = refused(response, status)
    assert found["code"] == code
    assert found["message"] == str(error)
    assert response.headers.get("retry-after") == ("8" if status in (429, 503) else None)


@pytest.mark.parametrize(
    ("path", "asked", "field", "param"),
    [
        (CHAT, {"messages": HELLO}, None, "messages"),
        (CHAT, {"messages": HELLO, "max_tokens": 9}, "prompt", "messages"),
        (CHAT, {"messages": HELLO, "max_tokens": 9}, "max_tokens", "max_tokens"),
        (CHAT, {"messages": HELLO, "max_completion_tokens": 9}, "max_tokens", "max_completion_tokens"),
        (CHAT, {"messages": HELLO, "tools": [TOOL]}, "constraint", "tools"),
        (CHAT, {"messages": HELLO, "response_format": {"type": "json_object"}}, "constraint", "response_format"),
        (CHAT, {"messages": HELLO}, "audio", "messages"),
        (CHAT, {"messages": HELLO}, "logit_bias", "logit_bias"),
        ("/v1/completions", {"prompt": "x"}, "constraint", "response_format"),
        ("/v1/completions", {"prompt": "x"}, None, "prompt"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 9}, "max_tokens", "max_tokens"),
    ],
)
def test_what_an_engine_refuses_is_named_as_the_client_named_it(
    playing: Playing, path: str, asked: dict[str, Any], field: str | None, param: str
) -> None:
    for kind in (PromptTooLong, Unsupported) if field else (PromptTooLong,):
        playing.script = Script((), kind("it does not fit", field=field))
        assert refused(playing.post(asked, path), 400)["param"] == param


def test_an_engine_that_is_down(playing: Playing) -> None:
    playing.engine.down = True
    assert playing.chat().headers["retry-after"] == "1"
    assert patient_http.get(f"{playing.server.url}/ready").status_code == 503
    assert patient_http.get(f"{playing.server.url}/health").status_code == 200


def test_an_unexpected_error_is_not_told_but_logged(playing: Playing, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> Script:
        raise RuntimeError("a secret")

    playing.engine._scripts = broken
    try:
        error = refused(playing.chat(), 500)
    finally:
        playing.engine._scripts = lambda _: playing.script
    assert "secret" not in error["message"]
    assert "a secret" in caplog.text


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_failing_in_the_middle_of_a_stream(playing: Playing, path: str) -> None:
    """What came before stays, then an error frame, then the end."""
    playing.script = script("Hi there.").failing(4)
    response = playing.post(
        {"messages": HELLO, "stream": True} if path == CHAT else {"prompt": "x", "stream": True}, path
    )
    assert response.status_code == 200
    *frames, error, done, rest = response.text.split("\n\n")
    assert rest == ""
    assert done == "data: [DONE]"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_failed"
    pieces = [json.loads(frame.removeprefix("data: "))["choices"][0] for frame in frames]
    assert "".join(piece.get("text") or piece.get("delta", {}).get("content", "") for piece in pieces) == "Hi t"


def test_failing_in_the_middle_of_one_of_several_choices(playing: Playing) -> None:
    """All choices end, and the client learns why."""
    scripts = iter([script("Hi there."), script("Hi there.").failing(2), script("Hi").hanging(1)])
    playing.engine._scripts = lambda _: next(scripts)
    try:
        response = playing.chat(stream=True, n=3)
    finally:
        playing.engine._scripts = lambda _: playing.script
    assert response.text.endswith("\n\ndata: [DONE]\n\n")
    assert '"code":"engine_failed"' in response.text


def test_failing_in_the_middle_of_a_whole_reply(playing: Playing) -> None:
    playing.script = script("Hi there.").failing(4)
    refused(playing.chat(), 502)


# Clients that leave, and a server that is to end


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("pieces", [0, 3])
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves(playing: Playing, stream: bool, pieces: int, n: int) -> None:
    """The engine's work is aborted, at whatever point it is."""
    playing.script = script("Hi there.").hanging(pieces)
    before, aborted = len(playing.engine.requests), playing.engine.aborted
    body = json.dumps({"messages": HELLO, "stream": stream, "n": n}).encode()
    port = int(playing.server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        head = f"{HEAD}Content-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_for(lambda: len(playing.engine.requests) == before + n)
        if stream and pieces:
            assert connection.recv(100)
    wait_for(lambda: playing.engine.aborted == aborted + n)
    assert playing.engine.load.running == 0


def test_a_client_that_leaves_inside_of_its_body(playing: Playing, caplog: pytest.LogCaptureFixture) -> None:
    metrics = playing.server.service.metrics
    aborted = metrics.aborted.labels(CHAT)
    before = aborted._value.get()
    wait_for(lambda: metrics.in_flight == 0)
    port = int(playing.server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
        wait_for(lambda: metrics.in_flight == 1)
    wait_for(lambda: aborted._value.get() == before + 1)
    assert "should not have happened" not in caplog.text


def test_draining(playing: Playing) -> None:
    playing.server.service.draining = True
    response = playing.chat()
    refused(response, 503)
    assert response.headers["retry-after"] == "1"
    assert patient_http.get(f"{playing.server.url}/ready").status_code == 503


class Hanging(ReplayEngine):
    """One that is there and says nothing."""

    async def check(self) -> None:
        await asyncio.Event().wait()


def test_an_engine_that_does_not_say_whether_it_is_there() -> None:
    with serving(service_of(Hanging([]), "hermes")) as server:
        error = refused(patient_http.get(f"{server.url}/ready"), 503)
        assert "does not say" in error["message"]
        assert patient_http.get(f"{server.url}/health").status_code == 200


def test_browsers_of_other_sites() -> None:
    engine = ReplayEngine([script("Hi")], repeat=True)
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with serving(service_of(engine, "hermes"), ("https://app.example",)) as server:
        assert (
            patient_http.options(server.url + CHAT, headers=asks).headers["access-control-allow-origin"]
            == asks["Origin"]
        )
        other = {**asks, "Origin": "https://evil.example"}
        assert "access-control-allow-origin" not in patient_http.options(server.url + CHAT, headers=other).headers
        unknown = {**asks, "Access-Control-Request-Method": "MELT"}
        for path, anthropic in ((CHAT, False), ("/v1/messages", True)):
            refusal = patient_http.options(server.url + path, headers=unknown)
            assert refusal.status_code == 400
            assert "method" in refusal.json()["error"]["message"]
            assert (refusal.json().get("type") == "error") == anthropic
            assert refusal.headers["access-control-allow-origin"] == asks["Origin"]
