"""A worker's end of the pipe: it says that it is ready, and tells and asks for metrics.

The parent's messages are read in a thread. When the parent is gone, the worker ends as at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Link:
    """The way to the parent, for a worker whose metrics `metrics` gives."""

    def __init__(self, pipe: Connection, metrics: Callable[[], bytes]) -> None:
        self._pipe = pipe
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._asking: dict[int, asyncio.Future[str]] = {}
        self._asked = 0
        threading.Thread(target=self._listen, name="unbraid-worker", daemon=True).start()

    def ready(self, models: str) -> None:
        """Requests are taken now, for these models."""
        self._send("ready", models)

    async def metrics_of_all(self) -> bytes:
        """The metrics of all workers, added up."""
        self._asked += 1
        number = self._asked
        found: asyncio.Future[str] = self._loop.create_future()
        self._asking[number] = found
        try:
            self._send("metrics?", number, self._metrics().decode())
            return (await found).encode()
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
            number, text = rest
            self._loop.call_soon_threadsafe(self._answer, number, text)

    def _answer(self, number: int, text: str) -> None:
        found = self._asking.get(number)
        if found is not None and not found.done():
            found.set_result(text)
