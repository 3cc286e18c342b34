"""The processes that parse. Each takes a part, writes it to a file, and says what it found.

A file appears under its name when it is whole. A worker ends when the process that started it is gone, however that
ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UnbraidError
from . import jsonl
from .part import Part
from .rows import Counts, Parsing

UNFINISHED = ".unfinished"
"""What the name of a file ends with while it is written."""
_AHEAD = 2
"""How many parts are read for each worker before one of them is done: this bounds the memory."""


def kind_of(path: Path) -> ModuleType:
    """The module that reads such files. Raises `UnbraidError` for others."""
    if path.suffix in jsonl.SUFFIXES:
        return jsonl
    if path.suffix in (".parquet", ".pq"):
        try:
            from . import parquet
        except ImportError as error:
            raise UnbraidError(f"Parquet needs pyarrow ({error}): pip install 'unbraid[datasets]'") from error
        return parquet
    raise UnbraidError(f"{path} is no dataset that is known: give files that end with .parquet or .jsonl")


class Workers:
    """So many processes, which parse in one way."""

    def __init__(self, parsing: Parsing, count: int) -> None:
        self._count = count
        self._pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (parsing,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def parse(self, kind: str, parts: Iterator[tuple[Part, Path]]) -> Iterator[tuple[Part, Counts]]:
        """Parse parts, each to its file. They come out as they are done."""
        running: dict[Future[Counts], Part] = {}
        more = True
        while more or running:
            while more and len(running) < self._count * _AHEAD:
                following = next(parts, None)
                more = following is not None
                if following is not None:
                    part, path = following
                    running[self._pool.submit(_parse, kind, part, path)] = _without_data(part)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                part = running.pop(future)
                try:
                    yield part, future.result()
                except BrokenProcessPool as error:
                    message = "a process that parses was ended from outside, perhaps for want of memory: start again"
                    raise UnbraidError(f"{message}; what is done is kept") from error


def _without_data(part: Part) -> Part:
    return Part(part.first, part.rows, part.done, b"")


_parsing: list[Parsing] = []


def _begin(parsing: Parsing) -> None:
    """In a new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it sees to the end
    _parsing.append(parsing)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


def _parse(kind: str, part: Part, path: Path) -> Counts:
    unfinished = path.with_name(path.name + UNFINISHED)
    found: Counts = kind_of(Path(f"a{kind}")).parse_part(part, _parsing[0], unfinished)
    os.replace(unfinished, path)
    return found
