"""Server-sent events: the writer of all streamed replies.

A dialect gives its events as bytes, any number at a time. `stream` waits for the first of them before it answers: until
then a failure has an HTTP status of its own, after that it is told in the stream. A client that leaves cancels the
work at once.

Dialects differ in how an error is written and in what ends a stream; `Framing` says both. For one that generates text,
write a class with the methods of `Chunks`, and give `events_of` to `stream`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..errors import ApiError, as_api_error
from ..http import SHUTDOWN, while_connected
from ..turns.turn import Update


def frame(body: Any) -> bytes:
    """One event, with JSON for its data."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def error_frame(error: Exception) -> bytes:
    """An error as an event, in OpenAI's dialect."""
    return frame(as_api_error(error).body())


@dataclass(frozen=True)
class Framing:
    """What a dialect says at the end of a stream."""

    error: Callable[[Exception], bytes]
    """The event that tells an error."""
    done: bytes
    """What comes last, after an error too."""


OPENAI = Framing(error_frame, b"data: [DONE]\n\n")


class Chunks(Protocol):
    """Writes what is new in a generation as events of a dialect."""

    def first(self) -> bytes:
        """What comes before all else."""
        ...

    def update(self, update: Update) -> bytes:
        """The events for what is new."""
        ...

    def last(self) -> bytes:
        """What comes after the last update."""
        ...


async def events_of(updates: AsyncGenerator[Update, None], chunks: Chunks) -> AsyncGenerator[bytes, None]:
    """The events of a generation. The first ones wait for the first update: an engine may fail before it."""
    async with aclosing(updates):
        before = chunks.first()
        async for update in updates:
            yield before + chunks.update(update)
            before = b""
    yield before + chunks.last()


async def stream(
    receive: Receive,
    events: AsyncGenerator[bytes, None],
    framing: Framing = OPENAI,
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """The reply, once there is something to say; with further `headers`."""
    try:
        first = await while_connected(receive, anext(events, b""))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(partial(_write, first, events, framing), lambda: framing.error(SHUTDOWN) + framing.done, headers)


async def _write(first: bytes, events: AsyncGenerator[bytes, None], framing: Framing, send: Send) -> None:
    async with aclosing(events):
        try:
            await send(_part(first))
            async for data in events:
                if data:
                    await send(_part(data))
        except OSError:  # the connection: there is nobody to tell
            raise
        except Exception as error:
            await send(_part(framing.error(error)))
    await send(_part(framing.done))


def _part(data: bytes) -> Message:
    """A part of a body that is not the last."""
    return {"type": "http.response.body", "body": data, "more_body": True}


class EventStream(Response):
    """The response. `write` sends the events, and is cancelled when the client leaves. `farewell` makes what is sent
    where the server ends before the stream."""

    media_type = "text/event-stream"

    def __init__(
        self,
        write: Callable[[Send], Coroutine[Any, Any, None]],
        farewell: Callable[[], bytes],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._write = write
        self._farewell = farewell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await while_connected(receive, self._write(send))
        except ApiError as error:
            if error is not SHUTDOWN:
                raise
            await send(_part(self._farewell()))
        await send({"type": "http.response.body", "body": b""})
