"""Replies that are streamed. Until the first of it is there, a failure has a status of its own; after that, it is told
in the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from starlette.types import Receive, Send

from ..errors import as_api_error
from ..http import FAREWELL, EventStream, part, while_connected
from ..turn import Update, Usage, usage_of
from .replies import DONE, frame


async def stream(receive: Receive, parts: AsyncGenerator[bytes, None]) -> EventStream:
    """The reply, once there is something to say. `parts` are server-sent events, any number at a time; what ends the
    stream comes after them by itself."""
    try:
        first = await while_connected(receive, anext(parts, b""))
    except BaseException:
        await parts.aclose()
        raise
    return EventStream(partial(_write, first, parts), FAREWELL)


async def _write(first: bytes, parts: AsyncGenerator[bytes, None], send: Send) -> None:
    async with aclosing(parts):
        try:
            await send(part(first))
            async for data in parts:
                if data:
                    await send(part(data))
        except OSError:  # the connection: there is nobody to tell
            raise
        except Exception as error:
            await send(part(error_frame(error)))
    await send(part(DONE))


def error_frame(error: Exception) -> bytes:
    """What went wrong, where a stream can still say it."""
    return frame(as_api_error(error).body())


class Chunks(Protocol):
    """Writes what is new in a chat or a completion as server-sent events."""

    def first(self) -> bytes: ...
    def update(self, update: Update) -> bytes: ...
    def usage(self, usage: Mapping[str, Any]) -> bytes: ...


async def parts_of(
    updates: AsyncGenerator[Update, None], chunks: Chunks, usages: Sequence[Usage]
) -> AsyncGenerator[bytes, None]:
    """What a chat or a completion says. `usages` are told at the end, where there are any."""
    async with aclosing(updates):
        before = chunks.first()
        async for update in updates:
            yield before + chunks.update(update)
            before = b""
    yield before + (chunks.usage(usage_of(usages)) if usages else b"")
