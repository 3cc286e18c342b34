"""Limits hold in every dialect, wherever it lets the same thing stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unbraid.errors import UnbraidError
from unbraid.server.errors import api_error_of
from unbraid.server.generation.task import ChatTask, ClientPlaces
from unbraid.server.limits import MOST
from unbraid.server.realtime.options import reply_options

from ..support import patient_http
from ..support.scripted_server import HELLO, Scripted

Body = dict[str, Any]


def functions(count: int) -> list[Body]:
    return [{"type": "function", "function": {"name": f"f{at}"}} for at in range(count)]


def flat(count: int) -> list[Body]:
    return [{"type": "function", "name": f"f{at}"} for at in range(count)]


def anthropic(count: int) -> list[Body]:
    return [{"name": f"f{at}", "input_schema": {}} for at in range(count)]


def added(count: int) -> list[Body]:
    definitions = [{"type": "tool_definition", "definition": tool} for tool in anthropic(count)]
    return [*HELLO, {"role": "system", "content": [{"type": "tool_addition", "tool": one} for one in definitions]}]


def derendered(count: int) -> Body:
    choice = {"index": 0, "token_ids": [1], "finish_reason": "stop"}
    return {"chat_request": {"tools": functions(count)}, "generate_response": {"choices": [choice]}}


TOOLS: dict[str, tuple[str, Callable[[int], Body], str]] = {
    "chat": ("/v1/chat/completions", lambda count: {"messages": HELLO, "tools": functions(count)}, "tools"),
    "render": ("/v1/chat/completions/render", lambda count: {"messages": HELLO, "tools": functions(count)}, "tools"),
    "derender": ("/v1/chat/completions/derender", derendered, "chat_request.tools"),
    "tokenize": ("/v1/tokenize", lambda count: {"messages": HELLO, "tools": functions(count)}, "tools"),
    "parse": ("/v1/parse", lambda count: {"text": "x", "tools": functions(count)}, "tools"),
    "responses": ("/v1/responses", lambda count: {"input": "x", "tools": flat(count)}, "tools"),
    "namespace": (
        "/v1/responses",
        lambda count: {"input": "x", "tools": [{"type": "namespace", "name": "a", "tools": flat(count)}]},
        "tools",
    ),
    "additional_tools": (
        "/v1/responses",
        lambda count: {"input": [{"type": "additional_tools", "tools": flat(count)}, *HELLO]},
        "input[0].tools",
    ),
    "messages": (
        "/v1/messages",
        lambda count: {"messages": HELLO, "max_tokens": 5, "tools": anthropic(count)},
        "tools",
    ),
    "count_tokens": (
        "/v1/messages/count_tokens",
        lambda count: {"messages": HELLO, "tools": anthropic(count)},
        "tools",
    ),
    "tool_addition": (
        "/v1/messages",
        lambda count: {"messages": added(count), "max_tokens": 5},
        "messages[1].content[0].tool.definition",
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_too_many_tools(running: Scripted, name: str) -> None:
    path, body, place = TOOLS[name]
    running.say("Hi.<|im_end|>")
    most = MOST["tools"]
    refused = patient_http.post(running.server.url + path, json=body(most + 1))
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["message"] == f"{place}: there are {most + 1}, and {most} are the most in one request"
    assert error.get("param", place) == place
    taken = patient_http.post(running.server.url + path, json=body(most))
    assert taken.status_code == 200 or "tokens" in taken.text  # the model's context is small


@pytest.mark.parametrize("where", ["session", "response"])
def test_too_many_tools_of_a_realtime_session(where: str) -> None:
    reply_options({"tools": flat(MOST["tools"])}, where, False)
    with pytest.raises(UnbraidError, match=rf"^{where}\.tools: there are 513") as raised:
        reply_options({"tools": flat(MOST["tools"] + 1)}, where, False)
    error = api_error_of(raised.value)
    assert (error.status, error.param) == (400, f"{where}.tools")


def test_too_many_messages_of_any_task() -> None:
    """Every dialect makes a task."""
    ChatTask(messages=HELLO * MOST["messages"])
    cases: list[tuple[ClientPlaces, str]] = [({}, "messages"), ({("messages",): ("input",)}, "input")]
    for places, named in cases:
        with pytest.raises(UnbraidError, match=rf"^{named}: there are 100001, and 100000 are the most"):
            ChatTask(messages=HELLO * (MOST["messages"] + 1), places=places)
