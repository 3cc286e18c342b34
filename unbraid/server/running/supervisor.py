"""Several worker processes on one port: their parent (`Supervisor`), and each worker's way to the parent (`Link`).

The parent starts the workers, replaces those that end by themselves, and adds up their metrics. A pipe goes from it to
each worker. These messages are tuples:

    ("ready", models)            worker to parent: requests are taken now
    ("metrics?", number, text)   worker to parent: what are the metrics of all? `text` has its own
    ("metrics?",)                parent to worker: what are yours?
    ("metrics", text)            worker to parent: these
    ("metrics", number, text)    parent to worker: the metrics of all
    ("rates?", number, …)        worker to parent: what `Ledger.settle` is asked
    ("rates", number, …)         parent to worker: what it says

The first worker starts alone, so that what is fetched is fetched once; the others start when it is ready. If a worker
dies while they start, the settings are at fault, and all end. Later, another one takes its place. SIGHUP, SIGTERM
and SIGINT are passed on. After the last two, the parent waits for the workers' orderly end. It lets go of the port at
once: the system keeps a port open as long as anybody holds it, and clients would wait there for nobody when the workers
have closed it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from ..access.rates import Rates, Settled
from ..observing.metrics import Totals

_log = logging.getLogger(__name__)
_METRICS_SECONDS = 1.0
"""How long a worker may take to tell its metrics. After that, those count that it told before."""
_PAUSE = 1.0
"""Seconds from the start of a worker to the next try, if it ends at once."""


@dataclass(eq=False)
class _Worker:
    number: int
    process: SpawnProcess
    pipe: Connection
    started: float
    is_ready: bool = False
    stale: bool = False
    """It has to read its settings again once it is ready."""


@dataclass(eq=False)
class _Question:
    """A worker wants to know the metrics of all."""

    asker: _Worker
    number: int
    deadline: float
    missing: set[_Worker] = field(default_factory=set)


class Supervisor:
    """Runs `count` workers until a signal ends them. Each is a process that calls `work` with `arguments`, the socket,
    its end of the pipe, and a secret that all workers share."""

    def __init__(
        self,
        work: Callable[..., None],
        arguments: tuple[Any, ...],
        sock: socket.socket,
        count: int,
        *,
        reloads: bool = False,
    ) -> None:
        self._reloads = reloads
        self._work, self._arguments, self._socket, self._count = work, arguments, sock, count
        self._context = get_context("spawn")
        self._secret = os.urandom(32)
        self._workers: list[_Worker] = []
        self._questions: list[_Question] = []
        self._totals = Totals()
        self._rates = Rates()
        self._started = 0
        self._announced = False
        self._starting = False
        self._ending = False
        self._failed = False

    def run(self, announce: Callable[[str], None]) -> int:
        """Serve. `announce` is called once, with the names of the models, when all workers are ready."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        if self._reloads and os.name == "posix":
            signal.signal(signal.SIGHUP, self._have_reloaded)
        self._start()
        while self._workers or not (self._ending or self._failed):
            self._step(announce)
        return int(self._failed)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        if not self._starting:  # whoever starts needs the port, and is told of the end afterwards
            self._socket.close()
        for worker in self._workers:
            if worker.process.is_alive() and worker.process.pid is not None:
                os.kill(worker.process.pid, number)

    def _have_reloaded(self, number: int, frame: FrameType | None) -> None:
        for worker in self._workers:
            worker.stale = True
            self._reload(worker)

    def _reload(self, worker: _Worker) -> None:
        """Have a worker read its settings again, if it can hear that by now."""
        if worker.stale and worker.is_ready and worker.process.is_alive() and worker.process.pid is not None:
            worker.stale = False
            os.kill(worker.process.pid, signal.SIGHUP)

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        self._started += 1
        process = self._context.Process(
            target=self._work,
            args=(*self._arguments, self._socket, theirs, self._secret),
            name=f"unbraid-{self._started}",
        )
        self._starting = True
        process.start()
        theirs.close()
        self._workers.append(_Worker(self._started, process, ours, time.monotonic()))
        self._starting = False
        if self._ending:  # the signal came meanwhile
            self._socket.close()
            process.terminate()

    def _step(self, announce: Callable[[str], None]) -> None:
        """Wait until a worker says something or ends, and see to it."""
        pipes = {worker.pipe: worker for worker in self._workers}
        ends = {worker.process.sentinel: worker for worker in self._workers}
        for ready in wait([*pipes, *ends], self._timeout()):
            if isinstance(ready, Connection):
                self._hear(pipes[ready], announce)
        for worker in [*self._workers]:
            if not worker.process.is_alive():
                self._bury(worker)
        self._answer()
        if not self._ending and not self._failed:
            # The first one starts alone.
            target = self._count if self._announced or any(worker.is_ready for worker in self._workers) else 1
            while len(self._workers) < target and not self._ending:
                self._start()

    def _timeout(self) -> float | None:
        """Seconds until there is something to do; None if a worker must say something first."""
        now = time.monotonic()
        waits = [question.deadline - now for question in self._questions]
        return max(0.0, min(waits)) if waits else None

    def _bury(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.pipe.close()
        self._totals.end(worker.number)
        for question in self._questions:
            question.missing.discard(worker)
        self._questions = [question for question in self._questions if question.asker is not worker]
        if self._ending or self._failed:
            return
        if not self._announced and not worker.is_ready:
            self._failed = True
            for other in self._workers:
                other.process.terminate()
            return
        _log.error("worker %d ended by itself (%s): another one starts", worker.number, worker.process.exitcode)
        time.sleep(max(0.0, worker.started + _PAUSE - time.monotonic()))

    def _hear(self, worker: _Worker, announce: Callable[[str], None]) -> None:
        try:
            kind, *rest = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()  # it is about to be buried
            return
        if kind == "ready":
            worker.is_ready = True
            self._reload(worker)
            if not self._announced and sum(each.is_ready for each in self._workers) == self._count:
                self._announced = True
                announce(rest[0])
        elif kind == "metrics":
            self._totals.tell(worker.number, rest[0])
            for question in self._questions:
                question.missing.discard(worker)
        elif kind == "metrics?":
            number, own = rest
            self._totals.tell(worker.number, own)
            others = {each for each in self._workers if each is not worker and each.is_ready}
            for other in others:
                self._send(other, "metrics?")
            self._questions.append(_Question(worker, number, time.monotonic() + _METRICS_SECONDS, others))
        elif kind == "rates?":
            number, client, limits, *taken = rest
            if limits != (self._rates.requests, self._rates.tokens):
                self._rates = Rates(requests=limits[0], tokens=limits[1])
            self._send(worker, "rates", number, self._rates.settle(client, *taken))

    def _answer(self) -> None:
        now = time.monotonic()
        for question in [*self._questions]:
            if not question.missing or question.deadline <= now:
                self._questions.remove(question)
                self._send(question.asker, "metrics", question.number, self._totals.text())

    def _send(self, worker: _Worker, *message: Any) -> None:
        with suppress(OSError):  # it is about to be buried
            worker.pipe.send(message)


class Link:
    """A worker's end of the pipe. The parent's messages are read in a thread. When the parent is gone, the worker ends
    as at SIGTERM.

    metrics: returns the metrics of this worker.
    """

    def __init__(self, pipe: Connection, metrics: Callable[[], bytes]) -> None:
        self._pipe = pipe
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._asking: dict[int, asyncio.Future[Any]] = {}
        self._asked = 0
        threading.Thread(target=self._listen, name="unbraid-worker", daemon=True).start()

    def ready(self, models: str) -> None:
        """Requests are taken now, for these models."""
        self._send("ready", models)

    async def metrics_of_all(self) -> bytes:
        """The metrics of all workers, added up."""
        text: str = await self._ask("metrics?", self._metrics().decode())
        return text.encode()

    async def settle(self, client: str, limits: tuple[int, int], request: bool, tokens: int) -> Settled:
        """See `Ledger`: all workers count together."""
        settled: Settled = await self._ask("rates?", client, limits, request, tokens)
        return settled

    async def _ask(self, kind: str, *question: Any) -> Any:
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asking[number] = answer
        try:
            self._send(kind, number, *question)
            return await answer
        finally:
            del self._asking[number]

    def _send(self, *message: Any) -> None:
        with self._lock:
            self._pipe.send(message)

    def _listen(self) -> None:
        try:
            while True:
                self._hear(*self._pipe.recv())
        except (EOFError, OSError):  # the parent is gone
            os.kill(os.getpid(), signal.SIGTERM)
        except RuntimeError:  # our loop is: this process is at its end
            pass

    def _hear(self, kind: str, *rest: Any) -> None:
        if kind == "metrics?":
            self._send("metrics", self._metrics().decode())
        else:
            self._loop.call_soon_threadsafe(self._answer, *rest)

    def _answer(self, number: int, value: Any) -> None:
        answer = self._asking.get(number)
        if answer is not None and not answer.done():
            answer.set_result(value)
