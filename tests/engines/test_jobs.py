"""Jobs: what a thread puts in, an event loop takes out, in order and without waiting for more than there is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from unbraid.engines.jobs import Job

from ..support.in_loop import in_loop, until


async def taken(job: Job[int, str]) -> tuple[list[int], str]:
    """All items, and the end."""
    found: list[int] = []
    while True:
        items, end = await job.take()
        found += items
        if end is not None:
            return found, end


@in_loop
async def test_all_that_a_thread_puts_in_comes_out_in_order() -> None:
    job: Job[int, str] = Job()

    def work() -> None:
        for at in range(10_000):
            job.put([at])
            job.put([])
        job.end("done")
        job.end("too late")

    thread = threading.Thread(target=work)
    thread.start()
    assert await taken(job) == (list(range(10_000)), "done")
    assert job.ended
    thread.join()


@in_loop
async def test_nothing_comes_until_there_is_something() -> None:
    job: Job[int, str] = Job()
    waiting = asyncio.create_task(job.take())
    job.put([])
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    job.put([1, 2])
    assert await waiting == ([1, 2], None)


@in_loop
async def test_a_failure_is_raised_after_what_came_before_it() -> None:
    job: Job[int, str] = Job()
    job.put([1])
    job.end(RuntimeError("broken"))
    assert await job.take() == ([1], None)
    with pytest.raises(RuntimeError, match="broken"):
        await job.take()


@in_loop
async def test_a_loop_that_is_closed_aborts_the_job() -> None:
    jobs: list[Job[int, str]] = []

    async def make() -> None:
        jobs.append(Job())

    await asyncio.to_thread(lambda: asyncio.run(make()))
    [job] = jobs
    assert not job.aborted
    job.put([1])
    await until(lambda: job.aborted)
