"""Bodies to every route of the server that takes one."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

from unbraid.engines.http.address import EventReader
from unbraid.engines.replay import script
from unbraid.server.app import create_app

from ...support.real_tokenizers import encode
from ...support.scripted_server import HELLO, WEATHER, Scripted
from ..source import Source

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [*HELLO, {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]}, *HELLO],
        "tools": [WEATHER],
        "response_format": {"type": "text"},
    },
    "/v1/completions": {"prompt": "Once"},
    "/v1/messages": {
        "max_tokens": 20,
        "messages": HELLO,
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
    },
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/responses": {
        "input": [
            {"role": "user", "content": "Hello!"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
    },
    "/v1/parse": {"text": '<tool_call>\n{"name": "f"}</tool_call>', "format": "hermes", "tools": [WEATHER]},
    "/v1/tokenize": {"messages": HELLO},
}
"""A good body for each route, of which one or more values are changed."""
_OUTPUT = '<think>\nHm.\n</think>\n\nYes.<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
_FIELDS = ["stream", "n", "stop", "tool_choice", "logprobs", "top_logprobs", "max_tokens", "temperature", "seed"]
_FIELDS += ["role"]
_FIELDS += ["content", "type", "text", "name", "arguments", "input", "id", "tool_call_id", "tool_calls", "function"]
_FIELDS += ["echo"]
_FIELDS += ["logit_bias", "model", "system", "thinking", "instructions", "reasoning", "include", "metadata"]
_FIELDS += ["parameters"]
_FIELDS += ["previous_response_id", "truncation", "background", "store", "ids", "prompt", "suffix"]
_FIELDS += ["stream_options", "strict"]
_FIELDS += ["response_format", "json_schema", "schema", "enum", "documents", "chat_template_kwargs", "image_url"]
_FIELDS += ["source"]
_FIELDS += ["auto", "required", "none", "user", "assistant", "system", "tool", "developer", "function_call"]
_FIELDS += ["audio", "qwen"]


def body(data: bytes) -> None:
    source = Source(data)
    path = source.choice(list(BODIES))
    sent = json.loads(json.dumps(BODIES[path]))
    for _ in range(source.below(4)):
        change(sent, source)
    if source.chance():
        sent["stream"] = True
    raw = json.dumps(sent).encode() if source.below(8) else source.bytes()
    status, headers, reply = post(path, raw)
    assert status < 500, (path, raw, reply)
    kind = headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        for event in EventReader().feed(reply):
            assert event == "[DONE]" or isinstance(json.loads(event), dict)
    else:
        told = json.loads(reply)
        assert kind == "application/json"
        assert (status == 200) != ("error" in told and told["error"] is not None)


def change(value: Any, source: Source) -> None:
    """Something else in one place, at any depth."""
    while isinstance(value, dict | list):
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        at: Any = source.choice(keys) if keys and source.below(4) else source.choice(_FIELDS)
        inner = value[at] if at in keys else None
        if isinstance(inner, dict | list) and source.chance():
            value = inner
            continue
        made = source.json(_FIELDS)
        if isinstance(value, dict):
            value[str(at)] = made
        elif at in keys:
            value[at] = made
        else:
            value.append(made)
        return


def post(path: str, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Ask the application, without a socket."""
    loop, app = _app()
    sent: list[Any] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "scheme": "http"}
    loop.run_until_complete(app(scope, receive, send))
    start, *rest = sent
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(part.get("body", b"") for part in rest)


@cache
def _app() -> tuple[asyncio.AbstractEventLoop, Any]:
    scripted = Scripted()
    ids = encode(scripted.tokenizer, _OUTPUT)
    scripted.choose = lambda _: script(ids, chunks=3)
    return asyncio.new_event_loop(), create_app(scripted.service)
