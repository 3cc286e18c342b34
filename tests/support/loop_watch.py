"""How long the event loop of a server is busy with one thing at a time, and with what.

While it is, nobody else is answered. What counts is the CPU time of the loop's own thread, so that a machine with other
things to do changes nothing, and neither do threads and processes that work beside the loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class LoopWatch:
    """The longest turn of the loop so far."""

    seconds: float = 0.0
    what: str = ""

    def __str__(self) -> str:
        return f"{1e3 * self.seconds:.1f} ms in {self.what}"


@contextmanager
def watched() -> Iterator[LoopWatch]:
    """Watch all loops of this process that are asyncio's own (`RunningServer(…, fast=False)`). What was there before is
    hidden from the garbage collector, as the server does itself; the next `watched` need not look through it again. Who
    has seen enough calls `gc.unfreeze`."""
    watch = LoopWatch()
    gc.collect()
    gc.freeze()
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        spent = time.thread_time() - begun
        if spent > watch.seconds:
            watch.seconds, watch.what = spent, repr(handle)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    try:
        yield watch
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


def moment() -> float:
    """CPU seconds that a small piece of work takes on this machine: some 10 ms on a slow one."""

    def once() -> float:
        begun = time.thread_time()
        for _ in range(500):
            json.loads(json.dumps([{"a": 1, "b": ["c"] * 5}] * 5))
        return time.thread_time() - begun

    return max(once() for _ in range(5))
