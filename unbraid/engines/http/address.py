"""HTTP client for one server: requests, streamed answers (server-sent events), and errors as those of `engines.base`.

`Address` turns every failure into an `EngineError` that says what to do. `timeouts` has how long it waits for a server.
httpx itself bounds nothing: it would count any byte as a sign of life, and our own slowness as the server's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import httpx

from ...patience import patient
from ..base import EngineDown, EngineError, EngineFailed, EngineTimeout, outgoing_headers
from .connections import ConnectionPool
from .refusals import error_text, refusal
from .timeouts import PieceClock, Timeouts, UsualGap

_TIMEOUTS = Timeouts()
_log = logging.getLogger(__name__)
_LARGE = 10_000
"""Characters or items of a value that is written in a thread."""
_LINGER = 1.0
"""Seconds that a server may take to close its answer after the last message."""
_MARK = b"\xef\xbb\xbf"
"""The byte order mark, with which a stream may begin."""


@dataclass(frozen=True)
class Form:
    """A multipart form with one file, for routes that take no JSON."""

    fields: Mapping[str, str]
    file: bytes = field(repr=False)
    name: str
    """The name of the file. Servers go by its ending."""


class EventReader:
    """Reads server-sent events: bytes, cut anywhere, to the data of each event that they complete.

        b'data: {"a"'  b': 1}\\n\\nda'  b'ta: [DONE]\\n\\n'   ->   []  ['{"a": 1}']  ['[DONE]']

    By the standard, lines end with CR, LF or both, the data lines of one event are joined by newlines, and comments and
    all other fields are skipped. An incomplete event at the end is dropped. (`server.api.sse` writes such events.)
    """

    __slots__ = ("_data", "_line", "_skip", "_started")

    def __init__(self) -> None:
        self._line = b""
        """The beginning of a line whose end has not come."""
        self._data: list[bytes] = []
        self._skip = False
        """The last byte was CR: a LF right after it ends no other line."""
        self._started = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`."""
        if not chunk:
            return []
        whole = self._line + self._plain(chunk)
        if not self._started:
            if len(whole) < len(_MARK) and _MARK.startswith(whole):  # it may still be a byte order mark
                self._line = whole
                return []
            self._started = True
            whole = whole.removeprefix(_MARK)
        *lines, self._line = whole.split(b"\n")
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
        return events

    def _plain(self, chunk: bytes) -> bytes:
        """`chunk` with LF for every end of a line."""
        if self._skip and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            if not chunk:
                self._skip = False
                return chunk
        self._skip = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk


@cache
def _authorities(*files: str | None) -> ssl.SSLContext:
    """The certificates that servers are trusted by, from these files if any: read once, which takes some 50 ms."""
    return httpx.create_ssl_context()


