"""A chat server that does everything right, and one fault when told to.

It speaks for a model that calls when it is asked to, writes notes as asked, and reasons where the question says so.
`plant` names a fault of `unbraid.verify.checks.KINDS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SEA = "Th"
"""What is left of an answer about the sea when it stops at its first e."""


def reply_to(body: dict[str, Any], plant: str) -> tuple[dict[str, Any], str]:
    """Message and finish reason."""
    question = body["messages"][0]["content"]
    most = body.get("max_tokens", 512)
    if body["messages"][-1]["role"] == "tool":
        return {"content": "It is clear, and 21 degrees."}, "stop"
    if body.get("stop"):
        return {"content": "The sea is wide." if plant == "stop_ignored" else SEA}, "stop"
    if "Think first" in question:
        return _reasoned(most, plant)
    if body.get("tools") and body["tool_choice"] != "none":
        return _called(body, question, most, plant)
    if "Count" in question:
        words = "one " * (80 if plant == "length_ignored" else 16)
        return {"content": words}, "stop" if plant == "length_ignored" else "length"
    if plant == "choice_ignored" and body.get("tools"):
        return _called(body, question, most, "")
    markup = "</think>" if plant == "markup_leaked" else ""
    return {"content": f"{markup}Red, green and blue."}, "stop"


def _reasoned(most: int, plant: str) -> tuple[dict[str, Any], str]:
    if most >= 64:
        return {"reasoning_content": "0.9 is more than 0.11.", "content": "9.9"}, "stop"
    if plant == "reasoning_mixed":
        return {"content": "0.9 is more"}, "length"
    return {"reasoning_content": "0.9 is more", "content": ""}, "length"


def _called(body: dict[str, Any], question: str, most: int, plant: str) -> tuple[dict[str, Any], str]:
    tools = [tool["function"]["name"] for tool in body["tools"]]
    choice = body["tool_choice"]
    name = choice["function"]["name"] if isinstance(choice, dict) else tools[0]
    if plant == "choice_ignored":
        return {"content": "I would rather not."}, "stop"
    arguments: dict[str, Any] = {"city": "Paris"}
    if name == "write_note":
        note = question.split("---\n", 1)[1].removesuffix("\n---")
        arguments = {"text": note.partition("</")[0] if plant == "value_changed" else note}
    if name == "book":
        arguments = {"where": "outside", "guests": ["Ann", "Bob"], "at": {"hour": 19, "minute": 30}}
    if plant == "schema_mismatch":
        arguments = {"town": "Paris"}
    text = json.dumps(arguments)
    if plant == "invalid_json":
        text = text.replace('"', "'")
    if most < 64:
        ending = "tool_calls" if plant == "cut_but_complete" else "length"
        return {"content": None, "tool_calls": [_call("c0", name, text[:-4])]}, ending
    several = "same reply" in question and (body.get("parallel_tool_calls", True) or plant == "parallel_ignored")
    shown = "get_wether" if plant == "unknown_name" else name
    calls = [_call(f"c{at}", shown, text) for at in range(2 if several else 1)]
    return {"content": None, "tool_calls": calls}, "tool_calls"


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunks(message: dict[str, Any], ending: str, plant: str) -> Iterator[dict[str, Any]]:
    """The same reply as a stream."""
    yield {"delta": {"role": "assistant"}}
    for key in ("reasoning_content", "content"):
        for letter in message.get(key) or "":
            yield {"delta": {key: letter}}
    for index, call in enumerate(message.get("tool_calls") or ()):
        start = {"index": index, "id": call["id"], "type": "function", "function": {"name": call["function"]["name"]}}
        yield {"delta": {"tool_calls": [start if plant != "protocol" else {"index": index}]}}
        arguments = call["function"]["arguments"]
        for letter in arguments[:3] if plant == "stream_differs" else arguments:
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
            assert self.plant != "history_refused" or "tokens" in body or body["messages"][-1]["role"] != "tool"
        except (ValueError, KeyError, AssertionError):
            status = 500 if self.plant == "server_error" else 400
            self._send(status, {"detail": "no"} if self.plant == "error_undocumented" else {"error": {"message": "no"}})
            return
        if "tokens" in body:
            self._send(200, {"prompt": "".join(map(chr, body["tokens"]))})
            return
        message, ending = reply_to(body, self.plant)
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 15 if self.plant == "usage_wrong" else 14}
        if not body.get("stream"):
            choice: dict[str, Any] = {"message": {"role": "assistant", **message}, "finish_reason": ending}
            if body.get("return_token_ids"):
                choice["token_ids"] = [ord(letter) for letter in self.written]
            self._send(200, {"id": "chatcmpl-1", "choices": [choice], "usage": usage})
            return
        events: list[dict[str, Any]] = [
            {"id": "chatcmpl-1", "choices": [{"index": 0, **each}]} for each in chunks(message, ending, self.plant)
        ]
        events.append({"id": "chatcmpl-1", "choices": [], "usage": usage})
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
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
