"""HTTP client for one server: requests, streamed answers, and errors as those of `engines.base`.

`Address` is the only place that knows httpx. It retries once where the server drops a kept connection in the moment of
its use, and turns every failure into an `EngineError` that says what to do.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from .base import EngineDown, EngineError, EngineFailed, outgoing_headers
from .refusals import error_text, refusal
from .sse import EventReader

_log = logging.getLogger(__name__)
_LINGER = 1.0
"""Seconds that a server may take to close its answer after the last message."""


@dataclass(frozen=True)
class Form:
    """A multipart form with one file, for routes that take no JSON."""

    fields: Mapping[str, str]
    file: bytes = field(repr=False)
    name: str
    """The name of the file. Servers go by its ending."""


class Address:
    """One server, by its URL. Connections are kept and shared by all requests."""

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
        self._check_status(response)
        try:
            return response.json()
        except ValueError:
            return None

    async def stream(self, path: str, body: Mapping[str, Any] | Form) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The JSON objects that answer `body`, then None once the server has said that there are no more. A server that
        does not stream sends one object. Closing the generator closes the connection."""
        with self._errors():
            async with aclosing(await self._send("POST", path, body)) as response:
                if response.status_code >= 400:
                    await response.aread()
                self._check_status(response)
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
        """Status and headers of the answer. The server may drop a kept connection in the moment that it is used; then
        the request is sent again, on a new one."""
        waits = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, Form):
            sent = {"data": dict(body.fields), "files": {"file": (body.name, body.file)}}
        headers = outgoing_headers.get()(self.url)
        request = self._client.build_request(method, path, **sent, timeout=waits, headers=headers)
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
            _log.debug("%s sent what is no JSON object: %.200s", self.url, data)
            raise EngineFailed(f"{self.url} sent what is no JSON object")
        return found

    def _check_status(self, response: httpx.Response) -> None:
        """Raise the error that the status means."""
        if response.status_code >= 300:
            message = _message(response.text) or response.reason_phrase
            raise refusal(response.status_code, f"{self.url}: {message}", _seconds(response.headers.get("Retry-After")))

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


def _message(body: str) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return body.strip()[:1000]
    return error_text(found.get("error", found) if isinstance(found, dict) else found)[0]


def _seconds(retry_after: str | None) -> float | None:
    """The header in seconds; its other form, a date, is not worth a clock that both sides agree on."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
