"""Requests to one model take turns, and no more of them are taken than there is room for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from unbraid.engines import EngineBusy, EngineDown
from unbraid.speech.synthesis.sentences import SentenceQueue

from ...support.in_loop import in_loop


@in_loop
async def test_a_short_text_does_not_wait_for_a_long_one() -> None:
    turns, order, begun = SentenceQueue("model", 8), [], asyncio.Event()

    async def speak(name: str, sentences: int) -> None:
        with turns.request():
            for _ in range(sentences):
                await turns.result(turns.soon(lambda: order.append(name)))
                begun.set()

    long = asyncio.create_task(speak("long", 50))
    await begun.wait()
    await speak("short", 2)
    assert len(order) < 10  # not after all fifty
    await long
    assert order.count("long") == 50
    assert turns.load.running == turns.load.waiting == 0
    await turns.close()


@in_loop
async def test_there_is_room_for_so_many() -> None:
    turns = SentenceQueue("model", 2)
    with turns.request(), turns.request():
        assert turns.load.waiting == 2
        with pytest.raises(EngineBusy, match="try again later"), turns.request():
            pass
    with turns.request():
        pass
    await turns.close()
    with pytest.raises(EngineDown), turns.request():
        pass


@in_loop
async def test_what_waits_is_told_that_the_engine_was_closed() -> None:
    turns, going, let = SentenceQueue("model", 8), threading.Event(), threading.Event()

    def work() -> None:
        going.set()
        assert let.wait(60)

    first = turns.soon(work)
    second = asyncio.create_task(turns.result(turns.soon(lambda: None)))
    await asyncio.to_thread(going.wait)
    assert turns.load.running == 1
    closing = asyncio.create_task(turns.close())
    with pytest.raises(EngineDown):
        await second
    let.set()
    await closing
    await turns.result(first)


@in_loop
async def test_what_is_given_up_is_not_done() -> None:
    turns, let, done = SentenceQueue("model", 8), threading.Event(), []
    first = turns.soon(lambda: let.wait(60))
    second = turns.soon(lambda: done.append("second"))
    second.cancel()
    await asyncio.sleep(0)  # the thread's part of it is cancelled in the loop's next turn
    third = turns.soon(lambda: done.append("third"))
    let.set()
    await asyncio.gather(first, third)
    assert done == ["third"]
    await turns.close()
