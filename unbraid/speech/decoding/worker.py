"""The thread that a model listens in: event loops hand it chunks of sound, and take the tokens that come of them.

A model computes on one call at a time, so one thread has it to itself. Chunks that come while it works wait, and those
that can be decoded together are the next batch.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineDown, EngineFailed, Load, Piece, TokenLogprob, Unsupported
from ..audio.decode import RATE
from ..listening import HeardReason, ListenEnd, ListenRequest, Opening
from .alignment import Attention, token_times
from .sampling import Step

_log = logging.getLogger(__name__)


class Writing(Protocol):
    """An output while it is written: what comes next is the model family's affair."""

    @property
    def begun(self) -> Sequence[int]:
        """The tokens of what it had to begin with."""
        ...

    @property
    def written(self) -> Sequence[int]:
        """Those after it."""
        ...

    @property
    def looks(self) -> list[Attention]:
        """Where the model looked for each of all these, if it was told."""
        ...

    @property
    def no_speech(self) -> float | None:
        """Known after the first step."""
        ...

    @property
    def choices(self) -> Mapping[int, float]: ...

    @property
    def reason(self) -> str | None:
        """Why it is over, as in `ListenEnd`; None if it is not."""
        ...

    def step(self, logits: NDArray[np.float32], looks: NDArray[np.float32] | None = None) -> Step:
        """What comes next; see `unbraid.speech.decoding.sampling`."""
        ...


class Job:
    """One chunk: the worker puts tokens in, an event loop takes them out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request: ListenRequest, writing: Writing) -> None:
        self.request = request
        self.aborted = False
        self._writing = writing
        self._loop = loop
        self._said: deque[TokenLogprob] = deque()
        self._end: ListenEnd | Exception | None = None
        self._ready = asyncio.Event()

    @property
    def no_speech(self) -> float | None:
        return self._writing.no_speech

    def advance(self, logits: NDArray[np.float32], looks: NDArray[np.float32] | None = None) -> Step:
        """What comes next of the job's rows; none of them goes on if it is over, or nobody listens any more.

        looks: where the model looked for it. Wanted only where the request asks for words.
        """
        if self.aborted:
            return Step(())
        kept = looks.copy() if looks is not None and self.request.words else None  # without the other jobs' rows
        step = self._writing.step(logits, kept)
        self.tell(step.said, self._heard())
        return step

    def _heard(self) -> ListenEnd | None:
        written = self._writing
        if written.reason is None:
            return None
        count = len(written.begun) + len(written.written)
        times = token_times(written.looks, len(self.request.samples) / RATE) if written.looks else ()
        reason = cast(HeardReason, written.reason)
        return ListenEnd(reason, len(self.request.prompt), count, written.no_speech, written.choices, times)

    def tell(self, said: Sequence[TokenLogprob] = (), end: ListenEnd | Exception | None = None) -> None:
        self._said += said
        if self._end is None:
            self._end = end
        if not said and end is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the event loop is closed: nobody listens any more
            self.aborted = True

    async def take(self) -> tuple[list[TokenLogprob], ListenEnd | Exception | None]:
        await self._ready.wait()
        self._ready.clear()
        end = self._end  # before the tokens: what comes before the end is there when the end is
        return [self._said.popleft() for _ in range(len(self._said))], end


class ListeningWorker:
    """The thread of one model.

    model: what it is called, for messages.
    decode: writes the outputs of some jobs, in the thread. It may take jobs that are done out of the list.
    batch: how many rows it takes at once; a job that has more by itself is taken alone.
    queue_size: how many jobs may wait.
    alike: jobs of one batch have the same of it.
    """

    def __init__(
        self,
        model: str,
        decode: Callable[[list[Job]], None],
        *,
        batch: int = 1,
        queue_size: int = 256,
        alike: Callable[[ListenRequest], Any] = lambda request: None,
    ) -> None:
        if batch < 1 or queue_size < 1:
            raise Unsupported(f"{model} needs room for 1 chunk or more at once, and for 1 or more that wait")
        self._model = model
        self._decode = decode
        self._batch = batch
        self._queue_size = queue_size
        self._alike = alike
        # It has no size of its own: closing must not wait until there is room.
        self._arriving: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._waiting: deque[Job] = deque()
        """Those that have arrived, in their order. The thread's own."""
        self._running = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"unbraid-{model}", daemon=True)
        self._thread.start()

    @property
    def load(self) -> Load:
        return Load(self._running, self._arriving.qsize() + len(self._waiting))

    async def listen(self, request: ListenRequest, writing: Writing) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        if self.load.waiting >= self._queue_size:
            raise EngineDown(f"{self._model} has {self._queue_size} chunks waiting: try again later")
        job = Job(asyncio.get_running_loop(), request, writing)
        self._arriving.put(job)
        first = True
        try:
            while True:
                said, end = await job.take()
                if said and first:
                    yield Opening(tuple(one.token for one in said), None, tuple(said), job.no_speech)
                elif said:
                    yield Piece(tuple(one.token for one in said), logprobs=tuple(said))
                first = first and not said
                if isinstance(end, ListenEnd):
                    yield end
                    return
                if end is not None:
                    raise end
        finally:
            job.aborted = True

    async def close(self) -> None:
        """End the thread, after the batch that it works on. What waits is told so."""
        self._closed = True
        self._arriving.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- In the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while jobs := self._next_batch():
            self._running = len(jobs)
            try:
                self._decode(jobs)
            except Exception as error:
                _log.exception("%s failed", self._model)
                for job in jobs:
                    job.tell(end=EngineFailed(f"{self._model} failed: {error}"))
            finally:
                self._running = 0
        for job in self._waiting:
            job.tell(end=EngineDown("the engine was closed", retry_after=60.0))

    def _next_batch(self) -> list[Job]:
        """The first of the jobs that wait, and those that are like it. None where the engine is closed."""
        while self._arrived():
            self._waiting = deque(job for job in self._waiting if not job.aborted)
            if self._waiting:
                kind = self._alike(self._waiting[0].request)
                alike = (job for job in self._waiting if self._alike(job.request) == kind)
                jobs = [next(alike)]
                rows = jobs[0].request.beams
                for job in alike:
                    rows += job.request.beams
                    if rows > self._batch:
                        break
                    jobs.append(job)
                for job in jobs:
                    self._waiting.remove(job)
                return jobs
        return []

    def _arrived(self) -> bool:
        """Take all that has arrived, or wait for the next where there is nothing to do. False once it is the end."""
        closed = False
        while not (self._waiting or closed) or not self._arriving.empty():
            job = self._arriving.get()
            if job is None:
                closed = True
            else:
                self._waiting.append(job)
        return not closed
