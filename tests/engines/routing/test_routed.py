"""Several engines as one, with engines that play scripts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from unbraid.engines import Engine, EngineDown, EngineError, Finish, Generation, Load, Unsupported
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.engines.routing import Routed, Routing

from ...support.in_loop import collect, in_loop
from ...support.waiting import until

GOOD = script("abc")
REQUEST = Generation(prompt=(1, 2))
QUIET = Routing(check_interval=60.0)


def player(one: Script = GOOD) -> ReplayEngine:
    return ReplayEngine([one], repeat=True)


def routed(*engines: Engine, routing: Routing = QUIET) -> Routed:
    return Routed(engines, routing)


def played(*engines: ReplayEngine) -> list[int]:
    return [len(engine.requests) for engine in engines]


async def one_after_another(engine: Engine, times: int) -> list[Any]:
    return [(await collect(engine.generate(REQUEST)))[-1] for _ in range(times)]


@in_loop
async def test_one_after_another_goes_round() -> None:
    engines = [player() for _ in range(3)]
    one = routed(*engines)
    assert await one_after_another(one, 6) == [Finish("stop", 2, 3)] * 6
    assert played(*engines) == [2, 2, 2]
    await one.close()


@in_loop
async def test_the_one_with_the_least_to_do() -> None:
    busy, idle = player(GOOD.hanging(after=1)), player()
    one = routed(busy, idle)
    first = one.generate(REQUEST)
    await anext(first)
    await one_after_another(one, 3)
    assert played(busy, idle) == [1, 3]
    assert one.load == busy.load == Load(running=1)
    await first.aclose()
    assert busy.aborted == 1
    assert one.load == busy.load == Load()
    await one.close()


@in_loop
async def test_each_is_tried_once() -> None:
    down, failing, good = player(GOOD.failing(error=EngineDown("full", 9.0))), player(GOOD.failing()), player()
    one = routed(down, failing, good)
    assert (await collect(one.generate(REQUEST)))[-1].reason == "stop"
    assert played(down, failing, good) == [1, 1, 1]
    await one.close()


@in_loop
async def test_what_is_said_where_all_fail() -> None:
    one = routed(player(GOOD.failing(error=EngineDown("a", 9.0))), player(GOOD.failing(error=EngineDown("b", 3.0))))
    with pytest.raises(EngineDown) as raised:
        await collect(one.generate(REQUEST))
    assert raised.value.retry_after == 3.0
    await one.close()


@in_loop
async def test_a_request_that_is_wrong_is_wrong_everywhere() -> None:
    wrong, good = player(GOOD.failing(error=Unsupported("no"))), player()
    one = routed(wrong, good)
    with pytest.raises(Unsupported):
        await collect(one.generate(REQUEST))
    assert played(wrong, good) == [1, 0]
    assert not one.replicas[0].failed_checks
    await one.close()


@in_loop
async def test_down_and_back_again() -> None:
    engines = [player(), player()]
    one = routed(*engines, routing=Routing(check_interval=0.02, failures=2))
    await one.check()
    engines[0].down = True
    await until(lambda: one.replicas[0].failed_checks >= 2)
    await one_after_another(one, 3)
    assert played(*engines) == [0, 3]
    await one.check()  # one is enough
    engines[1].down = True
    await until(lambda: one.replicas[1].failed_checks >= 2)
    with pytest.raises(EngineDown, match="all 2 engines are down") as raised:
        await collect(one.generate(REQUEST))
    assert raised.value.retry_after == 0.02
    with pytest.raises(EngineDown):
        await one.check()
    engines[0].down = engines[1].down = False
    await until(lambda: not any(replica.failed_checks for replica in one.replicas))
    await one_after_another(one, 2)
    assert played(*engines) == [1, 4]
    await one.close()


@in_loop
async def test_a_failure_is_looked_into_at_once() -> None:
    flaky, good = player(), player()
    one = routed(flaky, good)  # the next check would be in a minute
    flaky.down = True
    await collect(one.generate(REQUEST))
    await until(lambda: one.replicas[0].failed_checks == 1)
    flaky.down = False
    one.replicas[0].look.set()
    await until(lambda: not one.replicas[0].failed_checks)
    await one.close()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@in_loop
async def test_busy_is_not_down() -> None:
    busy = player(GOOD.failing(error=EngineDown("full", 9.0)))
    one = routed(busy, routing=Routing(check_interval=60.0, failures=1))
    for _ in range(3):
        with pytest.raises(EngineDown, match="full"):
            await collect(one.generate(REQUEST))
    assert played(busy) == [3]
    await one.close()


@in_loop
async def test_what_is_known_of_all() -> None:
    one = routed(ReplayEngine([], model="", context=9), ReplayEngine([], model="m", context=5))
    assert (one.model, one.context, one.vocabulary) == ("m", 5, None)
    with pytest.raises(EngineError, match="no engine"):
        Routed([])
    await one.close()
