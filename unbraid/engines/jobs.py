"""Jobs: work that an event loop hands to a thread, with results that come back one by one.

Models that compute in this process block their thread. So a worker thread runs them, and puts their results into a
`Job`; the event loop takes them out. All results since the last look are one batch: a slow loop gets larger batches,
and the thread never waits for it.

`put` and `end` are for the thread, `batches` is for the loop, `abort` is for either. The order of the reads in
`batches` matters: results that are put in after a batch was taken always wake the loop again, and results that were put
in before the end are seen before the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")
End = TypeVar("End")


class Job(Generic[Item, End]):
    """One request. Make it in the event loop that waits for its results."""

    def __init__(self) -> None:
        self.aborted = False
        """Nobody wants more results. The worker looks at this between its steps."""
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._end: End | Exception | None = None
        self._ready = asyncio.Event()
        self._told = False

    @property
    def ended(self) -> bool:
        return self._end is not None

    @property
    def result(self) -> End:
        """How the job ended. Only after `batches` has been used up."""
        assert self._end is not None
        assert not isinstance(self._end, Exception)
        return self._end

    def put(self, items: Iterable[Item]) -> None:
        """Hand over results. Called in the worker thread."""
        self._items.extend(items)
        if self._items:
            self._tell()

    def end(self, end: End | Exception) -> None:
        """End the job, with its result or its error. Only the first end counts. May be called in any thread."""
        if self._end is None:
            self._end = end
            self._tell()

    def abort(self) -> None:
        """Ask the worker to stop. May be called in any thread."""
        self.aborted = True

    async def batches(self) -> AsyncGenerator[list[Item], None]:
        """The results as they come, then the job's error if it has failed. Closing the generator aborts the job."""
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                self._told = False  # before the items are taken: from now on, new ones wake the loop again
                end = self._end  # before the items, too: what was put in before the end is in them
                items = [self._items.popleft() for _ in range(len(self._items))]
                if items:
                    yield items
                if isinstance(end, Exception):
                    raise end
                if end is not None:
                    return
        finally:
            self.abort()

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the event loop is closed: nobody listens any more
            self.abort()
