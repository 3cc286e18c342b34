"""What a streamed reply costs, in things that can be counted: tasks, parts sent, locks taken.

`bench/serve.py` measures the time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from starlette.types import Message

from unbraid.engines import Finish, Generation, Piece
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.api import bodies
from unbraid.server.api.chat import ChatRequest
from unbraid.server.app import create_app
from unbraid.server.http import SHUTDOWN, ClientLeft, Connection, expire_all, until_shutdown
from unbraid.server.observing.metrics import SECONDS, Durations
from unbraid.server.service import Service

from ..support.examples import examples
from ..support.in_loop import in_loop
from ..support.running_server import service_of

CHAT = {"messages": [{"role": "user", "content": "Hi!"}]}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "Hi!", "max_tokens": 1000},
    "/v1/responses": {"input": "Hi!", "store": False},
    "/v1/messages": {**CHAT, "max_tokens": 1000},
}


class Watched(ReplayEngine):
    """Notes how many parts the client had been sent each time that the next piece was asked for."""

    def __init__(self, pieces: int, parts: list[bytes]) -> None:
        super().__init__([script("word", *[" word"] * (pieces - 1), chunks=10)], repeat=True)
        self.sent_before: list[int] = []
        self._parts = parts

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        async with aclosing(super().generate(request)) as outputs:
            async for output in outputs:
                self.sent_before.append(len(self._parts))
                yield output


async def ask(service: Service, path: str, parts: list[bytes]) -> None:
    """Ask for a stream, without a server in between."""
    body = json.dumps({**ROUTES[path], "stream": True}).encode()
    asked = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return asked.pop() if asked else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200
        if message["type"] == "http.response.body":
            parts.append(message["body"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "scheme": "http",
    }
    await create_app(service)(scope, receive, send)


def counting_tasks() -> list[str]:
    """The tasks that are made from now on."""
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(str(work))
        return asyncio.Task(work, loop=loop, **more)

    asyncio.get_running_loop().set_task_factory(factory)
    return made


@pytest.mark.parametrize("path", ROUTES)
@in_loop
async def test_two_tasks_for_a_request(path: str) -> None:
    """One notices that the client leaves, one writes the stream."""
    parts: list[bytes] = []
    service = service_of(Watched(5, parts), "hermes")
    made = counting_tasks()
    await ask(service, path, parts)
    assert len(made) == 2, made


@pytest.mark.parametrize("path", ROUTES)
@in_loop
async def test_each_piece_goes_out_before_the_next_is_asked_for(path: str) -> None:
    """Nothing waits for company; and all that one piece says is one part."""
    parts: list[bytes] = []
    engine = Watched(6, parts)
    await ask(service_of(engine, "hermes"), path, parts)
    assert engine.sent_before == [0, 1, 2, 3, 4, 5, 6]
    assert len(parts) == 8 if path != "/v1/responses" else 9
    assert all(parts)


@pytest.mark.parametrize("path", ROUTES)
@in_loop
async def test_locks_do_not_grow_with_the_reply(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """prometheus_client takes a lock for each value that is counted."""
    taken: list[int] = []
    for pieces in (2, 20):
        parts: list[bytes] = []
        service = service_of(Watched(pieces, parts), "hermes")
        kind = type(service.metrics.prompt_tokens.labels("", "")._value)
        counts: list[float] = []
        with monkeypatch.context() as patch:
            count: Callable[[Any, float], None] = kind.inc
            patch.setattr(kind, "inc", lambda self, amount, c=count, n=counts: (n.append(amount), c(self, amount))[1])
            await ask(service, path, parts)
        taken.append(len(counts))
        (line,) = re.findall(r"unbraid_inter_token_seconds_count{.*} (.*)", service.metrics.text().decode())
        assert line == f"{pieces - 1}.0"
    assert taken[0] == taken[1] > 0


@examples(4)
@given(st.lists(st.floats(0, 100) | st.sampled_from(SECONDS)))
def test_durations_are_told_as_any_histogram(seconds: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("waits", "How long.", ("model",), ours).labels("m")
    histogram = Histogram("waits", "How long.", ("model",), buckets=SECONDS, registry=theirs).labels("m")
    for one in seconds:
        durations.observe(one)
        histogram.observe(one)
    told = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(ours).decode().splitlines() == told


def test_a_routes_fields_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({**CHAT, "reasoning": {"effort": "low"}}).encode()
    bodies.read(body, ChatRequest)
    monkeypatch.setattr(msgspec.structs, "fields", None)
    bodies.read(body, ChatRequest)


# Work that ends early


class Client:
    """A connection whose client leaves when it is told to."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()
        self.connection = Connection(self._receive)

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._gone.set()


async def for_ever(ended: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await asyncio.sleep(0)
        ended.append("cleaned up")


@in_loop
async def test_leaving_cancels_the_work_and_nothing_else() -> None:
    client, ended = Client(), []  # type: ignore[var-annotated]
    asyncio.get_running_loop().call_soon(client.leave)
    with pytest.raises(ClientLeft):
        await client.connection.while_connected(for_ever(ended))
    assert ended == ["cleaned up"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # the task goes on


@in_loop
async def test_a_client_that_left_between_two_pieces_of_work() -> None:
    client = Client()
    assert await client.connection.while_connected(asyncio.sleep(0, "done")) == "done"
    client.leave()
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(ClientLeft):
        await client.connection.while_connected(asyncio.sleep(0))


@in_loop
async def test_the_server_ends() -> None:
    client, ended = Client(), []  # type: ignore[var-annotated]
    asyncio.get_running_loop().call_soon(expire_all)
    with pytest.raises(type(SHUTDOWN)) as caught:
        await client.connection.while_connected(for_ever(ended))
    assert caught.value is SHUTDOWN
    asyncio.get_running_loop().call_soon(expire_all)
    with pytest.raises(type(SHUTDOWN)):
        await until_shutdown(for_ever(ended))
    assert ended == ["cleaned up"] * 2
    client.connection.close()


@pytest.mark.parametrize("order", ["left, ended", "ended, left"])
@in_loop
async def test_work_is_interrupted_once(order: str) -> None:
    """A second time would cut off what is done because of the first."""
    client, ended = Client(), []  # type: ignore[var-annotated]
    first, second = (client.leave, expire_all) if order == "left, ended" else (expire_all, client.leave)
    asyncio.get_running_loop().call_soon(first)
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, second)
    with pytest.raises((ClientLeft, type(SHUTDOWN))):
        await client.connection.while_connected(for_ever(ended))
    assert ended == ["cleaned up"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@in_loop
async def test_who_cancels_the_task_itself_has_it_cancelled() -> None:
    client, ended = Client(), []  # type: ignore[var-annotated]
    task = asyncio.create_task(client.connection.while_connected(for_ever(ended)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    client.leave()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
