"""The queue for workers: who comes when."""

from __future__ import annotations

import asyncio

import pytest

from unbraid.server.planning.fair_queue import FairQueue, QueueFull

from ...support.in_loop import in_loop
from ...support.waiting import until


class Crowd:
    """Clients that take a place and keep it until they are told to leave."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.inside: list[str] = []
        self._doors: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, client: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._stay(client))
        self.tasks.append(task)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def _stay(self, client: str) -> None:
        async with self.queue.place(client):
            door = asyncio.Event()
            self.inside.append(client)
            self._doors.append(door)
            await door.wait()

    async def let_one_out(self) -> None:
        before = len(self.inside)
        self._doors.pop(0).set()
        await until(lambda: len(self.inside) > before or not self.queue.waiting)


@in_loop
async def test_clients_take_turns() -> None:
    crowd = Crowd(FairQueue(1, 10, 10))
    for client in "aaaabbc":
        await crowd.come(client)
    for _ in range(6):
        await crowd.let_one_out()
    assert crowd.inside == list("aabcaba")
    await crowd.let_one_out()
    await asyncio.gather(*crowd.tasks)


@in_loop
async def test_one_client_leaves_a_place_for_others() -> None:
    crowd = Crowd(FairQueue(2, 10, 10))
    for client in "aab":
        await crowd.come(client)
    assert crowd.inside == ["a", "b"]
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)


@in_loop
async def test_what_does_not_fit_is_refused_and_says_whose_fault_it_is() -> None:
    queue = FairQueue(1, 3, 2)
    crowd = Crowd(queue)
    for client in "aaa":
        await crowd.come(client)
    with pytest.raises(QueueFull) as own:
        await (await crowd.come("a"))
    assert own.value.own
    await crowd.come("b")
    with pytest.raises(QueueFull) as full:
        await (await crowd.come("c"))
    assert not full.value.own
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)


@in_loop
async def test_who_leaves_while_waiting_leaves_nothing_behind() -> None:
    queue = FairQueue(1, 10, 10)
    crowd = Crowd(queue)
    await crowd.come("a")
    waiting = await crowd.come("b")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert queue.waiting == 0
    # Its turn comes in the moment in which it leaves.
    waiting = await crowd.come("b")
    crowd._doors.pop(0).set()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    await crowd.come("c")
    await until(lambda: "c" in crowd.inside)
    crowd._doors.pop().set()


@in_loop
async def test_all_may_leave_in_the_same_moment() -> None:
    """Those who wait are cancelled before they know it; nobody gives them a place then, and none is lost."""
    crowd = Crowd(FairQueue(1, 10, 10))
    for client in "aaab":
        await crowd.come(client)
    for task in crowd.tasks:
        task.cancel()
    ends = await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 4
    assert crowd.queue.waiting == 0
    await crowd.come("c")
    assert crowd.inside == ["a", "c"]
    crowd.tasks[-1].cancel()