class Address:
    """One server, by its URL. Connections are kept and shared by all requests. `https://10.0.0.7#gpu` is a server at
    that address with the name `gpu`, in `Host` and in its certificate."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = _TIMEOUTS,
    ) -> None:
        place, _, name = url.partition("#")
        base = place.rstrip("/").removesuffix("/v1")
        self.url = without_credentials(base)
        """The URL as messages and logs show it."""
        self.timeouts = timeouts
        keys = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        if name:
            keys["Host"] = name
        self._extensions = {"sni_hostname": name.partition(":")[0]} if name else {}
        make = partial(
            httpx.AsyncClient,
            base_url=base,
            headers={**keys, **(headers or {})},
            timeout=None,  # `timeouts` are by another clock than httpx has
            # Servers drop idle connections after some five seconds: be earlier.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0),
            verify=_authorities(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )
        self._connections = ConnectionPool(make, timeouts.connect)
        self.usual: UsualGap | None = None
        """How long the server usually takes to a further piece, where its time follows that."""

    async def get(self, path: str, timeout: float | None = None) -> Any:
        """The JSON at `path`, or None if the answer is none."""
        return _json_of(await self._ask("GET", path, None, timeout))

    async def get_text(self, path: str, timeout: float | None = None) -> str:
        """The text at `path`."""
        return (await self._ask("GET", path, None, timeout)).text

    async def post(self, path: str, body: Mapping[str, Any], timeout: float | None = None) -> Any:
        """The JSON that answers `body`, or None if the answer is none."""
        return _json_of(await self._ask("POST", path, body, timeout))

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None
    ) -> httpx.Response:
        seconds = self.timeouts.first if timeout is None else timeout
        with self._errors(), self._connections.pool() as client:
            try:
                async with patient(seconds), aclosing(await self._send(client, method, path, body)) as response:
                    await response.aread()
            except TimeoutError as error:
                raise self._silent(seconds) from error
        self._check_status(response)
        return response

    async def stream(
        self, path: str, body: Mapping[str, Any] | Form, clock: PieceClock
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The JSON objects that answer `body`, then None once the server has ended the stream. A server that does not
        stream sends one object. Closing the generator closes the connection. The caller sets `clock.came` for each
        object that brought a piece."""
        with self._errors(), self._connections.pool() as client:
            try:
                response = await clock.wait(self._send(client, "POST", path, body))
                async with aclosing(response):
                    streams = not response.headers.get("content-type", "").startswith("application/json")
                    if response.status_code >= 400 or not streams:
                        await clock.wait(response.aread())
                    self._check_status(response)
                    if not streams:
                        yield self._object(response.content.decode("utf-8", "replace"))
                        yield None
                        return
                    events = EventReader()
                    chunks = response.aiter_bytes()
                    while True:
                        try:
                            chunk = await clock.wait(anext(chunks))
                        except StopAsyncIteration:
                            return
                        for data in events.feed(chunk):
                            if data != "[DONE]":
                                yield self._object(data)
                                continue
                            yield None
                            with suppress(httpx.HTTPError, TimeoutError):  # read on: the connection can be kept then
                                async with asyncio.timeout(_LINGER):
                                    async for _ in chunks:
                                        pass
                            return
            except TimeoutError as error:
                raise self._silent(clock.seconds) from error
            finally:
                clock.close()

    async def _send(
        self, client: httpx.AsyncClient, method: str, path: str, body: Mapping[str, Any] | Form | None
    ) -> httpx.Response:
        """Status and headers of the answer."""
        sent: dict[str, Any] = {}
        headers = outgoing_headers.get()(self.url)
        if isinstance(body, Form):
            sent = {"data": dict(body.fields), "files": {"file": (body.name, body.file)}}
        elif body is not None:
            sent = {"content": await asyncio.to_thread(_json, body) if _is_large(body) else _json(body)}
            headers = {"Content-Type": "application/json", **headers}
        request = client.build_request(method, path, **sent, headers=headers, extensions=self._extensions)
        return await self._connections.send(client, request, at_once=body is None)

    async def close(self) -> None:
        await self._connections.close()

    def _object(self, data: str) -> dict[str, Any]:
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            _log.debug("%s sent what is no JSON object: %.200s", self.url, data)
            raise EngineFailed(f"{self.url} sent what is no JSON object")
        return message

    def _check_status(self, response: httpx.Response) -> None:
        """Raise the error that the status means."""
        if response.status_code >= 300:
            message = _message(response.text) or response.reason_phrase
            raise refusal(response.status_code, f"{self.url}: {message}", _seconds(response.headers.get("Retry-After")))

    def _silent(self, seconds: float) -> EngineTimeout:
        return EngineTimeout(f"{self.url} gave no output for {seconds:g} seconds")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectTimeout as error:
            seconds = self.timeouts.connect
            raise EngineDown(f"{self.url} cannot be reached: it takes no connection for {seconds:g} seconds") from error
        except httpx.ConnectError as error:
            raise EngineDown(f"{self.url} cannot be reached: {error or type(error).__name__}") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EngineError(f"{self.url} is no address of a server: {error}") from error
        except httpx.HTTPError as error:
            raise EngineFailed(f"the connection to {self.url} broke: {error or type(error).__name__}") from error


def _json_of(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _is_large(value: Any) -> bool:
    """Whether writing a value as JSON may take more than a few milliseconds."""
    if isinstance(value, str | list) and len(value) > _LARGE:
        return True
    if isinstance(value, list) and value and isinstance(value[0], int):
        return False  # ids
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_is_large, inner))


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def without_credentials(url: str) -> str:
    """A URL without user, password and query."""
    scheme, mark, rest = url.partition("://")
    rest = rest.partition("?")[0]
    place, slash, path = rest.partition("/")
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}"


def _message(body: str) -> str:
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return body.strip()[:1000]
    return error_text(error.get("error", error) if isinstance(error, dict) else error)[0]


def _seconds(retry_after: str | None) -> float | None:
    """The header in seconds. A date, its other form, is ignored: both sides would need the same clock."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
