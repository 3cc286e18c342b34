"""HTTP over ASGI: who sent a request, its body, replies and their headers, and work that ends early.

*The body.* It must say what it is. A page on the web may post to any address without asking, a server on this machine
too, if the body is of one of three types (form, multipart, plain text) or of none. Any other type makes the browser ask
first, and `Access-Control-Allow-Origin` is the answer. So JSON is taken as JSON only. Multipart is one of the three;
for that `Origin` decides (`access.gate`). A body must also come along: no pause of more than `--body-seconds`, and at
least `SLOWEST` bytes a second after that. 25 MB of audio may take seven hours; one byte at a time is over soon. Only
the time that the server waits counts. Its size, its values and the memory of all bodies together have limits. Whatever
is wrong with a body is raised where the body is read, so that the client is told in its dialect.

*Work that ends early.* When the client closes the connection, `while_connected` cancels the work and raises
`ClientLeft`: there is nobody to answer. When the server has to end, `expire_all` cancels whatever runs inside
`until_shutdown` or `while_connected`, which raises `SHUTDOWN` for the client to be told. Streams are in `api.sse`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from ..fairness import Client, client
from ..patience import patient, patient_time
from .errors import ApiError
from .observing.exchange import REQUEST_ID, Exchange

T = TypeVar("T")
ANTHROPIC_VERSION = "anthropic-version"
"""The header that Anthropic's clients send with every request. What it says makes no difference, and it may be missing
where the path says enough."""
CLIENT = "unbraid.client"
"""The key of a request's scope under which stands who sent it: a digest of the API key."""
BROKEN = "unbraid.broken"
"""The key of a request's scope that holds the connection's complaint about the rest of the body."""
LINE = "unbraid.line"
"""The key of a request's scope under which there may be a `Line`."""
_HEADERS = "unbraid.headers"
MOST_BODIES = 1_000_000_000
"""Bytes of all bodies in memory together."""
SMALL_BODY = 131_072
"""Bytes of a body that nobody is refused."""
SLOWEST = 1000
"""Bytes a second that a body must have, taken over all of it."""
_LARGE = 2_000_000
"""A body of more bytes is put together in a thread, where Python lets others run meanwhile."""
_VALUES = (b",", b"[", b"{")
"""JSON has about as many of these bytes as values."""
_JSON = re.compile(r"application/(?:json|[\w.!#$&^-]+\+json)", re.ASCII)
_PLAIN_JSON = "application/json"
_FORM = "multipart/form-data"
_MOST_DIGITS = 20
_RETRY_AFTER = 5.0


# Who sent a request


@dataclass(slots=True)
class Sender:
    """The sender of one request, and how large the request is. This decides where the request is worked out."""

    client: str = ""
    """A digest of the API key; without keys, the address."""
    size: int = 0
    """The bytes of the body."""
    held: int = 0
    """The bytes of the body that are in memory (`body_memory`)."""


sender: ContextVar[Sender] = ContextVar("unbraid_sender")
"""The sender of the request that is being answered, in all tasks that run for the request."""


def note_sender(name: str, others: bool = False) -> None:
    """The current task works for this client. `others`: it is one of several that are known."""
    sender.set(Sender(name))
    client.set(Client(name, others=others))


def client_of(request: HTTPConnection) -> str:
    """Who sent a request. What is kept for one client is not shown to another. Without API keys all are one."""
    return str(request.scope.get(CLIENT, ""))


class RequestHeaders(Headers):
    """The headers of a request, by their names. Starlette goes through all of them for each name that is asked for, and
    clients send twenty."""

    def __init__(self, scope: Scope) -> None:
        self._list = scope["headers"]
        self._first = dict(reversed(self._list))

    def get(self, key: str, default: Any = None) -> Any:
        value = self._first.get(key.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def getlist(self, key: str) -> list[str]:
        if len(self._first) < len(self._list):
            return super().getlist(key)
        value = self.get(key)
        return [] if value is None else [value]

    def __contains__(self, key: Any) -> bool:
        return key.lower().encode("latin-1") in self._first


def headers_of(scope: Scope) -> RequestHeaders:
    """The headers of a request, read once."""
    headers = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = RequestHeaders(scope)
    return headers


# Replies


def reply_headers(exchange: Exchange) -> dict[str, str]:
    """The headers of every reply, whoever writes it. **To add one, add it here.** Limits on rates have headers of their
    own in `access.rates`."""
    return {REQUEST_ID: exchange.id}


UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""The headers of a reply that is sent while it is made: no proxy is to keep it or to wait for its end."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status, error.headers())


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
    """The bytes of a whole reply, for connections on which no request came far enough to reach the application. The
    connection ends after it. `path`, `headers`, `method`, `client`: as much of the request as is known."""
    scope = {"type": "http", "path": path, "headers": list(headers), "method": method, "client": client}
    response = write(scope, error)
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])


# The body of a request


