"""The queue that clients share: whose turn it is, who holds how much, and who is refused."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from unbraid.fairness import Client, FairQueue, LoopTurns, QueueFull

from .support.in_loop import in_loop
from .support.waiting import PATIENCE, until


class Crowd:
    """Clients that take a place and keep it until they are told to leave."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.inside: list[str] = []
        self._doors: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, *, background: bool = False) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._stay(Client(name, background)))
        self.tasks.append(task)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def _stay(self, client: Client) -> None:
        async with self.queue.place(client):
            door = asyncio.Event()
            self.inside.append(client.name)
            self._doors.append(door)
            await door.wait()

    async def let_one_out(self) -> None:
        before = len(self.inside)
        self._doors.pop(0).set()
        await until(lambda: len(self.inside) > before or not self.queue.waiting)

    async def go_home(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@in_loop
async def test_clients_take_turns() -> None:
    crowd = Crowd(FairQueue(1, 10))
    for client in "aaaabbc":
        await crowd.come(client)
    for _ in range(6):
        await crowd.let_one_out()
    assert crowd.inside == list("aabcaba")
    await crowd.let_one_out()
    await asyncio.gather(*crowd.tasks)


@in_loop
async def test_one_client_leaves_a_place_for_others() -> None:
    crowd = Crowd(FairQueue(2, 10, shared=True))
    for client in "aab":
        await crowd.come(client)
    assert crowd.inside == ["a", "b"]
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)


@in_loop
async def test_a_client_that_is_alone_may_hold_all() -> None:
    crowd = Crowd(FairQueue(4, 10))
    for client in "aaaaab":
        await crowd.come(client)
    assert crowd.inside == list("aaaa")
    await crowd.let_one_out()
    crowd._doors.pop().set()
    await asyncio.gather(crowd.tasks[-1])
    assert crowd.inside == list("aaaab")  # one of the four is for others now, and a still waits
    assert crowd.queue.waiting == 1
    await crowd.come("c")
    assert crowd.inside == list("aaaabc")
    await crowd.go_home()


@in_loop
async def test_many_that_come_at_once_are_not_alone() -> None:
    crowd = Crowd(FairQueue(4, 64))
    for client in "ba":
        await crowd.come(client)
    await crowd.let_one_out()
    for _ in range(300):
        await crowd.come("a")
    assert crowd.inside == list("baaa")
    await crowd.come("b")
    assert crowd.inside == list("baaab")
    await crowd.go_home()


@in_loop
async def test_where_others_are_expected_nobody_is_alone() -> None:
    queue = FairQueue(4, 64)
    places = [queue.take(Client("a", others=True)) for _ in range(3)]
    with pytest.raises(QueueFull):
        queue.take(Client("a", others=True))
    queue.take(Client("b", others=True)).leave()
    for place in places:
        place.leave()


@in_loop
async def test_the_background_comes_last_and_leaves_room() -> None:
    crowd = Crowd(FairQueue(4, 10))
    for client in "aaaaa":
        await crowd.come(client, background=True)
    assert crowd.inside == list("aaa")
    await crowd.come("b")
    assert crowd.inside == list("aaab")
    await crowd.come("c")
    await crowd.let_one_out()
    assert crowd.inside == list("aaabc")  # before two of the background, which came first
    await crowd.let_one_out()
    assert crowd.inside == list("aaabca")
    await crowd.go_home()


@in_loop
async def test_what_waits_in_the_background_takes_nobody_elses_room() -> None:
    queue = FairQueue(1, 1)
    crowd = Crowd(queue)
    for _ in range(80):
        await crowd.come("a", background=True)
    await crowd.come("b")
    assert queue.waiting == 80
    await crowd.let_one_out()
    assert crowd.inside == ["a", "b"]
    await crowd.go_home()
    assert queue.waiting == queue.taken == 0


