"""Bodies that trickle in are cut off where they are read, so that the client is told in its dialect.

`in_time` goes around the `receive` of a request. Once the body is there it only passes on, and `receive` waits for the
client to leave.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import Message, Receive

from ..errors import ApiError
from .patience import SLOWEST, Progress


def in_time(receive: Receive, seconds: float) -> Receive:
    """The same `receive`, which raises `ApiError` where a body does not come along. 0 seconds: it never does."""
    if not seconds:
        return receive
    progress = Progress(seconds)
    whole = False

    async def timed() -> Message:
        nonlocal whole
        if whole:
            return await receive()
        begun = time.monotonic()
        try:
            async with asyncio.timeout(progress.left()):
                message = await receive()
        except TimeoutError:
            raise _too_slow(seconds) from None
        progress.came(len(message.get("body", b"")), time.monotonic() - begun)
        whole = not message.get("more_body", False)
        return message

    return timed


def _too_slow(seconds: float) -> ApiError:
    message = (
        f"the body did not arrive in time: it may pause for {seconds:g} seconds (--body-seconds), and must come with "
        f"{SLOWEST} bytes a second after that"
    )
    return ApiError(408, message, code="request_timeout", headers={"Connection": "close"})
