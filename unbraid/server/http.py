"""Answers over ASGI: streams whose end the client learns of, and work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .errors import ApiError

T = TypeVar("T")


class ClientLeft(Exception):
    """The client closed the connection: there is nobody to answer."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status, error.headers())


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request. Raises `ApiError` where it is larger than `most` bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise ApiError(413, f"the body is larger than {most} bytes, the most that this server takes")
        parts.append(part)
    return b"".join(parts)


async def _left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled once the client is gone."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    watcher: asyncio.Future[None] = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait([task, cast("asyncio.Future[T]", watcher)], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        await _cancel(task, watcher)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def part(data: bytes) -> Message:
    """A part of a body of which there is more to come."""
    return {"type": "http.response.body", "body": data, "more_body": True}


class EventStream(Response):
    """Server-sent events. `write` sends them, as parts; it is cancelled at once when the client leaves. `farewell` is
    what is said where the server ends before the stream."""

    media_type = "text/event-stream"

    def __init__(self, write: Callable[[Send], Awaitable[None]], farewell: bytes) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._write = write
        self._farewell = farewell
        self._pump: asyncio.Future[None] | None = None
        self._expired = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pump = self._pump = asyncio.ensure_future(self._send_all(send))
        watcher: asyncio.Future[None] = asyncio.ensure_future(_left(receive))
        _streams.add(self)
        try:
            await asyncio.wait([pump, watcher], return_when=asyncio.FIRST_COMPLETED)
            if not pump.done():
                raise ClientLeft
            pump.result()
        finally:
            _streams.discard(self)
            await _cancel(pump, watcher)

    def expire(self) -> None:
        """End it now, and say so."""
        self._expired = True
        if self._pump is not None:
            self._pump.cancel()

    async def _send_all(self, send: Send) -> None:
        try:
            await self._write(send)
        except asyncio.CancelledError:
            if not self._expired:
                raise
            await send(part(self._farewell))
        await send({"type": "http.response.body", "body": b""})


_streams: set[EventStream] = set()


def expire_streams() -> None:
    """End all streams, for the server is to end now."""
    for stream in list(_streams):
        stream.expire()
