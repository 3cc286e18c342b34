"""HTTP to one server: what goes over the wire, and what becomes of it when it goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from .base import EngineDown, EngineError, EngineFailed, PromptTooLong, Unsupported
from .sse import EventReader

_LINGER = 1.0
"""How long a server may take to end its answer after it has said that all is said."""


@dataclass(frozen=True)
class Form:
    """A body of fields and a file, where a server does not take JSON."""

    fields: Mapping[str, str]
    file: bytes = field(repr=False)
    name: str
    """Of the file: its ending says what it is."""


class Address:
    """Where one server is. Connections are kept and shared by all requests."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 5.0,
        read_timeout: float = 120.0,
    ) -> None:
        """`read_timeout` is the longest silence of the server, before the first token and between tokens."""
        self.url = url.rstrip("/").removesuffix("/v1")
        self._read = read_timeout
        keys = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={**keys, **(headers or {})},
            timeout=httpx.Timeout(read_timeout, connect=connect_timeout, pool=None),
            # As many requests as there are. Servers drop idle connections after some five seconds: be earlier.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0),
        )

    async def get(self, path: str, timeout: float | None = None) -> Any:
        """The JSON at `path`, None where there is none."""
        return await self._ask("GET", path, None, timeout)

    async def post(self, path: str, body: Mapping[str, Any], timeout: float | None = None) -> Any:
        """The JSON that answers `body`, None where it is none."""
        return await self._ask("POST", path, body, timeout)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None) -> Any:
        with self._errors(timeout):
            response = await self._send(method, path, body, timeout)
            await response.aread()
        self._look(response)
        try:
            return response.json()
        except ValueError:
            return None

    async def stream(self, path: str, body: Mapping[str, Any] | Form) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The JSON objects that answer `body`, and None once the server has said that there are no more; a server that
        does not stream sends one. Closing the generator closes the connection."""
        with self._errors():
            async with aclosing(await self._send("POST", path, body)) as response:
                if response.status_code >= 400:
                    await response.aread()
                self._look(response)
                if response.headers.get("content-type", "").startswith("application/json"):
                    yield self._object((await response.aread()).decode("utf-8", "replace"))
                    yield None
                    return
                events = EventReader()
                chunks = response.aiter_bytes()
                async for chunk in chunks:
                    for data in events.feed(chunk):
                        if data != "[DONE]":
                            yield self._object(data)
                            continue
                        yield None
                        with suppress(httpx.HTTPError, TimeoutError):  # read on, so that the connection can be kept
                            async with asyncio.timeout(_LINGER):
                                async for _ in chunks:
                                    pass
                        return

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | Form | None, timeout: float | None = None
    ) -> httpx.Response:
        """The beginning of the answer. A kept connection may be dropped by the server at the moment that it is used:
        then there is a second try, with a new one."""
        waits = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, Form):
            sent = {"data": dict(body.fields), "files": {"file": (body.name, body.file)}}
        request = self._client.build_request(method, path, **sent, timeout=waits)
        try:
            return await self._client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await self._client.send(request, stream=True)

    async def close(self) -> None:
        await self._client.aclose()

    def _object(self, data: str) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise EngineFailed(f"{self.url} sent what is no JSON object: {data[:200]}")
        return found

    def _look(self, response: httpx.Response) -> None:
        """Raise what the status says."""
        if response.status_code >= 300:
            message = _message(response.text) or response.reason_phrase
            raise problem(response.status_code, f"{self.url}: {message}", _seconds(response.headers.get("Retry-After")))

    @contextmanager
    def _errors(self, timeout: float | None = None) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise EngineDown(f"{self.url} cannot be reached: {error or type(error).__name__}") from error
        except httpx.TimeoutException as error:
            raise EngineFailed(f"{self.url} was silent for {timeout or self._read:g} seconds") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EngineError(f"{self.url} is no address of a server: {error}") from error
        except httpx.HTTPError as error:
            raise EngineFailed(f"the connection to {self.url} broke: {error or type(error).__name__}") from error


def problem(status: int, message: str, retry_after: float | None = None) -> EngineError:
    """The error for what a server said; its `status` is the server's."""
    found: EngineError
    if status in (429, 502, 503, 504):
        found = EngineDown(message, 1.0 if retry_after is None else retry_after)
    elif status >= 500:
        found = EngineFailed(message)
    elif status == 413 or (status in (400, 422) and _TOO_LONG.search(message)):
        found = PromptTooLong(message)
    elif status in (400, 405, 415, 422):
        found = Unsupported(message)
    else:
        found = EngineError(f"{message} (status {status})")
    found.status = status
    return found


_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|max_model_len|maximum model length|longer than the model|prompt is too long", re.I
)


def said(error: object) -> tuple[str, int | None]:
    """The message and the status in what a server sent as an error: an object with both, or a text."""
    if not isinstance(error, dict):
        return str(error), None
    status = next((error[key] for key in ("code", "status", "status_code") if isinstance(error.get(key), int)), None)
    return str(error.get("message") or error.get("detail") or error), status


def _message(body: str) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return body.strip()[:1000]
    return said(found.get("error", found) if isinstance(found, dict) else found)[0]


def _seconds(retry_after: str | None) -> float | None:
    """The header in seconds; its other form, a date, is not worth a clock that both sides agree on."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
