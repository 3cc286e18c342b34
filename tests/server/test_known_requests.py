"""A request that differs from one before in its messages alone is read and planned as if none had come before."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from typing import Any

import pytest

from unbraid.caching import LruCache
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.api import bodies, chat
from unbraid.server.api.bodies import OPENAI_FIELDS, read, read_known
from unbraid.server.api.chat import ChatRequest
from unbraid.server.errors import ApiError
from unbraid.server.generation.plan import plan_chat

from ..support.running_server import service_of, serving
from ..support.waiting import PATIENCE

MESSAGES = [{"role": "user", "content": "What is new?"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}
BODIES: tuple[Any, ...] = (
    {"messages": MESSAGES},
    {"messages": [*MESSAGES, {"role": "assistant", "content": "Nothing."}], "stream": True},
    {"messages": [], "tools": [TOOL], "temperature": 0.5, "stop": ["\n"], "seed": 3},
    {"messages": "none", "tools": [TOOL]},
    {"messages": [1]},
    {"messages": MESSAGES, "max_tokens": 0},
    {"messages": MESSAGES, "tool_choice": "none", "tools": [TOOL]},
    {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "g"}}]},
    {"messages": MESSAGES, "mesages": []},
    {"max_tokens": 1},
    {"messages": MESSAGES, "user": "x" * 70_000},
    [],
)
REQUESTS = (
    *(json.dumps(body).encode() for body in BODIES),
    b'{"messages": [{"role": "user", "content": "\xff"}]}',
    b'{"messages": [], "us\xffer": "a"}',
    b'{"messages": [{"role": "user", "content": "a"}], "messages": [{"role": "user", "content": "b"}]}',
    b'{"user": "a", "messages": [], "user": "b"}',
    b'{"messages": [{"role": "user",, "content": "a"}]}',
    b'{"messages": %s}' % (b"[" * 2000 + b"]" * 2000),
)


def outcome(read: Any, body: bytes) -> tuple[str, Any]:
    try:
        return "fields", read(body, ChatRequest, OPENAI_FIELDS)
    except ApiError as error:
        return "error", error.body()


@pytest.mark.parametrize("order", [REQUESTS, REQUESTS[::-1], REQUESTS * 2], ids=["forward", "backward", "twice"])
def test_it_is_read_as_if_none_had_come_before(order: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_known", LruCache(4))
    for body in order:
        assert outcome(read_known, body) == outcome(read, body)


def test_the_other_fields_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_known", LruCache(4))
    first = read_known(json.dumps({"messages": MESSAGES, "tools": [TOOL]}).encode(), ChatRequest, OPENAI_FIELDS)
    monkeypatch.setattr(bodies, "read", None)
    later = read_known(json.dumps({"messages": [], "tools": [TOOL]}).encode(), ChatRequest, OPENAI_FIELDS)
    assert later.messages == []
    assert later.tools is first.tools
    assert first.messages == MESSAGES


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "required"}, {"top_k": -1}])
def test_it_is_planned_as_if_none_had_come_before(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_known", LruCache(4))
    model = service_of(ReplayEngine([]), "hermes").models[0].model
    for sampling in ({}, {"temperature": 0.25}):  # the settings of the model may change
        model.sampling = sampling
        for content in ("one", "two"):
            body = json.dumps({"messages": [{"role": "user", "content": content}], **more}).encode()
            known = chat._plan(model, read_known(body, ChatRequest, OPENAI_FIELDS))
            fresh = plan_chat(model, chat.task_of(read(body, ChatRequest)))
            assert content in str(known.generations[0].prompt)
            assert _told(known.generations[0]) == _told(fresh.generations[0])
            assert (list(known.tools), known.unenforced, known.format) == (
                list(fresh.tools),
                fresh.unenforced,
                fresh.format,
            )


def _told(generation: Any) -> Any:
    """A generation, whose constraint is told by its language."""
    told = {name: getattr(generation, name) for name in generation.__slots__}
    return {**told, "constraint": None if generation.constraint is None else generation.constraint.language}


def test_a_request_leaves_no_garbage() -> None:
    """What it needed is freed when it is over, and does not wait for the collector."""
    service = service_of(ReplayEngine([script("Hello.")], repeat=True), "hermes")
    body = json.dumps({"messages": MESSAGES, "tools": [TOOL], "stream": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with serving(service) as server:

        def ask() -> None:
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
                connection.sendall(head.encode() + body)
                reply = b"".join(iter(lambda: connection.recv(65536), b""))
                assert reply.startswith(b"HTTP/1.1 200"), reply
                assert b"data: [DONE]" in reply

        def turned() -> None:
            """All is done that was begun: connections are let go a few turns after they are closed."""
            for _ in range(5):
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), server._loop).result(PATIENCE)

        for _ in range(5):  # what is made once is made
            ask()
        turned()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                ask()
            turned()
            assert gc.collect() < 20
        finally:
            gc.enable()
