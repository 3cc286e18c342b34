"""A small chat server without a model, which spells ids out as vLLM does, and has one fault when told to.

`plant` names it: invalid_json, schema_mismatch, unknown_name, usage_wrong or max_tokens_refused.
`faulty.py` has the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import uuid4

from ..support.handler_server import served


def reply_to(body: dict[str, Any], plant: str) -> tuple[dict[str, Any], str]:
    """Message and finish reason."""
    if body.get("tools") and body["tool_choice"] != "none":
        return _called(body, plant)
    return {"content": "Red, green and blue."}, "stop"


def _called(body: dict[str, Any], plant: str) -> tuple[dict[str, Any], str]:
    choice = body["tool_choice"]
    name = choice["function"]["name"] if isinstance(choice, dict) else body["tools"][0]["function"]["name"]
    text = json.dumps({"town" if plant == "schema_mismatch" else "city": "Paris"})
    if plant == "invalid_json":
        text = text.replace('"', "'")
    call = _call("c0", "get_wether" if plant == "unknown_name" else name, text)
    return {"content": None, "tool_calls": [call]}, "tool_calls"


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunks(message: dict[str, Any], ending: str) -> Iterator[dict[str, Any]]:
    """The same reply as a stream."""
    yield {"delta": {"role": "assistant"}}
    for key in ("reasoning_content", "content"):
        for letter in message.get(key) or "":
            yield {"delta": {key: letter}}
    for index, call in enumerate(message.get("tool_calls") or ()):
        start = {"index": index, "id": call["id"], "type": "function", "function": {"name": call["function"]["name"]}}
        yield {"delta": {"tool_calls": [start]}}
        for letter in call["function"]["arguments"]:
            yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": letter}}]}}
    yield {"delta": {}, "finish_reason": ending}


class PlantedHandler(BaseHTTPRequestHandler):
    """One connection to the server."""

    plant = ""
    written = ""
    """What the model wrote, a token a letter, for those who ask for ids."""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "model"}]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        try:
            body = json.loads(raw)
            assert body["model"] == "model"
            assert "tokens" in body or isinstance(body["messages"], list)
            assert isinstance(body.get("temperature", 0), int | float)
            assert isinstance(body.get("tools", []), list)
        except (ValueError, KeyError, AssertionError):
            self._send(400, {"error": {"message": "no", "type": "bad_request"}})
            return
        if self.plant == "max_tokens_refused" and "max_tokens" in body:
            why = "Unsupported parameter: use 'max_completion_tokens' instead."
            self._send(400, {"error": {"message": why, "type": "bad_request", "param": "max_tokens"}})
            return
        if "tokens" in body:
            self._send(200, {"prompt": "".join(map(chr, body["tokens"]))})
            return
        message, ending = reply_to(body, self.plant)
        name = f"chatcmpl-{uuid4()}"
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 15 if self.plant == "usage_wrong" else 14}
        if not body.get("stream"):
            choice: dict[str, Any] = {"message": {"role": "assistant", **message}, "finish_reason": ending}
            if body.get("return_token_ids"):
                choice["token_ids"] = [ord(letter) for letter in self.written]
                usage = {**usage, "completion_tokens": len(self.written), "total_tokens": 9 + len(self.written)}
            self._send(200, {"id": name, "choices": [choice], "usage": usage})
            return
        events: list[dict[str, Any]] = [
            {"id": name, "choices": [{"index": 0, **each}]} for each in chunks(message, ending)
        ]
        events.append({"id": name, "choices": [], "usage": usage})
        self._send(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n")

    def _send(self, status: int, reply: object) -> None:
        data = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """The tests' output is not its log."""


@contextmanager
def planted_server(plant: str = "", written: str = "") -> Iterator[str]:
    """The address of a server with this fault, or with none."""
    handler = type("Handler", (PlantedHandler,), {"plant": plant, "written": written})
    with served(handler) as url:
        yield url
