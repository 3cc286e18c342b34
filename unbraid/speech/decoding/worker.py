"""The worker thread of a speech model: event loops hand it chunks of sound and take the tokens it decodes.

A model computes one call at a time, so one thread has it to itself. Chunks that can be decoded together form a batch.
Clients take turns, and so do the recordings of each: a batch is filled with a chunk of each client that waits before it
gets a second one of any, and chunks of recordings that have nothing in work form a second batch at once. Batches then
take turns step by step, and for recordings that are new there is a third. So a short recording does not wait for a long
one. The hand-over of tokens to the event loops is `engines.jobs`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineBusy, EngineDown, EngineFailed, Load, Piece, TokenLogprob, Unsupported
from ...engines.jobs import Job
from ...fairness import client
from ..audio.decode import RATE
from ..listening import ListenEnd, ListenRequest, Opening
from .alignment import token_times
from .sampling import Logits, NextTokens, SamplingDecoding

_log = logging.getLogger(__name__)


class ListenJob(Job[TokenLogprob, ListenEnd]):
    """One chunk, and the decoding of its output."""

    def __init__(self, request: ListenRequest, decoding: SamplingDecoding) -> None:
        super().__init__()
        self.request = request
        self.client = client.get().name
        self.languages: tuple[Mapping[int, float], ...] = ()
        """See `Opening.languages`."""
        self._decoding = decoding
        self._stop: Callable[[], None] = _nothing

    def on_abort(self, stop: Callable[[], None]) -> None:
        """In the thread: what ends the work that begins now, where it cannot look at `aborted` itself."""
        self._stop = stop

    def abort(self) -> None:
        super().abort()
        self._stop()

    @property
    def no_speech(self) -> float | None:
        return self._decoding.no_speech

    @property
    def forced(self) -> int:
        """How many tokens follow the next one without a choice."""
        return self._decoding.forced

    def advance(
        self,
        logits: Logits,
        attention: NDArray[np.float32] | None = None,
        before: Sequence[NDArray[np.float32]] = (),
        forced: int = 0,
    ) -> NextTokens:
        """In the thread: choose what comes next. No row continues once the output has ended or the job is aborted.

        attention, before: the cross-attention of the job's rows. Needed only where the request asks for words.
        forced: see `SamplingDecoding.step`.
        """
        if self.aborted:
            return NextTokens(())
        # A copy, because a view would keep the rows of all other jobs in memory.
        kept = attention.copy() if attention is not None and self.request.words else None
        earlier = [one.copy() for one in before] if kept is not None else []
        step = self._decoding.step(logits, kept, earlier, forced)
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


def _nothing() -> None: ...


@dataclass(eq=False)
class _Batch:
    """Jobs that are decoded together."""

    jobs: list[ListenJob]
    """Those that are not done."""
    all: tuple[ListenJob, ...]
    steps: Iterator[None]

    @property
    def running(self) -> int:
        return sum(not job.ended for job in tuple(self.jobs))


_BATCHES = 2  # that take turns
_FOR_NEW = 1  # more, for recordings that have had no turn yet


class ListeningWorker:
    """The thread of one model.

    model: its name, for messages.
    decode: decodes a batch of jobs, in the thread; it yields where another batch may have its turn. It may remove jobs
        that are done from the list.
    batch: how many rows it takes at once. A job that has more rows than that is decoded alone.
    queue_size: how many jobs may wait.
    batch_key: only jobs with equal keys go into one batch.
    """

    def __init__(
        self,
        model: str,
        decode: Callable[[list[ListenJob]], Iterator[None]],
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
        self._batches: deque[_Batch] = deque()
        """Those in work, the next one first. Only the thread changes it."""
        self._turns: dict[object, int] = {}
        """When each recording that is known now had its last turn, and each client that waits."""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"unbraid-{model}", daemon=True)
        self._thread.start()

    @property
    def load(self) -> Load:
        running = sum(batch.running for batch in tuple(self._batches))
        return Load(running, self._arriving.qsize() + len(self._waiting))

    async def listen(
        self, request: ListenRequest, decoding: SamplingDecoding
    ) -> AsyncGenerator[Piece | ListenEnd, None]:
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
                opening = Opening(ids, None, tuple(tokens), job.no_speech, job.languages) if first else None
                yield opening or Piece(ids, logprobs=tuple(tokens))
                first = False
        yield job.result

    async def close(self) -> None:
        """End the thread after its current batch. Jobs that wait get `EngineDown`."""
        self._closed = True
        self._arriving.put(None)
        await asyncio.to_thread(self._thread.join)

    # In the thread

    def _work(self) -> None:
        while self._receive():
            jobs = self._next_jobs()
            if jobs:
                self._batches.appendleft(_Batch(jobs, tuple(jobs), self._decode(jobs)))
            if self._batches:
                self._step()
        while self._batches:
            self._step()
        for job in self._waiting:
            job.end(EngineDown("the engine was closed", retry_after=60.0))

    def _step(self) -> None:
        """One step of the batch whose turn it is."""
        batch = self._batches[0]
        try:
            next(batch.steps)
            self._batches.rotate(-1)
            return
        except StopIteration:
            pass
        except Exception as error:
            _log.exception("%s failed", self._model)
            for job in batch.all:
                job.end(EngineFailed(f"{self._model} failed: {error}"))
        self._batches.popleft()

    def _next_jobs(self) -> list[ListenJob]:
        """What can begin now: jobs of recordings that have nothing in work, or of any if nothing is."""
        self._waiting = deque(job for job in self._waiting if not job.aborted)
        busy = {_recording(job) for batch in self._batches for job in batch.all}
        waiting = [job for job in self._waiting if _recording(job) not in busy]
        if len(self._batches) >= _BATCHES:
            waiting = [job for job in waiting if _recording(job) not in self._turns]
        if not waiting or len(self._batches) >= _BATCHES + _FOR_NEW:
            return []
        order = self._in_turn(waiting)
        key = self._batch_key(order[0].request)
        jobs, rows = [order[0]], order[0].request.beams
        for job in order[1:]:
            if self._batch_key(job.request) != key:
                continue
            rows += job.request.beams
            if rows > self._batch:
                break
            jobs.append(job)
        for job in jobs:
            self._waiting.remove(job)
        there = busy | {who for job in (*self._waiting, *jobs) for who in (_recording(job), _client(job))}
        now = max(self._turns.values(), default=0) + 1
        self._turns = {one: turn for one, turn in self._turns.items() if one in there}
        self._turns.update({who: now for job in jobs for who in (_recording(job), _client(job))})
        return jobs

    def _in_turn(self, waiting: list[ListenJob]) -> list[ListenJob]:
        """The first job of each client, then the second of each, and so on; those first whose turn was longest ago. A
        client's recordings take turns in the same way."""
        of_each = self._dealt(waiting, _recording)
        return self._dealt(of_each, _client)

    def _dealt(self, waiting: list[ListenJob], whose: Callable[[ListenJob], object]) -> list[ListenJob]:
        """One job of each, then a second one of each, and so on."""
        seen: Counter[object] = Counter()
        places: list[tuple[int, int, int]] = []
        for number, job in enumerate(waiting):
            who = whose(job)
            places.append((seen[who], self._turns.get(who, 0), number))
            seen[who] += 1
        return [waiting[number] for _, _, number in sorted(places)]

    def _receive(self) -> bool:
        """Take all jobs that have arrived; wait for one if there is nothing to do. False once the engine is closed."""
        closed = False
        while not (self._waiting or self._batches or closed) or not self._arriving.empty():
            job = self._arriving.get()
            if job is None:
                closed = True
            else:
                self._waiting.append(job)
        return not closed


def _client(job: ListenJob) -> object:
    return ("client", job.client)


def _recording(job: ListenJob) -> object:
    """The recording that a job is of: the job itself, if none was named."""
    return job if job.request.recording is None else job.request.recording
