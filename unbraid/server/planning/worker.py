"""A worker: a process that does one job after the other, and may be killed at any time.

It reads jobs from its standard input and writes results to its standard output; what a job prints goes to the log. It
ends when its input does, so no worker is left when the server is gone. It has a low priority, and limits. A job that
uses up its CPU time is stopped by the meter, or by a timer if nothing asks the meter. If a library does not come back,
the system ends the process. Not every system has all of these: the server watches the clock as well.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO

from ...errors import OverBudget
from ...metering import Meter, metered
from . import pickling

SIZE = struct.Struct("<Q")
_LATE = 0.2
"""Seconds after which the timer speaks where the meter has not."""
_STUCK = 2.0
"""Seconds after which the system ends the process where not even the timer was heard."""
_MOST_MEMORY = 4 << 30
"""Bytes that a job may take, on top of what the worker has."""
_DEEPEST = 10_000
_GIVES_WAY = 10
"""The niceness: a tenth of the time that the server gets, where both want it."""


def main() -> None:
    jobs, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's affair
    _give_way()
    sys.setrecursionlimit(_DEEPEST)
    warnings.simplefilter("ignore")  # the server has told them
    while (context := read(jobs)) is not None and (job := read(jobs)) is not None:
        write(results, _done(context, job))


def get_ready(preload: str | None) -> None:
    """The first job: load the module `preload`, which imports what later jobs need, and compile the templates."""
    if preload is not None:
        import_module(preload)
    pickling.prepare()


def read(source: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = source.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    data = source.read(size)
    return data if len(data) == size else None


def write(target: IO[bytes], message: Sequence[bytes]) -> None:
    """Write a message, of which there are the parts."""
    target.write(SIZE.pack(sum(map(len, message))))
    for part in message:
        target.write(part)
    target.flush()


def _give_way() -> None:
    if hasattr(os, "nice"):
        os.nice(_GIVES_WAY)


def _done(context: bytes, job: bytes) -> list[bytes]:
    """The result of a job, or what it raised. `context`: what the worker has to know before it can read the job."""
    try:
        models, changing, seconds = pickling.unpacked(context)
        for name, model in models.items():
            pickling.learn(name, model)
        pickling.update(changing)
        meter = Meter(seconds)
        meter.look()  # its clock begins here, so that the timer can tell what asks no meter
        with metered(meter), _Limits(meter, seconds):
            work, args, kwargs = pickling.unpacked(job)
            result = work(*args, **kwargs)
            return pickling.packed((True, result))
    except BaseException as error:
        if isinstance(error, MemoryError):
            error = OverBudget("the request takes too much memory to work out: make it smaller")
        try:
            return pickling.packed((False, pickling.packed_error(error)))
        except Exception:  # it holds something that cannot be sent
            return pickling.packed((False, pickling.packed_error(RuntimeError(repr(error)))))


class _Limits:
    """The limits of the system on a job."""

    def __init__(self, meter: Meter, seconds: float) -> None:
        self._meter, self._seconds = meter, seconds

    def __enter__(self) -> None:
        if sys.platform == "win32":
            return
        import resource

        _limit(resource.RLIMIT_CPU, int(time.process_time() + self._seconds + _STUCK) + 1)
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + _MOST_MEMORY)
        signal.signal(signal.SIGPROF, self._late)
        signal.setitimer(signal.ITIMER_PROF, self._seconds + _LATE)

    def __exit__(self, *_: object) -> None:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _late(self, number: int, frame: FrameType | None) -> None:
        self._meter.look()


def _limit(what: int, most: int) -> None:
    import resource

    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
