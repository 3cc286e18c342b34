"""The worker thread of speech models: batches, the queue, jobs that are left, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from unbraid.engines.base import EngineBusy, EngineDown, EngineFailed, Load, TokenLogprob, Unsupported
from unbraid.speech.decoding.sampling import SamplingDecoding
from unbraid.speech.decoding.worker import ListeningWorker, ListenJob
from unbraid.speech.listening import ANYTHING, EndReason, ListenRequest
from unbraid.speech.moonshine import MoonshineRules

from ...support.in_loop import collect, collect_until_error, in_loop
from ...support.waiting import until


class Counting(SamplingDecoding):
    """Writes as many tokens as it is told."""

    def __init__(self, tokens: int) -> None:
        super().__init__(MoonshineRules(-1, ()), ANYTHING, False, 0.0, tokens, np.random.default_rng(0))

    @property
    def reason(self) -> EndReason | None:
        return "stop" if len(self.written) == self.limit else None

    def next(self, logits: object) -> TokenLogprob:
        self.written.append(len(self.written))
        return TokenLogprob(self.written[-1], b"", 0.0)


def write(jobs: list[ListenJob]) -> None:
    for job in jobs:
        while job.advance(np.zeros((1, 1), np.float32)).rows:
            pass


def step_by_step(jobs: list[ListenJob]) -> Iterator[None]:
    """One token of each job in turn."""
    while jobs:
        jobs[:] = [job for job in jobs if job.advance(np.zeros((1, 1), np.float32)).rows]
        yield


def asked(prompt: int = 1, beams: int = 1) -> ListenRequest:
    return ListenRequest(samples=np.zeros(1, np.float32), prompt=(1,) * prompt, beams=beams)


async def ask(worker: ListeningWorker, prompt: int = 1, beams: int = 1) -> list[Any]:
    return await collect(worker.listen(asked(prompt, beams), Counting(2)))


@in_loop
async def test_jobs_of_one_key_are_decoded_together() -> None:
    batches: list[list[int]] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        batches.append([len(job.request.prompt) for job in jobs])
        write(jobs)
        yield

    worker = ListeningWorker("test", decode, batch=2, batch_key=lambda request: len(request.prompt))
    first = asyncio.create_task(ask(worker))
    await until(lambda: worker.load.running == 1)
    others = [asyncio.create_task(ask(worker, prompt)) for prompt in (1, 2, 1, 1, 2)]
    left = asyncio.create_task(ask(worker, 3))
    await until(lambda: worker.load.waiting == 6)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    go_on.set()
    for outputs in await asyncio.gather(first, *others):
        assert [token for piece in outputs[:-1] for token in piece.ids] == [0, 1]
        assert outputs[-1].reason == "stop"
    assert batches == [[1], [1, 1], [2, 2], [1]]
    await worker.close()


@in_loop
async def test_beams_are_rows_of_a_batch() -> None:
    batches: list[list[int]] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        batches.append([job.request.beams for job in jobs])
        write(jobs)
        yield

    worker = ListeningWorker("test", decode, batch=4)
    first = asyncio.create_task(ask(worker))
    await until(lambda: worker.load.running == 1)
    others = [asyncio.create_task(ask(worker, beams=beams)) for beams in (2, 2, 1, 5, 3, 1)]
    await until(lambda: worker.load.waiting == 6)
    go_on.set()
    await asyncio.gather(first, *others)
    assert batches == [[1], [2, 2], [1], [5], [3, 1]]
    await worker.close()


@in_loop
async def test_jobs_that_are_left_while_they_wait_do_no_harm() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        write(jobs)
        yield

    worker = ListeningWorker("test", decode, batch=1)
    tasks = [asyncio.create_task(ask(worker)) for _ in range(4)]
    await until(lambda: worker.load == Load(1, 3))
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)
    go_on.set()
    await tasks[0]
    assert (await ask(worker))[-1].reason == "stop"
    await worker.close()


@in_loop
async def test_a_full_queue_and_a_closed_one() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        write(jobs)
        yield

    worker = ListeningWorker("test", decode, queue_size=1)
    running = asyncio.create_task(ask(worker))
    await until(lambda: worker.load.running == 1)
    second = asyncio.create_task(collect_until_error(worker.listen(asked(), Counting(1))))
    await until(lambda: worker.load.waiting == 1)
    _, error = await collect_until_error(worker.listen(asked(), Counting(1)))
    assert isinstance(error, EngineBusy)
    assert "1 chunks waiting" in str(error)
    closing = asyncio.create_task(worker.close())
    await asyncio.sleep(0)  # it begins
    go_on.set()
    await closing
    assert (await running)[-1].reason == "stop"
    for _, error in (await second, await collect_until_error(worker.listen(asked(), Counting(1)))):
        assert isinstance(error, EngineDown)
        assert "closed" in str(error)


@in_loop
async def test_recordings_take_turns() -> None:
    """A short recording begins at once, whatever a long one has in work and waiting; and of two that wait, neither has
    all places of a batch."""
    began: list[list[str]] = []
    steps: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        names = [str(job.request.recording) for job in jobs]
        began.append(names)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        for _ in step_by_step(jobs):
            steps.append(names[0])
            yield

    worker = ListeningWorker("test", decode, batch=2)

    def chunk(recording: str, tokens: int) -> asyncio.Task[list[Any]]:
        request = ListenRequest(samples=np.zeros(1, np.float32), prompt=(1,), recording=recording)
        return asyncio.create_task(collect(worker.listen(request, Counting(tokens))))

    long = [chunk("long", 40)]
    await until(lambda: worker.load.running == 1)
    long += [chunk("long", 40) for _ in range(4)]
    await until(lambda: worker.load.waiting == 4)
    short = [chunk("short", 2), chunk("other", 2), chunk("short", 2)]
    await until(lambda: worker.load.waiting == 7)
    go_on.set()
    await asyncio.gather(*long, *short)
    assert began[:2] == [["long"], ["short", "other"]]  # before any other chunk of the long one
    assert steps.index("short") == 1  # and step by step with its first
    assert steps[:4].count("short") == 2
    waiting = [chunk("long", 2), chunk("long", 2), chunk("short", 2)]
    await asyncio.gather(*waiting)
    await worker.close()


@in_loop
async def test_a_batch_has_a_chunk_of_each_recording_before_a_second_one_of_any() -> None:
    began: list[list[str]] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        began.append([str(job.request.recording) for job in jobs])
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        yield from step_by_step(jobs)

    worker = ListeningWorker("test", decode, batch=3)
    names = ["first", "long", "long", "long", "long", "short"]
    tasks = []
    for waiting, name in enumerate(names):
        request = ListenRequest(samples=np.zeros(1, np.float32), prompt=(1,), recording=name)
        tasks.append(asyncio.create_task(collect(worker.listen(request, Counting(2)))))
        await until(lambda: worker.load.running == 1 and worker.load.waiting == waiting)  # noqa: B023 awaited here
    go_on.set()
    await asyncio.gather(*tasks)
    assert began == [["first"], ["long", "short", "long"], ["long", "long"]]
    await worker.close()


@in_loop
async def test_a_model_that_fails_says_so_and_goes_on() -> None:
    failing = [True]

    def decode(jobs: list[ListenJob]) -> Iterator[None]:
        if failing.pop() if failing else False:
            raise RuntimeError("out of memory")
        write(jobs)
        yield

    worker = ListeningWorker("test", decode)
    _, error = await collect_until_error(worker.listen(asked(), Counting(1)))
    assert isinstance(error, EngineFailed)
    assert "test failed: out of memory" in str(error)
    assert (await ask(worker))[-1].reason == "stop"
    await worker.close()
    with pytest.raises(Unsupported):
        ListeningWorker("test", decode, batch=0)
