"""Replicas that fail, are slow or full, under a clock that the test holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from unbraid.engines import EngineBusy, EngineDown, EngineError, EngineTimeout, Finish, Generation, Piece
from unbraid.engines.http.refusals import refusal
from unbraid.engines.routing import RetryRules

from ...support.in_loop import collect, in_loop
from ...support.waiting import until
from .scripted import DEAD, FAILING, FULL, OUT_OF_REACH, REQUEST, RESTING, Clock, Fleet, ScriptedEngine

# What fails


@in_loop
async def test_one_that_dies_midway_is_left_out_then_tried_with_one_request() -> None:
    fleet = Fleet(2)
    bad = fleet.engines[0]
    bad.error, bad.after = DEAD, 1
    assert await fleet.ask() == ["stop"], "the other goes on"
    await fleet.routed.check()  # its health check passes
    assert fleet.states == ["open", "closed"]
    assert await fleet.ask(5) == ["stop"] * 5
    assert fleet.asked() == [1, 6]
    fleet.clock.pass_time(5.0)
    assert await fleet.ask(3) == ["stop"] * 3
    assert fleet.asked() == [2, 9], "one request found out that it still dies"
    bad.error = None
    fleet.clock.pass_time(10.0)
    assert await fleet.ask(4) == ["stop"] * 4
    assert fleet.states == ["closed", "closed"]
    assert fleet.asked() == [4, 11]
    await fleet.routed.close()


@pytest.mark.parametrize("error", [DEAD, OUT_OF_REACH, EngineTimeout("it gave no output for 120 seconds")])
@in_loop
async def test_one_that_dies_before_its_first_piece_costs_no_answer(error: EngineError) -> None:
    fleet = Fleet(2)
    fleet.engines[0].error = error
    assert await fleet.ask(6) == ["stop"] * 6
    assert fleet.asked() == [1, 6]
    assert (fleet.routed.replicas[0].failures, fleet.routed.replicas[0].state) == (1, "open")
    await fleet.routed.close()


@pytest.mark.parametrize(
    "error", [FAILING, refusal(502, "bad gateway"), refusal(401, "no key"), refusal(404, "no model")]
)
@in_loop
async def test_one_that_refuses_what_the_others_do_is_left_out_after_three(error: EngineError) -> None:
    """It answers at once, so it would always be the least loaded."""
    fleet = Fleet(2)
    fleet.engines[0].error = error
    assert await fleet.ask(12) == ["stop"] * 12
    assert fleet.asked() == [3, 12]
    await fleet.routed.close()


@in_loop
async def test_if_all_are_left_out_they_are_used_all_the_same() -> None:
    fleet = Fleet(3)
    for engine in fleet.engines:
        engine.error = OUT_OF_REACH
    assert await fleet.ask() == ["EngineDown"]
    assert fleet.states == ["open"] * 3
    fleet.engines[1].error = None
    assert await fleet.ask(2) == ["stop"] * 2
    assert fleet.states == ["open", "closed", "open"]
    await fleet.routed.close()


@in_loop
async def test_the_only_one_is_never_left_out_and_nothing_is_tried_twice() -> None:
    fleet = Fleet(1)
    fleet.engines[0].error = OUT_OF_REACH
    assert await fleet.ask(5) == ["EngineDown"] * 5
    assert fleet.asked() == [5]
    assert (fleet.states, fleet.routed.replicas[0].failures) == (["closed"], 5)
    await fleet.routed.close()


@in_loop
async def test_one_whose_checks_failed_is_tried_as_soon_as_one_succeeds() -> None:
    fleet = Fleet(2)
    bad = fleet.engines[0]
    bad.error, bad.healthy = DEAD, False
    await fleet.ask()
    for _ in range(3):
        await fleet.routed.replicas[0].check()
    assert fleet.states == ["down", "closed"]
    fleet.clock.pass_time(3600.0)
    assert await fleet.ask(3) == ["stop"] * 3
    assert bad.asked == 1
    bad.error, bad.healthy = None, True
    fleet.routed.replicas[0].breaker.open("just now")
    await fleet.routed.replicas[0].check()
    assert fleet.states == ["half-open", "closed"]
    assert await fleet.ask(2) == ["stop"] * 2
    assert fleet.states == ["closed", "closed"]
    await fleet.routed.close()


@in_loop
async def test_a_client_that_leaves_says_nothing_bad() -> None:
    fleet = Fleet(2)
    fleet.routed.replicas[0].breaker.open("a test")
    fleet.clock.pass_time(5.0)
    before = fleet.routed.generate(REQUEST)
    await anext(before)
    assert fleet.states == ["half-open", "closed"]
    await before.aclose()
    assert fleet.states == ["closed", "closed"], "it did what was asked of it"
    assert [replica.running for replica in fleet.routed.replicas] == [0, 0]
    await fleet.routed.close()


@in_loop
async def test_one_that_answers_is_not_down_because_its_checks_are_late() -> None:
    fleet = Fleet(1)
    fleet.engines[0].healthy = False
    for _ in range(5):
        await fleet.routed.replicas[0].check()
        fleet.clock.pass_time(1.0)
        assert await fleet.ask() == ["stop"]
        assert fleet.states == ["closed"]
    await fleet.routed.close()


@in_loop
async def test_what_began_before_its_checks_failed_does_not_show_that_it_is_well() -> None:
    """A server that ends finishes what it has, and takes nothing new."""
    fleet = Fleet(1)
    old = [fleet.routed.replicas[0].begin() for _ in range(3)]
    fleet.engines[0].healthy = False
    for one in old:
        fleet.clock.pass_time(1.0)
        await fleet.routed.replicas[0].check()
        fleet.routed.replicas[0].first_piece(one, [])
        fleet.routed.replicas[0].end(one, None)
    assert fleet.states == ["down"]
    await fleet.routed.close()


# What is full


@in_loop
async def test_one_that_is_full_is_not_broken_and_asked_again_when_it_said() -> None:
    for error, wait in ((FULL, 7.0), (RESTING, 3.0)):
        fleet = Fleet(2)
        fleet.engines[0].error = error
        assert await fleet.ask(4) == ["stop"] * 4
        assert fleet.asked() == [1, 4]
        assert fleet.states == ["closed", "closed"]
        assert fleet.routed.replicas[0].failures == 0
        fleet.engines[0].error = None
        fleet.clock.pass_time(wait)
        await fleet.ask(2)
        assert fleet.asked() == [2, 5]
        await fleet.routed.close()


@in_loop
async def test_full_everywhere_is_429_with_the_shortest_wait() -> None:
    fleet = Fleet(3)
    for engine, wait in zip(fleet.engines, (9.0, 4.0, 6.0), strict=True):
        engine.error = refusal(429, "later", wait)
    with pytest.raises(EngineBusy) as raised:
        await collect(fleet.routed.generate(REQUEST))
    assert (raised.value.status, raised.value.retry_after) == (429, 4.0)
    assert fleet.states == ["closed"] * 3
    await fleet.routed.close()


@pytest.mark.parametrize("other", [RESTING, OUT_OF_REACH, DEAD, FAILING])
@in_loop
async def test_full_here_and_broken_there_is_not_429(other: EngineError) -> None:
    fleet = Fleet(2)
    fleet.engines[0].error = FULL
    fleet.engines[1].error = other
    with pytest.raises(EngineBusy) as raised:
        await collect(fleet.routed.generate(REQUEST))
    assert raised.value.status == 503
    await fleet.routed.close()


@in_loop
async def test_a_wait_without_end_is_not_believed() -> None:
    fleet = Fleet(2)
    fleet.engines[0].error = refusal(429, "never", 1e12)
    await fleet.ask()
    fleet.engines[0].error = None
    fleet.clock.pass_time(120.0)
    await fleet.ask(2)
    assert fleet.asked() == [2, 2]
    await fleet.routed.close()


# What is slow


@in_loop
async def test_one_that_is_slow_is_left_out() -> None:
    fleet = Fleet(3)
    await fleet.usual()
    fleet.engines[0].seconds = 2.5
    assert await fleet.ask(18) == ["stop"] * 18
    assert fleet.states == ["open", "closed", "closed"]
    asked = fleet.engines[0].asked
    assert asked == 8 + 5, "most of the last eight were late then"
    fleet.clock.pass_time(5.0)
    assert await fleet.ask(3) == ["stop"] * 3
    assert fleet.engines[0].asked == asked + 1
    assert fleet.states[0] == "open", "its one request was late, too"
    fleet.engines[0].seconds = 0.1
    fleet.clock.pass_time(10.0)
    assert await fleet.ask() == ["stop"]
    assert fleet.states == ["closed"] * 3
    await fleet.routed.close()


@in_loop
async def test_a_few_long_prompts_make_nobody_slow() -> None:
    fleet = Fleet(2)
    await fleet.usual()
    for _ in range(3):
        fleet.engines[0].seconds = 60.0
        await fleet.ask(2)
        fleet.engines[0].seconds = 0.1
        await fleet.ask(4)
    assert fleet.states == ["closed", "closed"]
    await fleet.routed.close()


@in_loop
async def test_where_all_are_slow_nobody_is() -> None:
    fleet = Fleet(3)
    for engine in fleet.engines:
        engine.seconds = 30.0
    await fleet.ask(60)
    assert fleet.states == ["closed"] * 3
    await fleet.routed.close()


@in_loop
async def test_not_more_than_half_are_left_out_for_being_slow() -> None:
    fleet = Fleet(4)
    await fleet.usual()
    for engine in fleet.engines[:3]:
        engine.seconds = 30.0
    for _ in range(60):
        await fleet.ask()
        assert fleet.states.count("closed") >= 2
    await fleet.routed.close()


@in_loop
async def test_what_still_waits_counts() -> None:
    """A replica that hangs is left out long before its requests time out."""
    fleet = Fleet(2)
    await fleet.usual()
    hanging = [fleet.routed.replicas[0].begin() for _ in range(5)]
    fleet.clock.pass_time(2.5)
    assert await fleet.ask(2) == ["stop", "stop"]
    assert fleet.states == ["open", "closed"]
    for one in hanging:
        fleet.routed.replicas[0].end(one, None)
    await fleet.routed.close()


@in_loop
async def test_clients_that_give_up_on_a_slow_one_count() -> None:
    fleet = Fleet(2)
    await fleet.usual()
    for _ in range(5):
        one = fleet.routed.replicas[0].begin()
        fleet.clock.pass_time(2.5)
        fleet.routed.replicas[0].end(one, None)
    await fleet.ask()
    assert fleet.states == ["open", "closed"]
    await fleet.routed.close()


# How often


@in_loop
async def test_a_dying_fleet_is_not_hammered() -> None:
    """However many requests there are, all tries together are few more than that."""
    fleet = Fleet(4, retries=RetryRules(share=0.2, minimum=10.0))
    for engine in fleet.engines:
        engine.error = FAILING
    assert set(await fleet.ask(500)) == {"EngineFailed"}
    assert 500 + 100 <= sum(fleet.asked()) <= 500 + 100 + 10
    await fleet.routed.close()


@in_loop
async def test_how_often_one_request_is_tried() -> None:
    for most in (0, 1, 3):
        fleet = Fleet(6, retries=RetryRules(most=most))
        for engine in fleet.engines:
            engine.error = FAILING
        assert await fleet.ask() == ["EngineFailed"]
        assert sum(fleet.asked()) == 1 + most
        await fleet.routed.close()


# What is told


@in_loop
async def test_one_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unbraid.engines.routing")
    fleet = Fleet(2)
    bad = fleet.engines[0]
    bad.error = EngineDown("it cannot\nbe reached")
    await fleet.ask(2)
    bad.error = None
    fleet.clock.pass_time(5.0)
    await fleet.ask(2)
    bad.healthy = False
    for _ in range(5):
        await fleet.routed.replicas[0].check()
    bad.healthy = True
    await fleet.routed.replicas[0].check()
    assert [record.getMessage() for record in caplog.records] == [
        "replica 1 is left out for 5.0 seconds: it cannot be reached",
        "a request moves from replica 1 to replica 2: it cannot be reached",
        "replica 1 is tried with one request",
        "replica 1 is back: it answers again",
        "replica 1 is left out: 3 checks failed: it is not well",
        "replica 1 is back: its check succeeded",
    ]
    assert {record.name for record in caplog.records} == {"unbraid.engines.routing"}
    await fleet.routed.close()


@in_loop
async def test_each_replica_as_data() -> None:
    fleet = Fleet(2)
    fleet.engines[0].error = DEAD
    await fleet.ask(3)
    first, second = fleet.routed.replicas
    assert (first.name, first.state, first.running, first.requests, first.failures) == ("replica 1", "open", 0, 1, 1)
    assert (second.state, second.running, second.requests, second.failures) == ("closed", 0, 3, 0)
    assert first.latency is None
    assert second.latency == pytest.approx(0.1)
    await fleet.routed.close()


class Hanging(ScriptedEngine):
    """Gives one piece, and then no more unless it is told to go on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.goes_on = asyncio.Event()

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        async with aclosing(ScriptedEngine.generate(self, request)) as outputs:
            async for output in outputs:
                yield output
                await self.goes_on.wait()


