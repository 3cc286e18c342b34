"""The worker processes of a server (`worker`): started, given jobs, killed and replaced.

A thread for each worker waits for its answer. A job whose client leaves is given up by killing its worker: nothing else
stops a library in the middle of its work. Workers start when they are first needed, or before (`warm`). One that was
killed is replaced at once, so that the next job need not wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ...errors import OverBudget
from ...fairness import Client, FairQueue, QueueFull
from ...patience import PatientTimer
from ..errors import ApiError, too_many
from ..http import SHUTDOWN
from . import pickling
from .worker import get_ready, read, write

T = TypeVar("T")
_log = logging.getLogger(__name__)
_START = "import sys; sys.path[:] = {path!r}; from unbraid.server.planning.worker import main; main()"
_APART: dict[str, Any] = (
    {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    if sys.platform == "win32"
    else {"process_group": 0}
)
"""Ctrl-C goes to all processes of the terminal's group. It is the server's affair: workers end with their input."""
_PATIENCE = 12.0
"""A job may take so many times its CPU time by the clock: workers give way to everything else."""
_LEAST_PATIENCE = 60.0
"""Seconds for the same, however small the budget is: on a busy machine a worker gives way to all others."""
_MOST_WAITING = 64


class Worker:
    """One process. All but `kill` is for one thread at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _START.format(path=sys.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **_APART)
        self.models: set[str] = set()
        """The models that it knows."""
        self.killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, context: Sequence[bytes], job: Sequence[bytes]) -> bytes | None:
        """The result of a job; None where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write(self._process.stdin, context)
            write(self._process.stdin, job)
            return read(self._process.stdout)
        except (OSError, ValueError):  # it was closed
            return None

    def kill(self) -> None:
        """Have it end now. May be called by any thread."""
        self.killed = True
        self._process.kill()

    def ended(self) -> int:
        """Wait for its end, and say how it ended."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what could not be written any more
                    pipe.close()
        return self._process.wait()


class WorkerPool:
    """Workers, and who waits for them. Belongs to one event loop.

    count: how many there are.
    seconds: the CPU time of a job.
    models: those that jobs may be about.
    preload: a module that each worker imports before its first job.
    """

    def __init__(self, count: int, seconds: float, models: pickling.SharedModels, preload: str | None = None) -> None:
        self._models, self._preload = models, preload
        self._count, self._seconds = count, seconds
        self._queue = FairQueue(count, _MOST_WAITING, shared=True)
        # One thread more than workers: those of jobs that were given up take a moment to see it.
        self._threads = ThreadPoolExecutor(count + 1, "unbraid-worker")
        self._idle: deque[Worker] = deque()
        self._busy: set[Worker] = set()
        self._new: set[Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [worker.pid for worker in (*self._idle, *self._busy, *self._new)]

    def warm(self) -> None:
        """Begin to start the workers that are not there."""
        for _ in range(self._count - len(self._idle) - len(self._busy) - len(self._starting)):
            task = asyncio.get_running_loop().create_task(self._add())
            self._starting.add(task)
            task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled():
            task.exception()  # it was logged, and who waits for the worker raises it

    async def _add(self) -> None:
        worker = Worker()
        self._new.add(worker)
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._threads, self._ask, worker, (get_ready, (self._preload,), {})
            )
        finally:
            self._new.discard(worker)
        self._idle.append(worker)

    async def _free(self) -> Worker:
        """A worker that has nothing to do. Whoever has a place finds one, or waits until it has started."""
        while not self._idle:
            if self._closed:
                raise SHUTDOWN
            self.warm()
            done, _ = await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        return self._idle.popleft()

    async def run(self, client: str, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """What `work` returns or raises. If this is cancelled, the work is given up."""
        try:
            async with self._queue.place(Client(client)):
                worker = await self._free()
                self._busy.add(worker)
                try:
                    answer = await self._answer(worker, work, args, kwargs)
                finally:
                    self._busy.discard(worker)
                    if not worker.killed:
                        self._idle.append(worker)
                    elif not self._closed:
                        self.warm()
        except QueueFull as full:
            raise too_many("requests that are worked out", full) from None
        done, value = answer
        if not done:
            raise pickling.raised(*value)
        result: T = value
        return result

    async def _answer(self, worker: Worker, work: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        watch = PatientTimer(worker.kill)
        watch.begin(max(_LEAST_PATIENCE, _PATIENCE * self._seconds))
        result = loop.run_in_executor(self._threads, self._ask, worker, (work, args, kwargs))
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            worker.kill()
            result.add_done_callback(_ignored)
            raise
        finally:
            watch.end()

    def _ask(self, worker: Worker, job: object) -> Any:
        """In a thread: what the worker answers."""
        changing = self._models.changing()
        models = {name: self._models.sent(name) for name in changing if name not in worker.models}
        answer = worker.ask([pickle.dumps((models, changing, self._seconds))], pickling.packed(job))
        if answer is None:
            raise self._how_it_ended(worker)
        done, value = pickling.unpacked(answer)
        if done or value[0] is not pickling.CannotLearn:
            worker.models.update(models)
        return done, value

    def _how_it_ended(self, worker: Worker) -> Exception:
        was_killed = worker.killed
        code = worker.ended()
        if self._closed or code == -signal.SIGINT:  # Ctrl-C, before the process had a group of its own
            return SHUTDOWN
        if was_killed or code == -getattr(signal, "SIGXCPU", 0):
            return OverBudget(f"the request takes more than {self._seconds:g} seconds to work out: make it smaller")
        _log.error("a worker process ended by itself, with code %d", code)
        return ApiError(500, "the server made a mistake; its log has more", code="internal_error")

    async def close(self) -> None:
        """Kill all of them."""
        self._closed = True
        for worker in (*self._idle, *self._busy, *self._new):
            worker.kill()
        await asyncio.gather(*self._starting, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, worker.ended) for worker in self._idle))
        self._idle.clear()
        await loop.run_in_executor(None, self._threads.shutdown)


def _ignored(result: asyncio.Future[Any]) -> None:
    """Take notice of a result that nobody waits for any more, so that asyncio does not log its error."""
    if not result.cancelled():
        result.exception()