def check_json(request: Request) -> None:
    """Raises `ApiError` where the body does not say that it is JSON."""
    headers = headers_of(request.scope)
    if headers.get("content-type") == _PLAIN_JSON and "content-encoding" not in headers:
        return
    if not _JSON.fullmatch(_type(request)):
        curl = "with curl, add -H 'Content-Type: application/json'"
        raise _wrong_type(f"{_type_in_words(request)}, and must be application/json: {curl}")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        instead = "send it as it is, without Content-Encoding"
        raise _wrong_type(f"the body's Content-Encoding is {encoding[:64]!r}: {instead}")


def check_form(request: Request) -> None:
    """Raises `ApiError` where the body does not say that it is a form with files."""
    if _type(request) != _FORM:
        curl = "with curl, -F file=@talk.wav"
        raise _wrong_type(f"{_type_in_words(request)}, and must be {_FORM}, with the recording as `file`: {curl}")


def _wrong_type(message: str) -> ApiError:
    return ApiError(415, message, code="unsupported_media_type")


def _type(request: Request) -> str:
    return str(headers_of(request.scope).get("content-type", "")).partition(";")[0].strip().lower()


def _type_in_words(request: Request) -> str:
    type = _type(request)
    return f"the body's Content-Type is {type[:64]!r}" if type else "the body has no Content-Type"


class BodyMemory:
    """The bodies in the memory of one process that are being received or wait to be worked out.

    One body is bounded by `--max-body`. Many clients can each send one of that size, slowly, so all bodies together are
    bounded, too. A small body is always taken, and one client has at most half: nobody keeps the others out.
    """

    def __init__(self, most: int = MOST_BODIES) -> None:
        self.most = most
        self.size = 0
        self._clients: defaultdict[str, int] = defaultdict(int)

    def add(self, asking: Sender, size: int) -> None:
        """More of a body has come. Raises `ApiError` where there is no room for it."""
        asking.held += size
        self.size += size
        self._clients[asking.client] += size
        if asking.held <= SMALL_BODY:
            return
        if self.size > self.most:
            message = "the large requests of all clients are too much at once: ask again later"
            raise ApiError(503, message, code="overloaded", retry_after=_RETRY_AFTER)
        if self._clients[asking.client] > self.most // 2:
            message = "your large requests are too much at once: send fewer at a time"
            raise ApiError(429, message, code="rate_limit_exceeded", retry_after=_RETRY_AFTER)

    def release(self, asking: Sender) -> None:
        """A body is worked out, or nobody wants it any more. May be called again."""
        self.size -= asking.held
        left = self._clients.get(asking.client, 0) - asking.held
        if left > 0:
            self._clients[asking.client] = left
        else:
            self._clients.pop(asking.client, None)
        asking.held = 0


body_memory = BodyMemory()


class BodyProgress:
    """How fast a body comes, and how long the next piece of it may take."""

    __slots__ = ("_received", "_seconds", "_waited")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds or math.inf
        self._received = 0
        self._waited = 0.0

    def left(self) -> float:
        """How long to wait for the next piece."""
        slow = self._seconds + self._received / SLOWEST - self._waited
        return max(0.0, min(self._seconds, slow))

    def came(self, size: int, waited: float) -> None:
        """A piece came, after a while."""
        self._received += size
        self._waited += waited


class Line(Protocol):
    """What our own protocol tells about a connection beyond ASGI's `receive`."""

    @property
    def has_message(self) -> bool:
        """Whether `receive` returns at once."""
        ...

    @property
    def is_lost(self) -> bool: ...

    def whole_body(self) -> bytes | None:
        """The body, if all of it has come and none of it was received; otherwise it comes in messages."""
        ...

    def watch(self, leave: Callable[[], None] | None) -> None:
        """Call `leave` when the client leaves."""
        ...


def _too_slow(seconds: float) -> ApiError:
    message = (
        f"the body did not arrive in time: it may pause for {seconds:g} seconds (--body-seconds), and must come with "
        f"{SLOWEST} bytes a second after that"
    )
    return ApiError(408, message, code="request_timeout", headers={"Connection": "close"})


async def read_body(request: Request, most: int, most_values: int | None = None) -> bytes:
    """The body of a request. Raises `ApiError` where it is larger than `most` bytes, or is JSON with more than
    `most_values` values, as soon as that is known."""
    if announced_size(request) > most:
        raise _too_large(most)
    asking = sender.get(None) or Sender()
    line: Line | None = request.scope.get(LINE)
    body = None if line is None else line.whole_body()
    if body is None:
        body = await _read(request, asking, most, most_values)
    else:
        _count(asking, body, len(body), most, 0 if most_values is None else _values(body), most_values)
    asking.size = len(body)
    return body


def announced_size(request: Request) -> int:
    """The bytes of the body as `Content-Length` says; 0 without one."""
    return whole_number(headers_of(request.scope).get("content-length", "")) or 0


