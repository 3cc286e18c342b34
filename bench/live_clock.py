"""A clock for `live.py` that does not care who else has the processor.

Talkers speak in virtual time. When a model works, that time stands still, and goes on by the CPU time that the work
took: the loop waits for nobody but us. So a recording of a minute is measured in less than a minute on a quiet machine,
and on a busy one with the same result. One model does one thing at a time, as one core does.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.base import Piece
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.whisper.listener import WhisperEngine

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everybody waits."""

    def __init__(self) -> None:
        super().__init__(_Selector(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:  # a thread works, which no talker waits for
            return super().select(None)
        self._loop.now += max(0.0, timeout)
        return super().select(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class TimedListener:
    """A Whisper whose work takes as much virtual time as it takes CPU time."""

    goes_on_from_words = True
    supports_word_times = True
    parallel = 1

    def __init__(self, engine: WhisperEngine) -> None:
        self.engine = engine
        self.model = engine.model
        self.spent = 0.0
        self.calls = 0
        self._real = asyncio.new_event_loop()
        self._free = asyncio.Lock()
        threading.Thread(target=self._real.run_forever, daemon=True).start()

    @property
    def vocabulary(self) -> Vocabulary:
        return self.engine.vocabulary

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        async with self._free:
            before = time.process_time()
            outputs = asyncio.run_coroutine_threadsafe(self._all(request), self._real).result()
            took = time.process_time() - before
            self.spent += took
            self.calls += 1
            await asyncio.sleep(took)
        for output in outputs:
            yield output

    async def _all(self, request: ListenRequest) -> list[Piece | ListenEnd]:
        async with aclosing(self.engine.listen(request)) as outputs:
            return [output async for output in outputs]

    async def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.engine.close(), self._real).result()
        self._real.call_soon_threadsafe(self._real.stop)
