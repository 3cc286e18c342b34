"""The clock of pieces, on an event loop whose time the test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from unbraid import UnbraidError
from unbraid.engines.http.timeouts import PieceClock, Timeouts


class HeldLoop(asyncio.SelectorEventLoop):
    """Where nothing is left to do but wait, the time that is waited for has come."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if timers and not self._ready:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timers))
        super()._run_once()  # type: ignore[misc]


def held(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner(loop_factory=HeldLoop) as runner:
            runner.run(test())

    run.__name__ = test.__name__
    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def never() -> None:
    await asyncio.get_running_loop().create_future()


TIMEOUTS = Timeouts(first=50.0, piece=70.0)


@held
async def test_the_first_piece_and_each_further_one_have_their_time() -> None:
    for timeouts in (TIMEOUTS, Timeouts(first=70.0, piece=5.0)):
        clock, begun = PieceClock(timeouts), now()
        await clock.wait(asyncio.sleep(10.0))
        with pytest.raises(TimeoutError):
            await clock.wait(never())
        assert (now() - begun, clock.seconds) == (timeouts.first, timeouts.first)
        clock = PieceClock(timeouts)
        for _ in range(3):
            begun = now()
            clock.came = True
            await clock.wait(asyncio.sleep(timeouts.piece / 2))
        with pytest.raises(TimeoutError):
            await clock.wait(never())
        assert (now() - begun, clock.seconds) == (timeouts.piece, timeouts.piece)
        clock.close()


@held
async def test_what_is_no_piece_gives_no_more_time() -> None:
    clock, begun = PieceClock(TIMEOUTS), now()
    for _ in range(49):
        await clock.wait(asyncio.sleep(1.0))
    with pytest.raises(TimeoutError):
        await clock.wait(asyncio.sleep(1.1))
    assert now() - begun == 50.0


@held
async def test_time_between_waits_does_not_count_after_a_piece() -> None:
    clock = PieceClock(TIMEOUTS)
    await clock.wait(asyncio.sleep(1.0))
    await asyncio.sleep(1000.0)  # the reader is slow
    clock.came = True
    await clock.wait(asyncio.sleep(69.0))
    await asyncio.sleep(1000.0)
    clock.came = True
    begun = now()
    with pytest.raises(TimeoutError):
        await clock.wait(never())
    assert now() - begun == 70.0
    clock.close()


@held
async def test_waits_of_different_tasks() -> None:
    clock = PieceClock(TIMEOUTS)
    await asyncio.create_task(clock.wait(asyncio.sleep(1.0)))
    with pytest.raises(TimeoutError):
        await asyncio.create_task(clock.wait(never()))


@held
async def test_a_task_that_is_cancelled_is_not_told_of_a_timeout() -> None:
    clock = PieceClock(TIMEOUTS)
    task = asyncio.create_task(clock.wait(never()))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    both = asyncio.create_task(clock.wait(never()))
    asyncio.get_running_loop().call_at(1050.0, both.cancel)
    with pytest.raises(asyncio.CancelledError):
        await both


@held
async def test_a_task_that_timed_out_can_go_on() -> None:
    clock = PieceClock(TIMEOUTS)
    with pytest.raises(TimeoutError):
        await clock.wait(never())
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    await asyncio.sleep(1.0)


@held
async def test_no_timer_is_left() -> None:
    clock = PieceClock(TIMEOUTS)
    await clock.wait(asyncio.sleep(1.0))
    clock.close()
    begun = now()
    await asyncio.sleep(1000.0)
    assert now() - begun == 1000.0


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["connect", "first", "piece"])
def test_what_is_no_time(name: str, wrong: float) -> None:
    with pytest.raises(UnbraidError, match="seconds above 0"):
        Timeouts(**{name: wrong})  # type: ignore[arg-type]
