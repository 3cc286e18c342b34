"""The worker thread of a speech model: event loops hand it chunks of sound and take the tokens it decodes.

A model computes one call at a time, so one thread has it to itself. Chunks that arrive while it works wait in a queue;
those that can be decoded together form the next batch. The hand-over of tokens to the event loops is `engines.jobs`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineBusy, EngineDown, EngineFailed, Load, Piece, TokenLogprob, Unsupported
from ...engines.jobs import Job
from ..audio.decode import RATE
from ..listening import ListenEnd, ListenRequest, Opening
from .alignment import token_times
from .base import Decoding, Logits, Step

_log = logging.getLogger(__name__)


class ListenJob(Job[TokenLogprob, ListenEnd]):
    """One chunk, and the decoding of its output."""

    def __init__(self, request: ListenRequest, decoding: Decoding) -> None:
        super().__init__()
        self.request = request
        self._decoding = decoding

    @property
    def no_speech(self) -> float | None:
        return self._decoding.no_speech

    def advance(self, logits: Logits, attention: NDArray[np.float32] | None = None) -> Step:
        """In the thread: choose what comes next. No row continues once the output has ended or the job is aborted.

        attention: the cross-attention of the job's rows. Needed only where the request asks for words.
        """
        if self.aborted:
            return Step(())
        # A copy, because a view would keep the rows of all other jobs in memory.
        kept = attention.copy() if attention is not None and self.request.words else None
        step = self._decoding.step(logits, kept)
        self.put(step.emitted)
        end = self._listen_end()
        if end is not None:
            self.end(end)
        return step

    def _listen_end(self) -> ListenEnd | None:
        decoding = self._decoding
        if decoding.reason is None:
            return None
        count = len(decoding.begun) + len(decoding.written)
        seconds = len(self.request.samples) / RATE
        times = token_times(decoding.attention, seconds, self.request.speech) if decoding.attention else ()
        return ListenEnd(decoding.reason, len(self.request.prompt), count, decoding.no_speech, decoding.choices, times)


class ListeningWorker:
    """The thread of one model.

    model: its name, for messages.
    decode: decodes a batch of jobs, in the thread. It may remove jobs that are done from the list.
    batch: how many rows it takes at once. A job that has more rows than that is decoded alone.
    queue_size: how many jobs may wait.
    batch_key: only jobs with equal keys go into one batch.
    """

    def __init__(
        self,
        model: str,
        decode: Callable[[list[ListenJob]], None],
        *,
        batch: int = 1,
        queue_size: int = 256,
        batch_key: Callable[[ListenRequest], Hashable] = lambda request: None,
    ) -> None:
        if batch < 1 or queue_size < 1:
            raise Unsupported(f"{model} needs room for 1 chunk or more at once, and for 1 or more that wait")
        self._model = model
        self._decode = decode
        self._batch = batch
        self._queue_size = queue_size
        self._batch_key = batch_key
        # Unbounded: `close` must not wait for room.
        self._arriving: queue.SimpleQueue[ListenJob | None] = queue.SimpleQueue()
        self._waiting: deque[ListenJob] = deque()
        """Jobs that have arrived, in order. Only the thread touches it."""
        self._running = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"unbraid-{model}", daemon=True)
        self._thread.start()

    @property
    def load(self) -> Load:
        return Load(self._running, self._arriving.qsize() + len(self._waiting))

    async def listen(self, request: ListenRequest, decoding: Decoding) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        if self.load.waiting >= self._queue_size:
            raise EngineBusy(f"{self._model} has {self._queue_size} chunks waiting: try again later")
        job = ListenJob(request, decoding)
        self._arriving.put(job)
        first = True
        async with aclosing(job.batches()) as batches:
            async for tokens in batches:
                ids = tuple(one.token for one in tokens)
                yield Opening(ids, None, tuple(tokens), job.no_speech) if first else Piece(ids, logprobs=tuple(tokens))
                first = False
        yield job.result

    async def close(self) -> None:
        """End the thread after its current batch. Jobs that wait get `EngineDown`."""
        self._closed = True
        self._arriving.put(None)
        await asyncio.to_thread(self._thread.join)

    # In the thread

    def _work(self) -> None:
        while jobs := self._next_batch():
            self._running = len(jobs)
            try:
                self._decode(jobs)
            except Exception as error:
                _log.exception("%s failed", self._model)
                for job in jobs:
                    job.end(EngineFailed(f"{self._model} failed: {error}"))
            finally:
                self._running = 0
        for job in self._waiting:
            job.end(EngineDown("the engine was closed", retry_after=60.0))

    def _next_batch(self) -> list[ListenJob]:
        """The first job that waits, and others with the same key. Empty once the engine is closed."""
        while self._receive():
            self._waiting = deque(job for job in self._waiting if not job.aborted)
            if self._waiting:
                key = self._batch_key(self._waiting[0].request)
                candidates = (job for job in self._waiting if self._batch_key(job.request) == key)
                jobs = [next(candidates)]
                rows = jobs[0].request.beams
                for job in candidates:
                    rows += job.request.beams
                    if rows > self._batch:
                        break
                    jobs.append(job)
                for job in jobs:
                    self._waiting.remove(job)
                return jobs
        return []

    def _receive(self) -> bool:
        """Take all jobs that have arrived; wait for one if none is left to do. False once the engine is closed."""
        closed = False
        while not (self._waiting or closed) or not self._arriving.empty():
            job = self._arriving.get()
            if job is None:
                closed = True
            else:
                self._waiting.append(job)
        return not closed
