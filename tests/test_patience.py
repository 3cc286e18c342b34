"""Timers that blame others, on an event loop whose time the test holds: what this process lost does not count."""

from __future__ import annotations

import asyncio

import pytest

from unbraid.engines.http.timeouts import PieceClock, Timeouts, UsualGap
from unbraid.patience import LoopClock, PatientLimit, PatientTimer, patient, patient_time

from .engines.test_timeouts import HeldLoop, held, never, now


def stop(seconds: float) -> None:
    """The process stands still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HeldLoop)
    loop.now += seconds


@held
async def test_a_clock_that_nobody_holds_is_the_loops() -> None:
    clock = LoopClock.current()
    assert clock.now() == patient_time() == now()
    await asyncio.sleep(10.0)
    assert clock.now() == now()


@held
async def test_what_the_loop_lost_does_not_count() -> None:
    clock = LoopClock.current()
    clock.hold()
    begun = clock.now()
    await asyncio.sleep(1.0)
    assert clock.now() - begun == pytest.approx(1.0)
    stop(6.0)
    assert clock.now() - begun == pytest.approx(1.05), "at once, before anything was looked at"
    await asyncio.sleep(1.0)
    assert clock.now() - begun == pytest.approx(2.05, abs=0.1)
    for _ in range(100):  # a loop that is busy all the time
        stop(0.2)
        await asyncio.sleep(0)
    assert clock.now() - begun < 8.5, "twenty seconds by the wall"
    clock.release()


@held
async def test_a_timeout_waits_longer_for_what_the_process_lost() -> None:
    async def wait() -> None:
        async with patient(5.0):
            await asyncio.sleep(2.0)
            stop(60.0)
            await never()

    begun = now()
    with pytest.raises(TimeoutError):
        await wait()
    assert now() - begun == pytest.approx(65.0, abs=0.2)
    async with patient(5.0):
        stop(60.0)
        await asyncio.sleep(4.0)
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


@held
async def test_a_limit_counts_from_when_it_is_set() -> None:
    limit = PatientLimit()
    async with limit:
        await asyncio.sleep(100.0)
        limit.begin(5.0)
        await asyncio.sleep(4.0)
        limit.end()
        await asyncio.sleep(100.0)
    begun = now()
    limit = PatientLimit()
    limit.begin(5.0)
    with pytest.raises(TimeoutError):
        async with limit:
            await never()
    assert now() - begun == pytest.approx(5.0)


@held
async def test_a_timer_may_begin_anew() -> None:
    rings: list[float] = []
    timer = PatientTimer(lambda: rings.append(now()))
    begun = now()
    timer.begin(10.0)
    await asyncio.sleep(9.0)
    timer.begin(10.0)
    await asyncio.sleep(15.0)
    assert [ring - begun for ring in rings] == [pytest.approx(19.0)]
    assert not timer.runs
    timer.begin(10.0)
    timer.begin(1.0)
    await asyncio.sleep(2.0)
    assert len(rings) == 2
    timer.begin(1.0)
    timer.end()
    await asyncio.sleep(2.0)
    assert len(rings) == 2


@held
async def test_a_server_is_not_blamed_for_our_own_silence() -> None:
    clock = PieceClock(Timeouts(first=5.0, piece=5.0))
    await clock.wait(asyncio.sleep(4.0))
    stop(60.0)
    await clock.wait(asyncio.sleep(0.5))
    clock.came = True
    stop(60.0)
    await clock.wait(asyncio.sleep(4.0))
    with pytest.raises(TimeoutError):
        await clock.wait(never())


@held
async def test_the_patience_for_a_piece_follows_what_the_server_usually_takes() -> None:
    usual = UsualGap()
    assert usual.patience(120.0) == 120.0
    clock = PieceClock(Timeouts(follows=True), usual)
    for _ in range(10):
        await clock.wait(asyncio.sleep(0.1))
        clock.came = True
    begun = now()
    with pytest.raises(TimeoutError):
        await clock.wait(never())
    assert now() - begun == pytest.approx(10.0), "twenty times 0.1, and ten at least"
    usual.note(2.0)
    assert usual.patience(120.0) == 40.0
    usual.note(60.0)
    assert usual.patience(120.0) == 120.0
    for _ in range(10_000):
        usual.note(0.1)
    assert usual.patience(120.0) == 10.0
