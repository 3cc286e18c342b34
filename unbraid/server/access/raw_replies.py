"""Replies written to a connection itself, where no request came far enough to be answered by the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Scope

from ..errors import ApiError

ErrorWriter = Callable[[Scope, ApiError], Response]
"""Writes an error in the dialect of a request. Of its scope there are `path`, `headers`, `method` and `client`."""


def raw_error(
    write: ErrorWriter,
    error: ApiError,
    path: str = "",
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    method: str = "",
    client: tuple[str, int] | None = None,
) -> bytes:
    """The whole reply for an error, after which the connection ends. Of the request: as much as is known."""
    scope = {"type": "http", "path": path, "headers": list(headers), "method": method, "client": client}
    response = write(scope, error)
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
