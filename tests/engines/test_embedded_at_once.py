"""The embedded engine with several requests at once, and requests that are given up."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from unbraid.engines import (
    EngineBusy,
    EngineDown,
    EngineFailed,
    Generation,
    Load,
    Piece,
    Sampling,
)
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

from ..support.embedded_model import GREEDY, collect, smollm2
from ..support.waiting import PATIENCE, until
from .conftest import PARALLEL, QUEUE, chat

pytest.importorskip("xllamacpp")


async def _endless(engine: EmbeddedEngine, started: asyncio.Event | None = None) -> None:
    sampling = Sampling(temperature=0, logit_bias=dict.fromkeys(engine.vocabulary.special, -100.0))
    async for _ in engine.generate(Generation(prompt=chat(engine, "Go on for ever."), sampling=sampling)):
        if started is not None:
            started.set()


async def _idle(engine: EmbeddedEngine) -> None:
    """Until all threads are free."""
    await until(lambda: engine.load == Load())


def test_closing_the_generator_ends_the_work(engine: EmbeddedEngine) -> None:
    async def main() -> None:
        output = engine.generate(Generation(prompt=chat(engine, "Tell me a story."), sampling=GREEDY))
        assert isinstance(await anext(output), Piece)
        assert engine.load == Load(running=1)
        await output.aclose()
        await _idle(engine)

    asyncio.run(main())


@pytest.fixture
def small_steps(request: pytest.FixtureRequest) -> Iterator[EmbeddedEngine]:
    """An engine that takes very many steps for a prompt; its parameter is how many slots it has."""
    made = EmbeddedEngine(smollm2(), context=2048, parallel=request.param, batch=8, threads=1)
    yield made
    made.shut()


def _long_prompt(engine: EmbeddedEngine, first: str) -> tuple[int, ...]:
    return (*engine.vocabulary.encode(first + " one two three four" * 512),)[:2000]


class _Progress:
    """What llama.cpp says of the prompts that it reads. `steps` are the counts of tokens read, for each request."""

    def __init__(self, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[list[int]] = []
        self.cached: list[int] = []
        complete = engine._llama.complete

        def watched(body: bytes, callback: Callable[[bytes], bool]) -> None:
            steps: list[int] = []
            self.steps.append(steps)

            def watch(said: bytes) -> bool:
                progress = json.loads(said).get("prompt_progress")
                if progress is not None:
                    if not steps:
                        self.cached.append(progress["cache"])
                    steps.append(progress["processed"])
                return callback(said)

            complete(body, watch)

        monkeypatch.setattr(engine._llama, "complete", watched)


@pytest.mark.parametrize("small_steps", [1], indirect=True)
def test_a_prompt_that_is_being_read_can_be_aborted(
    small_steps: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it is counted by what is cached when the same prompt comes again: a few steps, not all."""
    engine, progress = small_steps, _Progress(small_steps, monkeypatch)
    request = Generation(prompt=_long_prompt(engine, "read"), sampling=GREEDY)

    async def main() -> None:
        for at in range(2):
            task = asyncio.ensure_future(anext(engine.generate(request)))
            await until(lambda at=at: len(progress.steps) > at and len(progress.steps[at]) >= 3)  # type: ignore[misc]
            task.cancel()
            await _idle(engine)

    asyncio.run(main())
    read = progress.cached[1]
    assert progress.steps[0][-1] <= read < len(request.prompt) // 2