@in_loop
async def test_who_has_most_gives_way() -> None:
    queue = FairQueue(1, 3)
    crowd = Crowd(queue)
    for client in "aaaa":
        await crowd.come(client)
    with pytest.raises(QueueFull) as own:
        await (await crowd.come("a"))
    assert own.value.own
    last = crowd.tasks[3]
    for client in "bc":
        await crowd.come(client)
    with pytest.raises(QueueFull) as displaced:
        await last
    assert displaced.value.own
    with pytest.raises(QueueFull) as full:  # a, b and c wait with one request each
        await (await crowd.come("d"))
    assert not full.value.own
    await crowd.go_home()


@in_loop
async def test_a_greedy_client_costs_another_one_turn() -> None:
    """Client a keeps 200 requests there. Each of b's waits for one of a's at most, as counted in turns."""
    queue = FairQueue(2, 64)
    crowd = Crowd(queue)
    greedy = [await crowd.come("a") for _ in range(200)]
    waits: list[int] = []
    for _ in range(20):
        before = len(crowd.inside)
        await crowd.come("b")
        while crowd.inside.count("b") <= len(waits):
            await crowd.let_one_out()
        waits.append(crowd.inside[before:].count("a"))
        crowd._doors.pop().set()
        await asyncio.sleep(0)
    assert max(waits) <= 1
    assert sum(task.done() for task in greedy) >= 200 - 66 - 20  # the rest of a's was refused at once
    await crowd.go_home()


@in_loop
async def test_a_place_at_once_or_not_at_all() -> None:
    queue = FairQueue(4, 0, shared=True)
    places = [queue.take(Client("a")) for _ in range(3)]
    with pytest.raises(QueueFull) as own:
        queue.take(Client("a"))
    assert own.value.own
    places.append(queue.take(Client("b")))
    with pytest.raises(QueueFull) as full:
        queue.take(Client("c"))
    assert not full.value.own
    for place in places:
        place.leave()
        place.leave()
    assert queue.taken == 0


def test_threads_and_loops_share_it() -> None:
    queue, order = FairQueue(1, 100), []

    async def main(name: str) -> None:
        async def one() -> None:
            place = await queue.enter(Client(name))
            order.append(name)
            await asyncio.to_thread(place.leave)

        await asyncio.gather(*(one() for _ in range(20)))

    threads = [threading.Thread(target=asyncio.run, args=(main(name),)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(order) == sorted("abc" * 20)
    assert queue.taken == queue.waiting == 0


@in_loop
async def test_when_it_closes_all_are_told() -> None:
    queue = FairQueue(1, 10)
    crowd = Crowd(queue)
    await crowd.come("a")
    waiting = await crowd.come("b")
    queue.close(ValueError("closed"))
    with pytest.raises(ValueError, match="closed"):
        await waiting
    with pytest.raises(ValueError, match="closed"):
        queue.take(Client("c"))
    await crowd.go_home()


@in_loop
async def test_who_leaves_while_waiting_leaves_nothing_behind() -> None:
    queue = FairQueue(1, 10)
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
    crowd = Crowd(FairQueue(1, 10))
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


@in_loop
async def test_those_that_come_at_once_begin_a_few_in_a_turn_of_the_loop() -> None:
    turns = LoopTurns(lambda: 2)
    begun: list[str] = []

    async def begin(name: str) -> None:
        turn = turns.begin(lambda: name)
        if turn is not None:
            await turn
        begun.append(name)

    tasks = [asyncio.ensure_future(begin(name)) for name in "aaaaaab"]
    tasks[2].cancel()
    counts = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert max(later - before for before, later in itertools.pairwise([0, *counts])) <= 2
    assert begun.index("b") <= 3, "clients take turns"
    assert begun.count("a") == 5
    await asyncio.gather(*tasks, return_exceptions=True)


def test_turns_of_a_loop_that_ended_hold_up_no_other() -> None:
    turns = LoopTurns(lambda: 1)

    async def begin() -> None:
        assert turns.begin(lambda: "a") is None
        turn = turns.begin(lambda: "b")
        assert turn is not None
        await turn

    async def leave() -> None:
        begun = asyncio.ensure_future(begin())
        await asyncio.sleep(0)
        assert not begun.done()

    asyncio.run(leave())
    asyncio.run(asyncio.wait_for(begin(), PATIENCE))
    assert not turns._line
