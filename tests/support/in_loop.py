"""Asynchronous tests without a plugin."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from unbraid.engines import EngineError

from .waiting import PATIENCE


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test. None may take longer than `PATIENCE`."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def collect(outputs: AsyncGenerator[Any, None]) -> list[Any]:
    return [output async for output in outputs]


async def collect_until_error(outputs: AsyncGenerator[Any, None]) -> tuple[list[Any], EngineError | None]:
    """What came, and what it was broken off by."""
    found = []
    try:
        async for output in outputs:
            found.append(output)  # noqa: PERF401 what came before the error counts
    except EngineError as error:
        return found, error
    return found, None
