"""Batches: many conversations rendered, many turns parsed, in order, in this process or in several.

Templates and parsers are Python, so threads would take turns: only processes help. They cost a second or so to start
(each makes the renderer for itself), and what they return has to be sent back; so they pay for thousands of
conversations, and the default is to do without. Results come one by one: nothing of a batch is kept.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from ..errors import UnbraidError

_CHUNK = 64
"""How many items a process is given at a time."""
Given = TypeVar("Given")
Made = TypeVar("Made")


def in_order(
    work: Callable[[Any, Given], Made], of: object, items: Iterable[Given], workers: int | None
) -> Iterator[Made]:
    """`work(of, item)` for each item.

    work: a function of a module, so that another process can find it.
    of: what it works with; with `workers`, it must be one that can be pickled.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise UnbraidError(f"workers is how many processes there are, 1 or more, not {workers!r}")
    if workers is None or workers == 1:
        return (work(of, item) for item in items)
    return _in_processes(work, of, items, workers)


def _in_processes(
    work: Callable[[Any, Given], Made], of: object, items: Iterable[Given], workers: int
) -> Iterator[Made]:
    waiting: deque[Future[list[Made]]] = deque()
    given = iter(items)
    context = multiprocessing.get_context("spawn")  # a fork beside threads is not safe
    with ProcessPoolExecutor(workers, context, _set_up, (of,)) as pool:
        while chunk := list(islice(given, _CHUNK)):
            waiting.append(pool.submit(_work, work, chunk))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


_of: Any = None
"""In a worker process: what it works with."""


def _set_up(of: Any) -> None:
    global _of
    _of = of


def _work(work: Callable[[Any, Any], Any], items: list[Any]) -> list[Any]:
    return [work(_of, item) for item in items]
