"""Jobs: what a worker thread produces, handed to the event loop that waits for it.

An engine inside the process computes in threads, and its requests are awaited in event loops. A job is the hand-over
between one thread and one loop: a queue of items that ends with a result or an exception. asyncio's own queues are not
safe across threads; this one is, and it wakes the loop only when there is something to take.

Aborting is cooperative: the consumer sets `aborted`, and the thread looks at it between steps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")
End = TypeVar("End")


class Job(Generic[Item, End]):
    """One request. One thread calls `put` and `end`; the loop in which the job was made calls `take`."""

    def __init__(self) -> None:
        self.aborted = False
        """Nobody waits for more. Also set where the event loop was closed."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._items: deque[Item] = deque()
        self._end: End | Exception | None = None
        self._waking = False

    @property
    def ended(self) -> bool:
        return self._end is not None

    def put(self, items: Iterable[Item]) -> None:
        """In the thread: the next items."""
        added = list(items)
        if added:
            self._items.extend(added)
            self._wake()

    def end(self, end: End | Exception) -> None:
        """In any thread: there is no more. Only the first end counts."""
        if self._end is None:
            self._end = end
            self._wake()

    async def take(self) -> tuple[list[Item], End | None]:
        """In the loop: the items since the last call, and the end, once it is there. Raises an end that is an
        exception, after the items that came before it."""
        await self._ready.wait()
        self._ready.clear()
        self._waking = False  # before the items are taken: those that come from now on wake the loop again
        end = self._end  # before the items, too: all items that precede the end are there when it is
        items = [self._items.popleft() for _ in range(len(self._items))]
        if not isinstance(end, Exception):
            return items, end
        if not items:
            raise end
        self._ready.set()  # for the next call, which raises
        return items, None

    def _wake(self) -> None:
        if self._waking:
            return
        self._waking = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            self.aborted = True
