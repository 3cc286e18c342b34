"""Two real vLLM servers behind our server, of which one is killed in the middle of a stream: clients see nothing of it.

The other test files have one vLLM; this needs the memory of two, and starts another for each that it kills.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from unbraid.server.loading.service import load
from unbraid.server.settings import Settings

from ..clients.client_suite import (
    CONTEXT,
    MODEL,
    ONE_CALL,
    QUESTION,
    WEATHER_QUESTION,
    chunks_of,
    seen,
)
from ..support.relay import Relay
from ..support.running_server import serving
from .vllm_process import START, EngineProcess, skip_without_vllm, vllm_serve


class Fleet:
    """Two servers that are told from outside by their relays. One that was killed is started again."""

    def __init__(self, logs: Callable[[], Path], stack: ExitStack) -> None:
        self._logs = logs
        self._stack = stack
        self._running: dict[Relay, EngineProcess] = {}
        self.relays = (Relay(), Relay())
        for relay in self.relays:
            stack.callback(relay.close)

    def complete(self) -> list[str]:
        """The URLs of two servers that run."""
        for relay in self.relays:
            running = self._running.get(relay)
            if running is None or running.process.poll() is not None:
                running = self._running[relay] = self._stack.enter_context(vllm_serve(CONTEXT, self._logs()))
                relay.target, relay.kill = httpx.URL(running.url).port or 0, partial(self._kill, running)
        return [relay.url for relay in self.relays]

    def order(self, events: int | None) -> None:
        """Kill the first server that sends more than so many events of a stream."""
        for relay in self.relays:
            relay.left = events

    def _kill(self, running: EngineProcess) -> None:
        self.order(None)
        running.kill()

    @property
    def killed(self) -> int:
        return sum(running.process.poll() is not None for running in self._running.values())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    skip_without_vllm()
    with ExitStack() as stack:
        yield Fleet(lambda: tmp_path_factory.mktemp("vllm"), stack)


@pytest.fixture
def client(fleet: Fleet) -> Iterator[OpenAI]:
    """As `unbraid serve --vllm URL --vllm URL` makes it."""
    options = Settings(vllm=tuple(fleet.complete()), chat_template="chatml", served_model_name=(MODEL,))
    with (
        serving(asyncio.run(load(options))) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=START) as found,
    ):
        yield found


@pytest.mark.parametrize(
    ("said", "options", "events"),
    [(QUESTION, {"logprobs": True, "top_logprobs": 2}, 3), (WEATHER_QUESTION, ONE_CALL, 12)],
    ids=["answer", "strict call"],
)
def test_a_stream_survives_its_server(
    fleet: Fleet, client: OpenAI, said: str, options: dict[str, Any], events: int
) -> None:
    undisturbed = chunks_of(client, said, **options)
    fleet.order(events)
    moved = chunks_of(client, said, **options)
    assert fleet.killed == 1
    assert seen(moved) == seen(undisturbed)
