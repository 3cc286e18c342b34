"""Turns: requests to one model that speaks, a sentence each at a time.

A model computes one call at a time, so one thread has it to itself. A request asks for one sentence, and for the next
when it has been given that one. So each waits for one sentence of each of the others at most, however long their texts
are, and nothing is made much earlier than somebody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ...engines.base import EngineBusy, EngineDown, Load

T = TypeVar("T")


class SentenceTurns:
    """The thread of one model.

    model: its name, for messages.
    most: how many requests there may be at once, with the one that is spoken. More are refused with `EngineBusy`.
    """

    def __init__(self, model: str, most: int) -> None:
        self._model = model
        self._most = most
        self._requests = 0
        self._working = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(1, f"unbraid-{model}")

    @property
    def load(self) -> Load:
        running = min(1, self._working)
        return Load(running, max(0, self._requests - running))

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is at work while this is open."""
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        if self._requests >= self._most:
            raise EngineBusy(f"{self._model} has {self._most} texts to speak: try again later")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def soon(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What `work` returns in the thread, when it is its turn. What is cancelled before that is not done at all."""
        try:
            done: Future[T] = self._thread.submit(self._work, work)
        except RuntimeError:
            raise EngineDown("the engine was closed", retry_after=60.0) from None
        return asyncio.wrap_future(done)

    async def result(self, done: asyncio.Future[T]) -> T:
        """The result of `soon`. Raises `EngineDown` if the engine was closed before."""
        try:
            return await done
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and done.cancelled() and not (task is not None and task.cancelling()):
                raise EngineDown("the engine was closed", retry_after=60.0) from None
            raise

    async def close(self) -> None:
        """End the thread after the sentence that it is at."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _work(self, work: Callable[[], T]) -> T:
        self._working = 1
        try:
            return work()
        finally:
            self._working = 0
