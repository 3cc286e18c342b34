"""Server-sent events: the writer of all streamed replies.

A dialect gives its events as bytes, any number at a time. `stream` waits for the first of them before it answers: until
then a failure has an HTTP status of its own, after that it is told in the stream. A client that leaves cancels the
work at once.

Dialects differ in how an error is written and in what ends a stream; `Framing` says both. For one that generates text,
write a class with the methods of `Chunks`, and use `stream_updates`: it writes each update itself, and does not pass it
through a generator of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..access.protocol import RequestLine
from ..errors import ApiError, as_api_error
from ..http import LINE, SHUTDOWN, UNBUFFERED, while_connected


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
    """The last bytes of a stream, sent after an error too."""


OPENAI = Framing(error_frame, b"data: [DONE]\n\n")


T = TypeVar("T")
U = TypeVar("U", contravariant=True)


class Chunks(Protocol[U]):
    """Writes what is new in a generation as events of a dialect."""

    def first(self) -> bytes:
        """What comes before all else."""
        ...

    def update(self, update: U) -> bytes:
        """The events for what is new."""
        ...

    def last(self) -> bytes:
        """What comes after the last update."""
        ...


class _AsTheyAre:
    """`Chunks` for events that are already encoded."""

    def first(self) -> bytes:
        return b""

    def update(self, update: bytes) -> bytes:
        return update

    def last(self) -> bytes:
        return b""


async def stream(
    receive: Receive,
    events: AsyncGenerator[bytes, None],
    framing: Framing = OPENAI,
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """The reply, once there is something to say; with further `headers`."""
    return await stream_updates(receive, events, _AsTheyAre(), framing, headers)


async def stream_updates(
    receive: Receive,
    updates: AsyncGenerator[T, None],
    chunks: Chunks[T],
    framing: Framing = OPENAI,
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """The streamed reply to a generation, whose updates `chunks` writes. Nothing is sent before the first update,
    because an engine may fail before it."""
    try:
        first = await while_connected(receive, anext(updates, None))
        first_events = chunks.first() + (b"" if first is None else chunks.update(first))
    except BaseException:
        await updates.aclose()
        raise
    write = partial(_write, updates, chunks, framing)
    return EventStream(first_events, write, updates.aclose, lambda: framing.error(SHUTDOWN) + framing.done, headers)


async def _write(
    updates: AsyncGenerator[T, None],
    chunks: Chunks[T],
    framing: Framing,
    send: Send,
    put: Callable[[bytes], bool],
) -> bytes:
    """Send the events, with `put` where that can be done at once. Returns what comes last."""
    write = chunks.update
    try:
        async for update in updates:
            said = write(update)
            if said and not put(said):
                await send({"type": "http.response.body", "body": said, "more_body": True})
        return chunks.last() + framing.done
    except OSError:  # the connection: there is nobody to tell
        raise
    except Exception as error:
        return framing.error(error) + framing.done


async def _apart(work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """Run `work` in a task of its own. A task that is woken goes down through all that awaits in it, from the server to
    the innermost generator, once for each piece; this one has nothing above the work. Who cancels it here has the work
    cancelled, and waits for its end."""
    return await asyncio.create_task(work(*args))


_HEADERS = [
    *((name.lower().encode(), value.encode()) for name, value in UNBUFFERED.items()),
    (b"content-type", b"text/event-stream; charset=utf-8"),
]


class EventStream(Response):
    """The response. `said` are the first events; `write` sends the others and returns the last ones; it is cancelled
    when the client leaves. `close` ends what it writes, also where it was cancelled before it began. `farewell` makes
    what is sent where the server ends before the stream."""

    def __init__(
        self,
        said: bytes,
        write: Callable[[Send, Callable[[bytes], bool]], Coroutine[Any, Any, bytes]],
        close: Callable[[], Coroutine[Any, Any, None]],
        farewell: Callable[[], bytes],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = _HEADERS.copy()
        if headers:
            self.headers.update(headers)
        self._said = said
        self._write = write
        self._close = close
        self._farewell = farewell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            line: RequestLine | None = scope.get(LINE)
            if line is None or not line.begin(send, self.raw_headers, self._said):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self._said, "more_body": True})
            with stream_of(line) as connection:
                last = await while_connected(receive, _apart(self._write, send, connection.put))
        except ApiError as error:
            if error is not SHUTDOWN:
                raise
            last = self._farewell()
        finally:
            await self._close()
        await send({"type": "http.response.body", "body": last})


# Writing together
#
# What streams have ready in one turn of the event loop is written together, at the end of the turn. To write to a
# connection whose client waits wakes the client, and that costs the server more than the write. A client of many
# streams that are written one right after the other is woken once. Nothing waits for more to come: the turn ends as
# soon as all that is ready is worked on. A stream that is alone writes at once, and so does one that has more before
# its last part is out.


class Outbox:
    """All streams of an event loop."""

    def __init__(self) -> None:
        self.open = 0
        """The number of open streams."""
        self.waiting: list[Stream] = []
        """Those that have a part to be written in this turn."""

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream in waiting:
            stream.flush()


class Stream:
    """One stream, while it is written."""

    def __init__(self, outbox: Outbox, parts: RequestLine | None) -> None:
        self._outbox = outbox
        self._parts = parts
        self._held = b""
        """The parts that will be written in this turn of the event loop."""

    def __enter__(self) -> Stream:
        self._outbox.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.open -= 1
        self.flush()

    def put(self, part: bytes) -> bool:
        """Write a part in this turn. Says whether that is done; if not, the part is to be sent as a message."""
        parts, outbox = self._parts, self._outbox
        more = bool(self._held)
        if more:
            self.flush()
        if parts is None or not parts.ready():
            return False
        if more or outbox.open == 1:
            parts.write(part)
            return True
        self._held = part
        if not outbox.waiting:
            asyncio.get_running_loop().call_soon(outbox.flush)
        outbox.waiting.append(self)
        return True

    def flush(self) -> None:
        """Write what is held."""
        if self._held and self._parts is not None:
            held, self._held = self._held, b""
            self._parts.write(held)


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Outbox] = WeakKeyDictionary()


def stream_of(line: RequestLine | None) -> Stream:
    """What writes the stream that answers a request."""
    loop = asyncio.get_running_loop()
    outbox = _outboxes.get(loop)
    if outbox is None:
        outbox = _outboxes[loop] = Outbox()
    return Stream(outbox, line)
