"""Clients share the server: one that asks for much costs another a turn or two, counted, and never a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid.engines import Finish, Generation, Load, Piece
from unbraid.engines.routing import Routed, Routing
from unbraid.fairness import Client, FairQueue
from unbraid.server.service import Service
from unbraid.server.storage.store import Store

from ..support.in_loop import in_loop
from ..support.running_server import service_of, serving
from ..support.waiting import PATIENCE, until

PLACES = 4
GREEDY, QUIET = {"Authorization": "Bearer greedy-key"}, {"Authorization": "Bearer quiet-key"}


class Slow:
    """An engine that notes whose request begins, and ends one when it is told to."""

    model, vocabulary, context = "slow", None, 4096

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self.tickets = 0

    @property
    def load(self) -> Load:
        return Load(self.running)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        self.begun.append("quiet" if "quiet" in str(request.prompt) else "greedy")
        self.running += 1
        try:
            yield Piece(text="Hi")
            while not self.tickets:
                await asyncio.sleep(0.002)
            self.tickets -= 1
            yield Finish("stop", 1, 1)
        finally:
            self.running -= 1

    async def check(self) -> None: ...

    async def close(self) -> None: ...


def shared(engine: Slow, **settings: Any) -> Service:
    routed = Routed([engine], Routing(parallel=PLACES))
    return service_of(routed, "hermes", api_keys=("greedy-key", "quiet-key"), **settings)


async def ask(client: httpx.AsyncClient, who: dict[str, str], text: str) -> int:
    body = {"messages": [{"role": "user", "content": text}]}
    return (await client.post("/v1/chat/completions", json=body, headers=who)).status_code


async def measured_wait(engine: Slow, client: httpx.AsyncClient) -> int:
    """How many requests of the greedy client begin before the next one of the quiet client does."""
    before = len(engine.begun)
    asking = asyncio.create_task(ask(client, QUIET, "quiet"))
    while "quiet" not in engine.begun[before:]:
        count = len(engine.begun)
        engine.tickets += 1
        await until(lambda: len(engine.begun) > count or not engine.tickets)  # noqa: B023
    engine.tickets += PLACES + 1
    assert await asking == 200
    return engine.begun[before:].index("quiet")


@pytest.mark.parametrize("chats", [90, 300])
@in_loop
async def test_long_chats_of_one_key_do_not_shut_out_another(chats: int) -> None:
    engine = Slow()
    with serving(shared(engine)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=httpx.Limits()) as client:
            greedy = [asyncio.create_task(ask(client, GREEDY, "long")) for _ in range(chats)]
            await until(lambda: engine.running == PLACES - 1)
            waits = [await measured_wait(engine, client) for _ in range(3)]
            assert max(waits) <= 2 * PLACES, f"of {chats} that were there before"
            engine.tickets += 1000
            assert set(await asyncio.gather(*greedy)) == {200}


@in_loop
async def test_what_runs_in_the_background_comes_last(tmp_path: Path) -> None:
    engine = Slow()
    service = shared(engine, store=Store(tmp_path / "store.sqlite", 1.0))
    with serving(service) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            for _ in range(80):
                body = {"input": "tiny", "background": True}
                reply = await client.post("/v1/responses", json=body, headers=GREEDY)
                assert reply.status_code == 200
            await until(lambda: engine.running == PLACES - 1)
            before = len(engine.begun)
            asking = asyncio.create_task(ask(client, QUIET, "quiet"))
            await until(lambda: len(engine.begun) > before)
            assert engine.begun[before] == "quiet", "there was a place for it"
            engine.tickets += 1000
            assert await asking == 200


@pytest.mark.parametrize("queue", ["requests", "sockets", "in_background"])
def test_one_client_holds_three_quarters_of_what_is_shared(queue: str) -> None:
    service = shared(Slow())
    places: FairQueue = getattr(service, queue)
    mine = [places.take(Client("greedy")) for _ in range(places.places * 3 // 4)]
    with pytest.raises(Exception, match="too many") as raised:
        places.take(Client("greedy"))
    assert getattr(raised.value, "own", None) is True
    places.take(Client("quiet")).leave()
    for place in mine:
        place.leave()
    assert places.taken == 0
