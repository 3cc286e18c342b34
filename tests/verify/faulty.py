"""Faults that parsers and servers are known for, planted before a right server, in any of the three APIs.

A fault edits what the server said. `Slot` is one text of a reply, wherever the API has it: all of it in one piece,
the deltas of a stream, and the places where a stream repeats it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any

import httpx

from ..support.handler_server import served
from .obedient_model import Obedient

Json = Any


@dataclass
class Slot:
    """One text of a reply. pieces: holders and keys whose texts join to it. copies: where all of it stands again."""

    kind: str
    pieces: list[tuple[Json, Any]] = field(default_factory=list)
    copies: list[tuple[Json, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(str(holder[key]) for holder, key in self.pieces)

    def put(self, text: object) -> None:
        for holder, key in (*self.pieces[:1], *self.copies):
            holder[key] = text
        for holder, key in self.pieces[1:]:
            holder[key] = ""


@dataclass
class Answer:
    """What a server said: the JSON of it, or the events of a stream."""

    api: str
    body: Mapping[str, Any]
    status: int
    json: Json = None
    events: list[Json] | None = None
    raw: str | None = None
    """Said instead of all that."""

    @property
    def streamed(self) -> bool:
        return self.events is not None

    def slots(self, *kinds: str) -> list[Slot]:
        found: dict[tuple[str, object], Slot] = {}
        for kind, at, holder, key, is_copy in _places(self):
            slot = found.setdefault((kind, at), Slot(kind))
            (slot.copies if is_copy and slot.pieces else slot.pieces).append((holder, key))
        return [slot for slot in found.values() if slot.kind in kinds]

    def edit(self, kinds: str, change: Callable[[str], object]) -> None:
        for slot in self.slots(*kinds.split()):
            slot.put(change(slot.text))


Place = tuple[str, object, Json, Any, bool]


def _places(answer: Answer) -> Iterator[Place]:
    """Kind, which one, holder, key, and whether it repeats what stands elsewhere."""
    if answer.api == "chat":
        yield from _chat(answer)
    elif answer.api == "responses":
        yield from _responses(answer)
    else:
        yield from _messages(answer)


_CHAT = {"content": "content", "reasoning_content": "reasoning"}


def _chat(answer: Answer) -> Iterator[Place]:
    for payload in [answer.json] if answer.events is None else answer.events:
        if payload.get("usage"):
            yield "usage", 0, payload, "usage", False
        for choice in payload.get("choices") or ():
            said = choice.get("message") or choice.get("delta") or {}
            for key, kind in _CHAT.items():
                if isinstance(said.get(key), str):
                    yield kind, 0, said, key, False
            for at, call in enumerate(said.get("tool_calls") or ()):
                index = call.get("index", at)
                if call.get("id"):
                    yield "id", index, call, "id", False
                for key in ("name", "arguments"):
                    if key in call["function"]:
                        yield key, index, call["function"], key, False
            if choice.get("finish_reason"):
                yield "ending", 0, choice, "finish_reason", False


def _responses(answer: Answer) -> Iterator[Place]:
    for event in answer.events or ():
        at, kind = event.get("output_index"), event.get("type", "")
        if kind == "response.function_call_arguments.delta":
            yield "arguments", at, event, "delta", False
        elif kind == "response.output_text.delta":
            yield "content", at, event, "delta", False
        elif kind.startswith("response.reasoning") and kind.endswith("text.delta"):
            yield "reasoning", at, event, "delta", False
        elif kind == "response.function_call_arguments.done":
            yield "arguments", at, event, "arguments", True
        elif kind == "response.output_text.done":
            yield "content", at, event, "text", True
        elif kind.startswith("response.reasoning") and kind.endswith("text.done"):
            yield "reasoning", at, event, "text", True
        elif kind == "response.content_part.done" and event["part"].get("type") == "output_text":
            yield "content", at, event["part"], "text", True
        elif kind in ("response.output_item.added", "response.output_item.done"):
            yield from _item(at, event["item"], has_text=kind.endswith("done"), is_copy=True)
        elif kind in ("response.completed", "response.incomplete"):
            yield from _response(event["response"], is_copy=True)
    if answer.json is not None:
        yield from _response(answer.json, is_copy=False)


def _response(response: Json, *, is_copy: bool) -> Iterator[Place]:
    yield "ending", 0, response, "status", is_copy
    yield "usage", 0, response, "usage", False
    for at, item in enumerate(response["output"]):
        yield from _item(at, item, has_text=True, is_copy=is_copy)


def _item(at: object, item: Json, *, has_text: bool, is_copy: bool) -> Iterator[Place]:
    if item["type"] == "function_call":
        yield "id", at, item, "call_id", is_copy
        yield "name", at, item, "name", is_copy
        if has_text:
            yield "arguments", at, item, "arguments", is_copy
    kind = {"message": "content", "reasoning": "reasoning"}.get(item["type"])
    for part in (item.get("content") or ()) if kind and has_text else ():
        yield kind or "", at, part, "text", is_copy


class _Input:
    """The arguments of a whole `tool_use` as text."""

    def __init__(self, block: Json) -> None:
        self._block = block

    def __getitem__(self, key: str) -> str:
        return json.dumps(self._block["input"], ensure_ascii=False)

    def __setitem__(self, key: str, text: object) -> None:
        try:
            self._block["input"] = json.loads(str(text))
        except ValueError:
            self._block["input"] = text


_BLOCKS = {"text": "content", "thinking": "reasoning"}


def _messages(answer: Answer) -> Iterator[Place]:
    for event in answer.events or ():
        at, delta, block = event.get("index"), event.get("delta") or {}, event.get("content_block") or {}
        for key, kind in (*_BLOCKS.items(), ("partial_json", "arguments")):
            if key in delta:
                yield kind, at, delta, key, False
        if block.get("type") == "tool_use":
            yield "id", at, block, "id", False
            yield "name", at, block, "name", False
        if delta.get("stop_reason"):
            yield "ending", 0, delta, "stop_reason", False
        if event.get("type") == "message_delta":
            yield "usage", 0, event, "usage", False
    if answer.json is not None:
        yield "ending", 0, answer.json, "stop_reason", False
        yield "usage", 0, answer.json, "usage", False
        for at, block in enumerate(answer.json["content"]):
            strand = _BLOCKS.get(block["type"])
            if strand:
                yield strand, at, block, block["type"], False
            elif block["type"] == "tool_use":
                yield "id", at, block, "id", False
                yield "name", at, block, "name", False
                yield "arguments", at, _Input(block), "input", False


Change = Callable[[Answer], None]


@dataclass(frozen=True)
class Planted:
    """A fault. share: of the requests that show it. ask: what it does to a request before the model sees it."""

    change: Change = lambda answer: None
    share: float = 1.0
    ask: Callable[[dict[str, Any]], dict[str, Any] | tuple[int, str]] = lambda body: body


_API = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}


@contextmanager
def faulty(obedient: Obedient, planted: Planted, seed: int = 0) -> Iterator[str]:
    """The address of the right server with this fault before it."""
    chance, client = Random(seed), httpx.Client(timeout=600, trust_env=False)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._forward("GET", b"")

        def do_POST(self) -> None:
            self._forward("POST", self.rfile.read(int(self.headers.get("content-length") or 0)))

        def log_message(self, format: str, *args: Any) -> None:
            """The tests' output is not its log."""

        def _forward(self, method: str, raw: bytes) -> None:
            api = next((api for path, api in _API.items() if self.path.endswith(path)), "")
            fires = chance.random() < planted.share
            if api:
                refused = self._asked(api, raw, fires)
                if isinstance(refused, tuple):
                    self._send(*refused)
                    return
                raw = refused
            headers = {"content-type": "application/json"}
            reply = client.request(method, obedient.url + self.path, content=raw, headers=headers)
            status, text = reply.status_code, reply.text
            if api and fires:
                status, text = _changed(api, raw, status, text, planted.change)
            self._send(status, text)

        def _asked(self, api: str, raw: bytes, fires: bool) -> bytes | tuple[int, str]:
            try:
                body = json.loads(raw)
                wanted = planted.ask(json.loads(raw)) if fires else body
                if isinstance(wanted, tuple):
                    return wanted
                obedient.prepare(wanted)
                return json.dumps(wanted).encode()
            except (ValueError, LookupError, TypeError, AttributeError):  # a bad request, on purpose
                return raw

        def _send(self, status: int, text: str) -> None:
            if status == 0:  # the server hangs up
                self.close_connection = True
                return
            data = text.encode()
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with served(Handler) as url:
        yield url
        client.close()


def _changed(api: str, raw: bytes, status: int, text: str, change: Change) -> tuple[int, str]:
    try:
        body = json.loads(raw)
    except ValueError:
        body = {}
    streamed = status == 200 and bool(body.get("stream"))
    answer = Answer(api, body, status)
    if streamed:
        answer.events = [json.loads(each) for each in re.findall(r"^data: (\{.*)$", text, re.MULTILINE)]
    else:
        answer.json = json.loads(text)
    change(answer)
    if answer.raw is not None:
        return answer.status, answer.raw
    if not streamed:
        return answer.status, json.dumps(answer.json)
    return answer.status, "".join(map(_event, answer.events or ())) + ("data: [DONE]\n\n" if api == "chat" else "")


def _event(event: Json) -> str:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"