async def hang(fleet: Fleet) -> tuple[Hanging, list[Piece | Finish], asyncio.Task[None]]:
    """A fleet whose first replica hangs with an output that has begun."""
    hanging = Hanging(fleet.clock)
    fleet.routed.replicas[0].engine = fleet.engines[0] = hanging
    outputs: list[Piece | Finish] = []

    async def collect() -> None:
        async for output in fleet.routed.generate(REQUEST):
            outputs.append(output)  # noqa: PERF401 what has come is looked at meanwhile

    task = asyncio.create_task(collect())
    await until(lambda: len(outputs) == 1)
    hanging.healthy = False
    return hanging, outputs, task


@in_loop
async def test_an_output_that_hangs_goes_on_elsewhere_once_the_checks_fail() -> None:
    fleet = Fleet(2)
    hanging, outputs, task = await hang(fleet)
    replica = fleet.routed.replicas[0]
    for _ in range(2):
        await replica.check()
        await asyncio.sleep(0)
        assert not task.done()
    await replica.check()
    await task
    assert [output.ids for output in outputs[:-1] if isinstance(output, Piece)] == [(0,), (1,), (2,)]
    assert isinstance(outputs[-1], Finish)
    assert (hanging.running, replica.running, replica.moved) == (0, 0, 1)
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]
    await fleet.routed.close()


