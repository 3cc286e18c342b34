"""Replies that are streamed. Until the first of it is there, a failure has a status of its own; after that, it is told
in the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from starlette.types import Receive

from .errors import ApiError, as_api_error
from .http import EventStream, while_connected
from .replies import DONE, frame
from .turn import Update, Usage, usage_of

_FAREWELL = frame(ApiError(503, "the server ended before the reply did", code="shutdown").body()) + DONE


class Chunks(Protocol):
    """Writes what is new as server-sent events."""

    def first(self) -> bytes: ...
    def update(self, update: Update) -> bytes: ...
    def usage(self, usage: Mapping[str, Any]) -> bytes: ...


async def stream(
    receive: Receive, updates: AsyncGenerator[Update, None], chunks: Chunks, usages: Sequence[Usage]
) -> EventStream:
    """The reply, once there is something to say. `usages` are told at the end, where there are any."""
    try:
        first = await while_connected(receive, anext(updates, None))
    except BaseException:
        await updates.aclose()
        raise
    return EventStream(_frames(first, updates, chunks, usages), _FAREWELL)


async def _frames(
    first: Update | None, updates: AsyncGenerator[Update, None], chunks: Chunks, usages: Sequence[Usage]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(updates):
        try:
            yield chunks.first() + (b"" if first is None else chunks.update(first))
            async for update in updates:
                data = chunks.update(update)
                if data:
                    yield data
            yield (chunks.usage(usage_of(usages)) if usages else b"") + DONE
        except Exception as error:
            yield frame(as_api_error(error).body()) + DONE
