"""Requests and replies over ASGI: bodies, JSON, and work that ends when the client leaves or the server shuts down.

Two things can end the work for a request early. When its client closes the connection, `while_connected` cancels the
work and raises `ClientLeft`: there is nobody to answer. When the server has to end, `expire_all` cancels whatever runs
inside `until_shutdown` or `while_connected`, which raises `SHUTDOWN` for the client to be told. Streams are in
`api.sse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from .errors import ApiError
from .planning.held import held
from .planning.sender import Sender, sender

T = TypeVar("T")


ANTHROPIC_VERSION = "anthropic-version"
"""The header that Anthropic's clients send with every request. What it says makes no difference, and it may be missing
where the path says enough."""

CLIENT = "unbraid.client"
"""The key of a request's scope under which stands who sent it: a digest of the API key."""


def client_of(request: HTTPConnection) -> str:
    """Who sent a request. What is kept for one client is not shown to another. Without API keys all are one."""
    return str(request.scope.get(CLIENT, ""))


_MOST_DIGITS = 20
_VALUES = (b",", b"[", b"{")
"""What there is about as many of in JSON as there are values."""
_LARGE = 2_000_000
"""A body of more bytes is put together in a thread, where Python lets others run meanwhile."""


class ClientLeft(Exception):
    """The client closed the connection: there is nobody to answer."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status, error.headers())


async def read_body(request: Request, most: int, most_values: int | None = None) -> bytes:
    """The body of a request. Raises `ApiError` where it is larger than `most` bytes, or is JSON with more than
    `most_values` values, as soon as that is known."""
    if announced_size(request) > most:
        raise _too_large(most)
    body = await until_shutdown(_read(request, most, most_values))
    sender.get(Sender()).size = len(body)
    return body


def announced_size(request: Request) -> int:
    """How many bytes the body has, as the request says; 0 where it does not."""
    return whole_number(request.headers.get("content-length", "")) or 0


def whole_number(text: str) -> int | None:
    """A number as clients write it in headers and addresses. None where it is none, or of more digits than any has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


async def _read(request: Request, most: int, most_values: int | None) -> bytes:
    parts, size, values = [], 0, 0
    asking = sender.get(Sender())
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _too_large(most)
            held.add(asking, len(part))
            if most_values is not None:
                values += sum(map(part.count, _VALUES))
                if values > most_values:
                    raise _too_many(most_values)
            parts.append(part)
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(parts) if size < _LARGE else await asyncio.to_thread(b"".join, parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes, the most that this server takes")


def _too_many(most: int) -> ApiError:
    return ApiError(413, f"the body holds more than {most} values (commas and brackets), the most: send less")


# Work that ends early. It runs in the request's own task, which is cancelled; what the work raises then is the reason.


class _Work:
    """What runs in the current task now, and can be interrupted."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._reason: Exception | None = None

    def interrupt(self, reason: Exception) -> None:
        """Have it raise `reason`. Once: what is cancelled already must be let to clean up. Not to be called in its own
        task."""
        if self._task.cancelling() == self._cancelling:
            self._reason = reason
            self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        _working.add(self)
        try:
            return await work
        except asyncio.CancelledError:
            if self._reason is None or self._task.cancelling() > self._cancelling + 1:
                raise  # somebody else has cancelled the task
            raise self._reason from None
        finally:
            if self._reason is not None:
                self._task.uncancel()
            _working.discard(self)


_working: set[_Work] = set()

SHUTDOWN = ApiError(503, "the server ended before the reply did: ask again", code="shutdown", retry_after=1.0)


def expire_all() -> None:
    """Interrupt all work, because the server has to end now. The clients are told."""
    for work in list(_working):
        work.interrupt(SHUTDOWN)


async def until_shutdown(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises `SHUTDOWN` if the server has to end before."""
    return await _Work().run(work)


class Connection:
    """What receives a request's messages, and notices when its client leaves.

    That takes a task that waits for it. There is one for a request, from the first piece of work that its client waits
    for until `close`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._work: _Work | None = None

    async def __call__(self) -> Message:
        return await self._receive()

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. If the client leaves before, cancels it and raises `ClientLeft`. The body of the
        request must have been read."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._wait())
        elif self._watcher.done():
            work.close()
            raise ClientLeft
        self._work = _Work()
        try:
            return await self._work.run(work)
        finally:
            self._work = None

    async def _wait(self) -> None:
        """Wait until the client is gone."""
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            if self._work is not None:
                self._work.interrupt(ClientLeft())

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. If the client leaves before, cancels it and raises `ClientLeft`."""
    if isinstance(receive, Connection):
        return await receive.while_connected(work)
    connection = Connection(receive)
    try:
        return await connection.while_connected(work)
    finally:
        connection.close()
