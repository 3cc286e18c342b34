"""Work that an event loop hands to a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from unbraid.engines.jobs import Job

from ..support.in_loop import in_loop
from ..support.waiting import PATIENCE, until


@in_loop
async def test_all_that_was_put_in_comes_out_in_order_and_then_the_end() -> None:
    job: Job[int, str] = Job()

    def work() -> None:
        for number in range(1000):
            job.put([number])
        job.end("done")
        job.end("done twice")

    threading.Thread(target=work).start()
    found = [number async for batch in job.batches() for number in batch]
    assert found == list(range(1000))
    assert job.result == "done"


@in_loop
async def test_an_error_comes_after_what_was_put_in_before_it() -> None:
    job: Job[int, str] = Job()
    job.put([1, 2])
    job.end(KeyError("broken"))
    batches = job.batches()
    assert await anext(batches) == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        await anext(batches)


@in_loop
async def test_closing_what_reads_it_aborts_the_job() -> None:
    job: Job[int, str] = Job()
    job.put([1])
    async with aclosing(job.batches()) as batches:
        assert await anext(batches) == [1]
        assert not job.aborted
    assert job.aborted


@in_loop
async def test_cancelling_what_waits_for_it_aborts_the_job() -> None:
    job: Job[int, str] = Job()
    task = asyncio.ensure_future(anext(job.batches()))
    await asyncio.sleep(0)
    task.cancel()
    await until(lambda: job.aborted)


def test_a_closed_event_loop_aborts_the_job() -> None:
    async def make() -> Job[int, str]:
        return Job()

    job = asyncio.run(make())
    thread = threading.Thread(target=job.put, args=([1],))
    thread.start()
    thread.join(PATIENCE)
    assert job.aborted
