"""Bodies that trickle in, or break, are refused where they are read, so that the client is told in its dialect.

`guarded` goes around the `receive` of a request. Once the body is there it only passes on, and `receive` waits for the
client to leave.
"""

from __future__ import annotations

import asyncio
import math
import time

from starlette.types import Message, Receive, Scope

from ..errors import ApiError
from .patience import SLOWEST, Progress

BROKEN = "unbraid.broken"
"""The key of a request's scope under which the connection says what is wrong with the rest of the body."""


def guarded(scope: Scope, receive: Receive, seconds: float) -> Receive:
    """The same `receive`, which raises `ApiError` where a body is broken or does not come along. 0 seconds: for that
    there is any time."""
    progress = Progress(seconds)
    whole = False

    async def timed() -> Message:
        nonlocal whole
        if whole:
            return await receive()
        begun, left = time.monotonic(), progress.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                message = await receive()
        except TimeoutError:
            raise _too_slow(seconds) from None
        if BROKEN in scope:
            raise scope[BROKEN]
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