@pytest.mark.parametrize("small_steps", [2], indirect=True)
def test_a_prompt_that_waits_for_another_can_be_aborted(
    small_steps: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp says nothing of a prompt that it has not begun to read, so it could not be aborted in there."""
    engine, progress = small_steps, _Progress(small_steps, monkeypatch)

    async def main() -> None:
        requests = [Generation(prompt=_long_prompt(engine, name), sampling=GREEDY) for name in ("first", "second")]
        first = asyncio.ensure_future(anext(engine.generate(requests[0])))
        await until(lambda: bool(progress.steps) and len(progress.steps[0]) >= 2)
        second = asyncio.ensure_future(anext(engine.generate(requests[1])))
        await until(lambda: engine.load == Load(2))
        second.cancel()
        await until(lambda: engine.load == Load(1))
        assert not first.done()
        assert len(progress.steps) == 1
        assert progress.steps[0][-1] < 2000, "the other prompt is still being read"
        first.cancel()
        await _idle(engine)

    asyncio.run(main())


def test_cancelling_ends_the_work_also_of_what_waits(engine: EmbeddedEngine) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(_endless(engine)) for _ in range(PARALLEL + QUEUE)]
        await until(lambda: engine.load == Load(PARALLEL, QUEUE))
        with pytest.raises(EngineBusy, match="running and waiting already"):
            await collect(engine, chat(engine, "Hello"), max_tokens=1)
        tasks[-1].cancel()  # it has not begun, and makes room at once
        await asyncio.wait(tasks[-1:])
        await until(lambda: engine.load.waiting == QUEUE - 1)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )
        await _idle(engine)
        assert (await collect(engine, chat(engine, "Hello"), max_tokens=2)).ids

    asyncio.run(main())


def test_more_streams_than_slots(engine: EmbeddedEngine) -> None:
    prompts = [chat(engine, f"Say the number {number}.") for number in range(6)]

    async def main() -> list[Any]:
        return await asyncio.gather(*(collect(engine, prompt, max_tokens=10) for prompt in prompts))

    for found in asyncio.run(main()):
        assert found.finish is not None
        assert found.finish.completion_tokens == len(found.ids)
        assert len(found.ids) == 10 or found.finish.reason == "stop"


def test_the_event_loop_goes_on_meanwhile(engine: EmbeddedEngine) -> None:
    """While the model computes the next token, other tasks get many turns."""

    async def main() -> None:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        found = await collect(engine, chat(engine, "Tell me a story."), max_tokens=20)
        ticking.cancel()
        assert turns > 10 * found.pieces

    asyncio.run(main())


def test_an_event_loop_that_is_closed_ends_the_work(engine: EmbeddedEngine) -> None:
    loop = asyncio.new_event_loop()
    output = engine.generate(Generation(prompt=chat(engine, "Tell me a story."), sampling=GREEDY))
    assert isinstance(loop.run_until_complete(anext(output)), Piece)
    loop.close()
    asyncio.run(_idle(engine))


def test_use_from_several_threads(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Name a colour.")
    found: list[int] = []

    def run() -> None:
        found.append(len(asyncio.run(collect(engine, prompt, max_tokens=3)).ids))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3, 3, 3]


def test_two_engines_and_closing_one_that_is_busy(engine: EmbeddedEngine) -> None:
    async def main() -> None:
        other = EmbeddedEngine(smollm2(), context=256, parallel=1, threads=1)
        assert (await collect(engine, chat(engine, "Hello"), max_tokens=2)).ids
        started = asyncio.Event()
        tasks = [asyncio.create_task(_endless(other, started)) for _ in range(2)]
        await started.wait()  # and nothing else: the context ends it in a few seconds
        await asyncio.wait_for(other.close(), PATIENCE)
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(end, EngineDown)
        for refused in (other.check(), collect(other, (5,))):
            with pytest.raises(EngineDown, match="closed"):
                await refused
        await other.close()
        with pytest.raises(EngineDown, match="closed"):
            other.vocabulary.encode("a")

    asyncio.run(main())
    assert asyncio.run(collect(engine, chat(engine, "Hello"), max_tokens=2)).ids


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_and_one_that_ends_do_not_hang() -> None:
    path = smollm2().gguf
    script = f"""
import asyncio, gc, os, threading
from unbraid.engines import EngineDown, Generation, Sampling
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine
engine = EmbeddedEngine({str(path)!r}, context=256, parallel=1, threads=1)
child = os.fork()
if child == 0:
    try:
        asyncio.run(engine.check())
    except EngineDown:
        del engine
        gc.collect()
        os._exit(7)  # as multiprocessing does it; sys.exit would wait for llama.cpp's own threads for ever
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
async def endless():
    sampling = Sampling(temperature=0, logit_bias=dict.fromkeys(engine.vocabulary.special, -100.0))
    async for _ in engine.generate(Generation(prompt=(5, 6, 7), sampling=sampling)):
        begun.set()
begun = threading.Event()
threading.Thread(target=lambda: asyncio.run(endless()), daemon=True).start()
begun.wait()
print("leaving")  # with a request that is running
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "leaving\n"


def test_a_file_that_is_no_model(tmp_path: Any) -> None:
    whole = smollm2().gguf.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: 4 << 20])
    with pytest.raises(EngineFailed, match=r"cannot load .*cut\.gguf"):
        EmbeddedEngine(tmp_path / "cut.gguf", context=256, parallel=1, threads=1)


def test_a_model_that_is_stuck(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be aborted inside of a step of llama.cpp. Others are told instead of waiting for it."""

    async def go() -> None:
        outputs = engine.generate(Generation(prompt=chat(engine, "Count to a hundred."), sampling=GREEDY))
        await anext(outputs)
        await engine.check()
        monkeypatch.setattr("unbraid.engines.llama_cpp.embedded._STUCK", -1.0)
        with pytest.raises(EngineDown, match="silent"):
            await engine.check()
        with pytest.raises(EngineDown, match="silent"):
            await anext(engine.generate(Generation(prompt=(1,), sampling=GREEDY)))
        await outputs.aclose()
        await _idle(engine)
        await engine.check()

    asyncio.run(go())


def test_a_model_that_never_comes_back_is_left_alone() -> None:
    """When the process is to end, it ends."""
    program = f"""
import asyncio, threading
from unbraid.engines import Generation
from unbraid.engines.llama_cpp import embedded
embedded._FAREWELL = 0.5
engine = embedded.EmbeddedEngine({str(smollm2().gguf)!r}, context=64, parallel=1)
engine._llama.complete = lambda body, callback: threading.Event().wait()
async def main():
    task = asyncio.ensure_future(anext(engine.generate(Generation(prompt=(1,)))))
    while not engine.load.running:
        await asyncio.sleep(0)
    await engine.close()
    print("closed", flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "closed\n"
    assert done.returncode == 1
    assert "left alone" in done.stderr
