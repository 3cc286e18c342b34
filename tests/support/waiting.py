"""Waiting for what a test means, never for the clock: a condition, with a limit that only a fault reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds after which something has gone wrong, on a slow machine with other things to do, too."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks or threads do."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """The same, where there is no event loop."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
