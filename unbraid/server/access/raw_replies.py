"""Replies written to a connection itself, where no request came far enough to be answered by the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Scope

from ..errors import ApiError

ErrorWriter = Callable[[Scope, ApiError], Response]
"""Writes an error in the dialect of a request. Of its scope, `path` and `headers` count."""


def raw_error(
    write: ErrorWriter, error: ApiError, path: str = "", headers: Iterable[tuple[bytes, bytes]] = ()
) -> bytes:
    """The whole reply for an error, after which the connection ends. `path` and `headers`: as far as they are known."""
    response = write({"type": "http", "path": path, "headers": list(headers)}, error)
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
