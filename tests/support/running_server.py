"""A real server on a real socket, in a thread of the tests, and the real clients' way to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from typing import Any

import uvicorn

from unbraid import find
from unbraid.core.grammar import Format
from unbraid.engines import Engine
from unbraid.server.access.door import Access
from unbraid.server.app import create_app, write_error
from unbraid.server.model import Model, Served
from unbraid.server.observing.tracing import Tracer
from unbraid.server.planning.planner import Planner
from unbraid.server.running.run import fast_loop
from unbraid.server.service import Service
from unbraid.templates import ChatTemplate, PromptBuilder, built_in, encoder

from .waiting import PATIENCE

_OF_MODEL = {field.name for field in fields(Model)}


class RunningServer:
    """A server that runs. `service` may be changed while it does. Without `fast`, its loop is asyncio's own."""

    def __init__(
        self,
        service: Service,
        origins: tuple[str, ...] = (),
        tracer: Tracer | None = None,
        access: Access | None = None,
        *,
        fast: bool = True,
        **settings: Any,
    ) -> None:
        self.service = service
        self._loops = fast_loop() if fast else asyncio.new_event_loop
        self.access = access or Access(write_error=write_error)
        app = create_app(service, origins, tracer, **settings)
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=2, **self.access.uvicorn)
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._loops) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    def call(self, work: Callable[[], None]) -> None:
        """Have something done where the server runs."""
        self._loop.call_soon_threadsafe(work)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            threading.Event().wait(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])


@contextmanager
def serving(
    service: Service, origins: tuple[str, ...] = (), access: Access | None = None, **settings: Any
) -> Iterator[RunningServer]:
    server = RunningServer(service, origins, None, access, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def service_of(
    engine: Engine,
    format: str | Format,
    *,
    tokenizer: object | None = None,
    template: ChatTemplate | Mapping[str, ChatTemplate] | None = None,
    **settings: Any,
) -> Service:
    """A service put together by hand. Without a tokenizer, prompts and outputs are text. Requests are worked out in
    threads: a worker process takes seconds to start, and tests that are about workers ask for them (`planner`)."""
    found = find(format) if isinstance(format, str) else format
    texts: Any = None if tokenizer is None else _encoder(tokenizer)
    builder = _chatml(texts, found) if template is None else PromptBuilder(template, texts, found)
    of_model = {name: settings.pop(name) for name in [*settings] if name in _OF_MODEL}
    model = Model(format=found, builder=builder, encoder=texts, **of_model)
    settings.setdefault("planner", Planner(workers=0))
    served = Served(model=model, engine=engine, names=settings.pop("names", ()), vocoder=settings.pop("vocoder", None))
    return Service(models=(served,), **settings)


_encoder = lru_cache(maxsize=16)(encoder)
"""Servers of one tokenizer share its encoder, which takes up to a second to make."""


@lru_cache(maxsize=256)
def _chatml(texts: Any, format: Format) -> PromptBuilder:
    """They share the builder, too, which renders a dozen prompts to see what its template can do."""
    return PromptBuilder(built_in("chatml"), texts, format)


def folded(chunks: list[Any]) -> dict[int, dict[str, Any]]:
    """What a client makes of the chunks of a stream: the message of each choice, and why it ended.

    Checks on the way what every stream must keep to: one role, first; the name and the id of a call once, in its first
    delta; nothing after the end of a choice.
    """
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if choice["index"] not in found:
                assert delta["role"] == "assistant", "the role comes first"
                found[choice["index"]] = {"finish_reason": None}
            else:
                assert "role" not in delta, "the role comes once"
            message = found[choice["index"]]
            assert message["finish_reason"] is None, "something came after the end"
            message["finish_reason"] = choice["finish_reason"]
            _fold(message, delta)
    return found


def _fold(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key in ("content", "reasoning_content", "reasoning"):
        if delta.get(key):
            message[key] = message.get(key, "") + delta[key]
    for key, text in (delta.get("tts_content") or {}).items():
        speech = message.setdefault("tts_content", {"tts_text": "", "tts_audio": ""})
        speech[key] += text
    for call in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            function = {"name": call["function"]["name"], "arguments": ""}
            calls.append({"id": call["id"], "type": call["type"], "function": function})
        else:
            assert call["index"] == len(calls) - 1, "calls come one after the other"
            assert "id" not in call
            assert "name" not in call["function"]
        calls[-1]["function"]["arguments"] += call["function"]["arguments"]