@in_loop
async def test_an_output_that_moves_stays_where_only_the_checks_fail() -> None:
    fleet = Fleet(2)
    hanging, outputs, task = await hang(fleet)
    replica = fleet.routed.replicas[0]
    await replica.check()
    hanging.goes_on.set()
    await until(lambda: len(outputs) > 1)
    for _ in range(3):
        await replica.check()
    await task
    assert (fleet.asked(), replica.moved) == ([1, 0], 0)
    await fleet.routed.close()


@in_loop
async def test_an_output_that_nobody_else_can_go_on_with_is_left_alone() -> None:
    fleet = Fleet(1)
    hanging, outputs, task = await hang(fleet)
    for _ in range(4):
        await fleet.routed.replicas[0].check()
        await asyncio.sleep(0)
    assert not task.done()
    hanging.goes_on.set()
    await task
    assert isinstance(outputs[-1], Finish)
    await fleet.routed.close()


@in_loop
async def test_who_is_cancelled_while_the_checks_fail_is_cancelled() -> None:
    fleet = Fleet(2)
    _, _, task = await hang(fleet)
    for _ in range(2):
        await fleet.routed.replicas[0].check()
    task.cancel()
    await fleet.routed.replicas[0].check()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fleet.asked() == [1, 0]
    await fleet.routed.close()