def whole_number(text: str) -> int | None:
    """A number as clients write it in headers and addresses. None for
    anything else, and for more digits than any number has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


async def _read(request: Request, asking: Sender, most: int, most_values: int | None) -> bytes:
    parts, size, values = [], 0, 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        values += 0 if most_values is None else _values(part)
        _count(asking, part, size, most, values, most_values)
        parts.append(part)
    return b"".join(parts) if size < _LARGE else await asyncio.to_thread(b"".join, parts)


def _values(part: bytes) -> int:
    return sum(map(part.count, _VALUES))


def _count(asking: Sender, part: bytes, size: int, most: int, values: int, most_values: int | None) -> None:
    """A part of a body has come, which has so many bytes and values by now. Raises `ApiError` for too much."""
    if size > most:
        raise _too_large(most)
    body_memory.add(asking, len(part))
    if most_values is not None and values > most_values:
        reason = f"the body holds more than {most_values} values (commas and brackets), the most: send less"
        raise ApiError(413, reason)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes, the most that this server takes")


# Work that ends early. It runs in the request's own task, which is cancelled; what the work raises then is the reason.


class ClientLeft(Exception):
    """The client closed the connection: there is nobody to answer."""


class _Work:
    """Work in the current task that can be interrupted, while it is inside of this."""

    __slots__ = ("_cancelling", "_reason", "_task")

    def __enter__(self) -> _Work:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._reason: Exception | None = None
        _working.add(self)
        return self

    def interrupt(self, reason: Exception) -> None:
        """Have the work raise `reason`, once: work that is cancelled already must be let to clean up. Not to be called
        in the task of the work."""
        if self._task.cancelling() == self._cancelling:
            self._reason = reason
            self._task.cancel()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _working.discard(self)
        if self._reason is None:
            return
        others = self._task.uncancel() > self._cancelling  # somebody else has cancelled the task
        if isinstance(error, asyncio.CancelledError) and not others:
            raise self._reason from None


_working: set[_Work] = set()

SHUTDOWN = ApiError(503, "the server ended before the reply did: ask again", code="shutdown", retry_after=1.0)


def expire_all() -> None:
    """Interrupt all work, because the server has to end now. The clients are told."""
    for work in list(_working):
        work.interrupt(SHUTDOWN)


async def until_shutdown(work: Awaitable[T]) -> T:
    """The result of `work`. Raises `SHUTDOWN` if the server has to end before."""
    with _Work():
        return await work


class Connection:
    """Receives a request's messages, and notices when the client leaves.

    Receiving raises `ApiError` for a body that is broken, or pauses for more than `seconds` (0: any time), or where the
    server has to end before it is there. Once it is, the messages only pass through, and to receive waits for the
    client to leave. Its `line` tells that, too. Without one a task waits for it, one for each request: from the first
    piece of work that the client waits for until `close`.
    """

    __slots__ = ("_line", "_progress", "_receive", "_scope", "_seconds", "_watcher", "_whole", "_work")

    def __init__(self, receive: Receive, scope: Scope | None = None, seconds: float = 0.0) -> None:
        self._scope: Scope = {} if scope is None else scope
        self._receive, self._seconds = receive, seconds
        self._line: Line | None = self._scope.get(LINE)
        self._progress: BodyProgress | None = None
        self._whole = False
        """Whether the body was received."""
        self._watcher: asyncio.Task[None] | None = None
        self._work: _Work | None = None

    def __call__(self) -> Awaitable[Message]:
        return self._receive() if self._whole else self._next()

    async def _next(self) -> Message:
        """The next part of the body."""
        progress = self._progress = self._progress or BodyProgress(self._seconds)
        if self._line is not None and self._line.has_message:
            message = await self._receive()
            waited = 0.0
        else:
            start = patient_time()
            message = await self._in_time(progress.left())
            waited = patient_time() - start
        if BROKEN in self._scope:
            raise self._scope[BROKEN]
        progress.came(len(message.get("body", b"")), waited)
        self._whole = not message.get("more_body", False)
        return message

    async def _in_time(self, left: float) -> Message:
        if left == math.inf:
            return await until_shutdown(self._receive())
        try:
            async with patient(left):
                return await until_shutdown(self._receive())
        except TimeoutError:
            raise _too_slow(self._seconds) from None

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. If the client leaves before, cancels it and raises `ClientLeft`. The body of the
        request must have been read."""
        if self._is_left():
            work.close()
            raise ClientLeft
        try:
            with _Work() as self._work:
                return await work
        finally:
            self._work = None

    def _is_left(self) -> bool:
        """Whether the client is gone. If not, it is noticed from now on."""
        if self._line is not None:
            self._line.watch(self._leave)
            return self._line.is_lost
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._wait())
        return self._watcher.done()

    async def _wait(self) -> None:
        """Wait until the client is gone."""
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._work is not None:
            self._work.interrupt(ClientLeft())

    def close(self) -> None:
        """The request is answered."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self._line is not None:
            self._line.watch(None)
            del self._scope[LINE]  # which holds the scope


def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """The result of `work`. If the client leaves before, cancels it and raises `ClientLeft`."""
    return receive.while_connected(work) if isinstance(receive, Connection) else _while_connected(receive, work)


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    connection = Connection(receive)
    try:
        return await connection.while_connected(work)
    finally:
        connection.close()
