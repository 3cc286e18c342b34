"""Requests that are dear to work out: how they are answered, and that others do not wait for them.

Nothing here depends on the clock: others are answered while an attack is under way that would take minutes. The slow
tests measure how long others wait, as a ratio to their quiet time in the same run; `bench/attacks.py` has the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import httpx
import pytest

from unbraid.server.planning.planner import Planner

from ..support import patient_http
from ..support.attacks import (
    ATTACKS,
    HELLO,
    Attack,
    Body,
    attacked,
    first_token,
    flooded,
    objects,
    parsing,
    product,
    quiet,
    schemas,
    tool,
)
from ..support.flood import FLOODS
from ..support.processes import is_running
from ..support.scripted_server import Scripted
from ..support.waiting import PATIENCE, until, wait_for

MARGIN = 10
"""Others may wait so many times their quiet time, on a machine with other things to do. When all planning shared four
threads, it was thousands."""
SECONDS = 0.5
"""The budget of a request here. All attacks are above it, or need no more."""


@pytest.fixture(scope="module")
def running() -> Iterator[Scripted]:
    scripted = Scripted()
    model = scripted.service.models[0].model
    model.syntax, model.constrain_auto, model.loose_schemas = "gbnf", True, True
    scripted.engine.context = 1_000_000
    scripted.service.planner = Planner(2, SECONDS)
    scripted.service.planner.add(model)
    scripted.say("Hello to you, too.")
    scripted.server.start()
    scripted.server.call(scripted.service.planner.warm)
    wait_for(lambda: len(scripted.service.planner.pids) == 2)
    yield scripted
    pids = scripted.service.planner.pids
    scripted.server.stop()
    assert not any(map(is_running, pids)), "a worker is left"


@contextmanager
def without_budget(running: Scripted) -> Iterator[Any]:
    """Have requests worked out for as long as it takes. Gives the pool of workers, which are all there."""
    wait_for(lambda: len(running.service.planner.pids) == 2)
    pool = running.service.planner._pool
    pool._seconds = 1e6
    try:
        yield pool
    finally:
        pool._seconds = SECONDS


def costly() -> Body:
    """More than the budget, in any syntax of grammars."""
    return product(10, 3)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/chat/completions",
            {"messages": HELLO, "tools": [tool({}), tool(costly()) | {"name": "g"}], "tool_choice": "required"},
            "tools[1].function.parameters.properties.x",
        ),
        (
            "/chat/completions",
            {
                "messages": HELLO,
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": costly()}},
            },
            "response_format.json_schema.schema.properties.x",
        ),
        (
            "/completions",
            {
                "prompt": "x",
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": costly()}},
            },
            "response_format.json_schema.schema.properties.x",
        ),
        (
            "/responses",
            {
                "input": "x",
                "tools": [{"type": "function", "name": "f", "parameters": costly()}],
                "tool_choice": "required",
            },
            "tools[0].parameters.properties.x",
        ),
        (
            "/messages",
            {
                "messages": HELLO,
                "max_tokens": 9,
                "tools": [{"name": "f", "input_schema": costly()}],
                "tool_choice": {"type": "any"},
            },
            "tools[0].input_schema.properties.x",
        ),
    ],
    ids=["tools", "response_format", "completions", "responses", "messages"],
)
def test_what_is_over_budget_is_refused_with_the_part_that_costs_it(
    running: Scripted, path: str, body: Any, param: str
) -> None:
    if len(body.get("tools", ())) == 2:
        body["tools"][1]["function"]["name"] = "g"
    response = patient_http.post(f"{running.server.url}/v1{path}", json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert f"takes more than {SECONDS:g} seconds to work out: simplify it" in error["message"]
    if path != "/messages":  # whose errors have no such field
        assert (error["param"], error["code"]) == (param, "too_expensive")


def test_a_long_output_is_over_budget_too(running: Scripted) -> None:
    path, body = parsing(4.4)
    response = patient_http.post(f"{running.server.url}{path}", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["code"] == "too_expensive"


def test_what_takes_longer_than_a_thread_may_is_answered_all_the_same(running: Scripted) -> None:
    """It is worked out in a worker, and remembered for the next time."""
    body = {"messages": HELLO, "tools": [tool(product(3, 3))], "tool_choice": "required"}
    with without_budget(running):
        for _ in range(2):
            response = patient_http.post(f"{running.server.url}/v1/chat/completions", json=body)
            assert response.status_code == 200, response.text


def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(running: Scripted) -> None:
    path, body = objects(4)
    response = patient_http.post(f"{running.server.url}{path}", json=body)
    assert response.status_code == 413
    assert "values" in response.json()["error"]["message"]


@pytest.mark.system
@pytest.mark.parametrize("attack", [schemas, parsing], ids=["schemas", "parsing"])
def test_others_are_answered_meanwhile_and_work_whose_client_leaves_is_given_up(
    running: Scripted, attack: Attack
) -> None:
    """Four requests would take minutes, and share one worker. Others are answered. When the four clients leave, the
    worker that has begun is killed, and replaced."""

    async def attacked() -> int:
        async with httpx.AsyncClient(base_url=running.server.url, timeout=PATIENCE) as client:
            requests = [attack() for _ in range(4)]
            posted = [asyncio.create_task(client.post(path, json=body)) for path, body in requests]
            await until(lambda: len(pool._busy) == 1)
            for _ in range(3):
                await first_token(client)
                assert (await client.get("/health")).status_code == 200
            assert not any(each.done() for each in posted), "the attack is over"
            assert len(pool._busy) == 1, "one client has one of two workers"
            (worker,) = pool._busy
            for each in posted:
                each.cancel()
            await asyncio.gather(*posted, return_exceptions=True)
            return int(worker.pid)

    with without_budget(running) as pool:
        killed = asyncio.run(attacked())
        wait_for(lambda: killed not in running.service.planner.pids)
        wait_for(lambda: not is_running(killed))
        wait_for(lambda: len(running.service.planner.pids) == 2 and not pool._busy)
        path, body = parsing(0.01)
        assert patient_http.post(f"{running.server.url}{path}", json=body).status_code == 200


_mixed = cycle(ATTACKS.values())


def mix() -> tuple[str, Body]:
    return next(_mixed)()


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_others_do_not_wait_for_floods(running: Scripted, name: str) -> None:
    url = running.server.url
    still = asyncio.run(quiet(url))
    waits, statuses = asyncio.run(flooded(url, name))
    assert set(statuses) <= {"0", "400", "413", "415", "429", "503"}, statuses
    assert waits.chat < MARGIN * still.chat, (waits.chat, still.chat)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "requests", "leave_after"),
    [(schemas, 4, None), (schemas, 8, 1.0), (parsing, 3, None), (mix, 8, 1.0)],
    ids=["schemas", "schemas-left", "parsing", "mix-left"],
)
def test_others_do_not_wait(running: Scripted, attack: Any, requests: int, leave_after: float | None) -> None:
    url = running.server.url
    still = asyncio.run(quiet(url))
    waits, statuses, seconds = asyncio.run(attacked(url, attack, requests, leave_after=leave_after))
    assert set(statuses) <= {0, 200, 400, 413, 429, 503}, statuses
    assert waits.chat < MARGIN * still.chat, (waits.chat, still.chat)
    assert waits.chat < seconds / 2, "nobody waits for all of the attack"
