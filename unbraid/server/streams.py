"""Replies that are streamed. Until the first of it is there, a failure has a status of its own; after that, it is told
in the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from starlette.types import Receive, Send

from .errors import as_api_error
from .http import FAREWELL, EventStream, part, while_connected
from .replies import DONE, frame
from .turn import Update, Usage, usage_of


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
    return EventStream(partial(_write, first, updates, chunks, usages), FAREWELL)


async def _write(
    first: Update | None, updates: AsyncGenerator[Update, None], chunks: Chunks, usages: Sequence[Usage], send: Send
) -> None:
    async with aclosing(updates):
        try:
            await send(part(chunks.first() + (b"" if first is None else chunks.update(first))))
            async for update in updates:
                data = chunks.update(update)
                if data:
                    await send(part(data))
            await send(part((chunks.usage(usage_of(usages)) if usages else b"") + DONE))
        except OSError:  # the connection: there is nobody to tell
            raise
        except Exception as error:
            await send(part(frame(as_api_error(error).body()) + DONE))
