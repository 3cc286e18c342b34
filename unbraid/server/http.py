"""Requests and replies over ASGI: bodies, JSON, and work that ends when the client leaves or the server shuts down.

Two things can end the work for a request early. When its client closes the connection, `while_connected` cancels the
work and raises `ClientLeft`: there is nobody to answer. When the server has to end, `expire_all` cancels whatever runs
inside `until_shutdown`, which raises `SHUTDOWN` for the client to be told. Streams are in `api.sse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast
from weakref import WeakSet

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from .errors import ApiError
from .planning.sender import Sender, sender

T = TypeVar("T")


ANTHROPIC_VERSION = "anthropic-version"
"""The header that Anthropic's clients send with every request. What it says makes no difference, and it may be missing
where the path says enough."""

CLIENT = "unbraid.client"
"""The key of a request's scope under which stands who sent it: a digest of the API key."""


def client_of(request: Request) -> str:
    """Who sent a request. What is kept for one client is not shown to another. Without API keys all are one."""
    return str(request.scope.get(CLIENT, ""))


class ClientLeft(Exception):
    """The client closed the connection: there is nobody to answer."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status, error.headers())


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request. Raises `ApiError` where it is larger than `most` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    body = await until_shutdown(_read(request, most))
    sender.get(Sender()).size = len(body)
    return body


async def _read(request: Request, most: int) -> bytes:
    parts, size = [], 0
    asking = sender.get(Sender())
    try:
        async for part in request.stream():
            size += len(part)
            asking.values += sum(map(part.count, (b",", b"[", b"{")))
            if size > most:
                raise _too_large(most)
            parts.append(part)
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes, the most that this server takes")


async def _left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. If the client leaves before, cancels it and raises `ClientLeft`."""
    task: asyncio.Future[T] = asyncio.ensure_future(until_shutdown(work))
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


# Work that ends when the server has to end

_working: set[asyncio.Task[Any]] = set()
_expired: WeakSet[asyncio.Task[Any]] = WeakSet()

SHUTDOWN = ApiError(503, "the server ended before the reply did: ask again", code="shutdown", retry_after=1.0)


def expire_all() -> None:
    """Cancel all work, because the server has to end now. The clients are told."""
    for task in list(_working):
        _expired.add(task)
        task.cancel()


async def until_shutdown(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises `SHUTDOWN` if the server has to end before."""
    task = asyncio.ensure_future(work)
    _working.add(task)
    try:
        return await task
    except asyncio.CancelledError:
        if task not in _expired:
            task.cancel()
            raise
        raise SHUTDOWN from None
    finally:
        _working.discard(task)
