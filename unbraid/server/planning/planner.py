"""Decides where a request is worked out: at once, in a thread, or in a worker process.

A request of a few lines is worked out at once, which takes less time than to hand it to a thread. One that is larger or
takes longer runs in a thread, within an allowance of CPU time. One that has schemas or grammars in it, which may turn
out to be costly, has a thread of its own kind, so that plain chats never wait behind it. A request that uses up its
allowance begins again in a worker, and a large one goes there at once. A model that cannot be sent to a worker, because
its tokenizer cannot be pickled, is worked with in threads alone, within the workers' CPU time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from ...errors import OverBudget
from ...metering import Cancelled, Meter, metered
from ..http import Sender, body_memory, sender
from ..model import Model
from .pickling import CannotLearn, SharedModels
from .pool import WorkerPool

T = TypeVar("T")
_PLAIN, _STRUCTURED = 4, 1
"""How many threads there are for each kind. They share the interpreter with the event loop."""
_MOST_STRUCTURED = 8
"""When this many requests with schemas wait for their thread, the next one goes to a worker process."""
_SMALL = 2000
"""A body of at most so many bytes is planned in the event loop."""
_AT_ONCE = 0.002
"""The CPU time that a plan may take in the event loop, in seconds. Everything else waits meanwhile."""
_ALLOWANCE = 0.02
"""Seconds of CPU time that any request may take in a thread."""
_ALLOWANCE_A_BYTE = 0.5e-6
"""Further seconds for each byte of the request's body."""
_SWITCH = 0.001
"""Seconds that a thread may keep the interpreter while the event loop wants it."""
LARGE = 100_000
"""Bytes of a body above which it goes to a worker at once."""


_NOBODY = Sender()


class Planner:
    """The threads and the worker processes of one server.

    workers: how many processes. 0: all work is done in threads.
    seconds: the CPU time that one request may take.
    preload: a module that the processes import before their first request. The application names itself.
    """

    def __init__(self, workers: int = 2, seconds: float = 10.0, preload: str | None = None) -> None:
        self._workers, self._seconds = workers, seconds
        self.preload = preload
        self._plain = ThreadPoolExecutor(_PLAIN, "unbraid-plan")
        self._structured = ThreadPoolExecutor(_STRUCTURED, "unbraid-schema")
        self._waiting = 0
        """How many wait for the thread for schemas, or run in it."""
        self._pool: WorkerPool | None = None
        self._models = SharedModels()

    @property
    def pids(self) -> list[int]:
        """The worker processes that there are."""
        return [] if self._pool is None else self._pool.pids

    def add(self, model: Model) -> None:
        """Prepare for requests about a model. Without this, the first one waits for it."""
        if self._workers:
            self._models.add(model)

    def warm(self) -> None:
        """Begin to start the worker processes, which otherwise start when they are first needed."""
        if self._workers:
            self._workers_of_this_loop().warm()
        # The event loop waits so long for a thread that works, each time that it wants the interpreter.
        sys.setswitchinterval(_SWITCH)

    async def close(self) -> None:
        """End all that runs."""
        self._plain.shutdown(wait=False, cancel_futures=True)
        self._structured.shutdown(wait=False, cancel_futures=True)
        if self._pool is not None:
            await self._pool.close()
        self._models.forget()

    async def run(self, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """What `work` returns or raises. If this is cancelled, the work is given up."""
        try:
            return self.at_once(work, *args, **kwargs)
        except OverBudget:
            pass
        return await self.apart(work, args, kwargs)

    def at_once(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What `work` returns or raises, if it is small. Raises `OverBudget` where it is not, or takes too long."""
        asking = sender.get(_NOBODY)
        if asking.size > _SMALL or _goes_on(args[-1]):
            raise OverBudget("the request is not small")
        with metered(Meter(_AT_ONCE)):
            result = work(*args, **kwargs)
        body_memory.release(asking)
        return result

    async def apart(self, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """What `work` returns or raises, in a thread or a worker process."""
        asking = sender.get(_NOBODY)
        try:
            return await self._apart(asking, work, args, kwargs)
        finally:
            body_memory.release(asking)

    async def _apart(self, asking: Sender, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        portable = self._workers > 0 and self._models.can_be_sent(_models_in(args))
        if portable and asking.size > LARGE:
            return await self._in_worker(asking, work, args, kwargs)
        structured = any(map(_has_structure, args))
        if structured and portable and self._waiting >= _MOST_STRUCTURED:
            return await self._in_worker(asking, work, args, kwargs)
        seconds = _ALLOWANCE + _ALLOWANCE_A_BYTE * asking.size if portable else self._seconds
        threads = self._structured if structured else self._plain
        self._waiting += structured
        try:
            return await _in_thread(threads, seconds, partial(work, *args, **kwargs))
        except OverBudget:
            if not portable:
                raise
        finally:
            self._waiting -= structured
        return await self._in_worker(asking, work, args, kwargs)

    async def _in_worker(
        self, asking: Sender, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        try:
            return await self._workers_of_this_loop().run(asking.client, work, args, kwargs)
        except CannotLearn as error:
            self._models.withdraw(*error.args)
            return await _in_thread(self._plain, self._seconds, partial(work, *args, **kwargs))

    def _workers_of_this_loop(self) -> WorkerPool:
        if self._pool is None:
            self._pool = WorkerPool(self._workers, self._seconds, self._models, self.preload)
        return self._pool


def _models_in(args: Iterable[object]) -> Iterator[Model]:
    for arg in args:
        yield from (each for each in (arg.values() if isinstance(arg, dict) else (arg,)) if isinstance(each, Model))


def _goes_on(request: object) -> bool:
    """Whether a request goes on from a stored conversation, which may be long although the request is short."""
    return bool(getattr(request, "before", None))


def _has_structure(request: object) -> bool:
    """Whether a request may have schemas or grammars in it, in whatever dialect."""
    request = getattr(request, "request", request)
    return any(getattr(request, name, None) for name in ("tools", "response_format", "text"))


async def _in_thread(threads: ThreadPoolExecutor, seconds: float, work: Callable[[], T]) -> T:
    meters: list[Meter] = []

    def run() -> T:
        meters.append(Meter(seconds))
        with metered(meters[0]):
            try:
                return work()
            except Cancelled:
                raise asyncio.CancelledError from None

    try:
        # What is logged there is about this request.
        return await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, run)
    except asyncio.CancelledError:
        for meter in meters:
            meter.cancel()
        raise
