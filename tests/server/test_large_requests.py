"""A large body is read and worked out in a worker process. That makes no difference to the reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from unbraid.server.planning import pickling
from unbraid.server.planning.planner import LARGE, Planner
from unbraid.server.storage.store import Store

from ..support import patient_http
from ..support.attacks import HELLO, Body, tool
from ..support.scripted_server import WEATHER, Scripted

OBJECTS: list[Body] = [{"a": []}] * 60_000
CALLS = {"tools": [WEATHER], "tool_choice": "required"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
REQUESTS: dict[str, tuple[str, Body]] = {
    "chat": ("/chat/completions", {"messages": HELLO}),
    "chat, streamed": (
        "/chat/completions",
        {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}},
    ),
    "chat, running usage": (
        "/chat/completions",
        {
            "messages": HELLO,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
        },
    ),
    "chat, calls": ("/chat/completions", {"messages": HELLO, **CALLS, "n": 2}),
    "chat, JSON": ("/chat/completions", {"messages": HELLO, "response_format": SCHEMA, "logprobs": True}),
    "chat, metadata": (
        "/chat/completions",
        {"messages": HELLO, "metadata": {"a": "b"}, "stop": ["x"], "model": "qwen"},
    ),
    "chat, no model": ("/chat/completions", {"messages": HELLO, "model": "none"}),
    "chat, wrong": ("/chat/completions", {"messages": HELLO, "temperature": 9}),
    "chat, wrong tools": ("/chat/completions", {"messages": HELLO, "tools": [tool({"type": "nothing"})]}),
    "completions": ("/completions", {"prompt": "x", "echo": True, "stop": ["x"], "n": 2}),
    "completions, streamed": (
        "/completions",
        {"prompt": ["x", "y"], "stream": True, "stream_options": {"include_usage": True}},
    ),
    "completions, wrong": ("/completions", {"prompt": {}}),
    "messages": ("/messages", {"messages": HELLO, "max_tokens": 9}),
    "messages, thinking": (
        "/messages",
        {"messages": HELLO, "max_tokens": 9, "system": "x", "thinking": {"type": "adaptive", "display": "omitted"}},
    ),
    "messages, streamed": ("/messages", {"messages": HELLO, "max_tokens": 9, "stream": True}),
    "messages, wrong": ("/messages", {"messages": HELLO}),
    "counting": ("/messages/count_tokens", {"messages": HELLO}),
    "responses": ("/responses", {"input": "x", "instructions": "y", "metadata": {"a": "b"}}),
    "responses, items": ("/responses", {"input": HELLO, "tools": [{"type": "function", "name": "f"}], "stream": True}),
    "responses, wrong": ("/responses", {"input": 3}),
    "parsing": ("/parse", {"text": "<think>\nHm.\n</think>\n\nYes."}),
    "tokens": ("/tokenize", {"prompt": "a b c"}),
    "no object": ("/chat/completions", [1]),  # type: ignore[dict-item]
}
REFUSED: dict[str, tuple[str, bytes]] = {
    path: (path, json.dumps({**body, "documents": OBJECTS}).encode()[:-1])
    for path, body in (
        ("/chat/completions", {"messages": HELLO}),
        ("/completions", {"prompt": "x"}),
        ("/responses", {"input": "x"}),
        ("/messages", {"messages": HELLO, "max_tokens": 9}),
        ("/messages/count_tokens", {"messages": HELLO}),
        ("/parse", {"text": "x"}),
        ("/tokenize", {"prompt": "x"}),
    )
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    scripted = Scripted()
    model = scripted.service.models[0].model
    model.syntax, model.loose_schemas = "gbnf", True
    scripted.service.planner = Planner(2, 60.0)
    scripted.service.planner.add(model)
    scripted.service.store = Store(Path(tmp_path_factory.mktemp("store")) / "responses", 1)
    scripted.say("<think>\nHm.\n</think>\n\nHello.")
    scripted.server.start()
    scripted.server.call(scripted.service.planner.warm)
    yield scripted
    scripted.server.stop()


def post(running: Scripted, path: str, body: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return patient_http.post(f"{running.server.url}/v1{path}", content=body, headers=headers)


def told(response: httpx.Response) -> tuple[int, str]:
    """A reply without what differs each time: ids, times, seals."""
    text = re.sub(r'"(chatcmpl|cmpl|msg|resp|rs|fc|call|item|req|toolu)[-_]\w+"', '"id"', response.text)
    text = re.sub(r'"(created\w*|completed_at)":[\d.]+', r'"\1":0', text)
    text = re.sub(r'"(signature|encrypted_content|data)":"[^"]+"', r'"\1":""', text)
    return response.status_code, text


@pytest.mark.parametrize("name", REQUESTS)
def test_a_body_that_is_large_is_answered_as_a_small_one(running: Scripted, name: str) -> None:
    path, asked = REQUESTS[name]
    body = json.dumps(asked).encode()
    small, large = post(running, path, body), post(running, path, b" " * LARGE + body)
    assert told(large) == told(small)
    assert set(large.headers) == set(small.headers)


@pytest.mark.parametrize("path", REFUSED)
def test_no_large_body_is_decoded_by_the_server_itself(
    running: Scripted, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter would do nothing else meanwhile, in a thread or not."""
    decoded = sizes_of(monkeypatch, msgspec.json, "decode")
    response = post(running, *REFUSED[path])
    assert response.status_code == 400, response.text
    assert "not JSON" in response.text
    assert all(size <= LARGE for size in decoded), decoded


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/chat/completions", {"messages": HELLO, "documents": OBJECTS}),
        (
            "/messages/count_tokens",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 9_000}]},
        ),
    ],
)
def test_what_a_plan_was_made_of_does_not_come_back(
    running: Scripted, path: str, asked: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = sizes_of(monkeypatch, pickling, "unpacked")
    response = post(running, path, json.dumps(asked).encode())
    assert response.status_code == 200, response.text
    assert received
    assert all(size <= LARGE for size in received), received


def sizes_of(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[int]:
    """The sizes of what a function of this process is given from now on."""
    sizes: list[int] = []
    function = getattr(place, name)

    def counted(data: bytes, **more: Any) -> Any:
        sizes.append(len(data))
        return function(data, **more)

    monkeypatch.setattr(place, name, counted)
    return sizes
