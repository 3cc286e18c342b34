"""HTTP on one connection: uvicorn's protocol, which ends what takes too long or too much.

uvicorn waits without end for headers, for a client to read, and for one that was answered before it had sent its body;
it takes headers of any size, and with several requests sent at once it no longer sees that the client has left. What
is added here:

- *Deadlines.* A connection has two times at which it is over (`_due`, `_read_by`), and one timer. The timer looks when
  it fires whether one has come, and is set again otherwise; so a request that comes in one piece sets no timer at all.
- *A size.* Headers have bounds, in bytes and in number.
- *A pace.* Large bodies are read at a rate that all connections share (`timing`).
- *Replies before the end of a body.* The rest is thrown away for a moment, and the connection ends, unless the rest is
  small. So whoever sends a body that is refused is told why, and does not have it read.
- *Parts at once.* A part of a stream is written without a message and a coroutine for it (`LINE` in the scope).
- *WebSockets.* A request that asks for one, where there is one, ends HTTP on the connection (`websocket`).
- *One request after the other.* A second request that arrives before the reply to the first is not read: that
  reply says `Connection: close`, and clients send the request again. (No client in use does this.)

This class relies on how uvicorn's is written: which attributes it has, and that the parser calls it. pyproject.toml
bounds the versions; `tests/server/access` says what breaks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from ...patience import LoopClock
from ..errors import ApiError
from ..http import BROKEN, LINE, ErrorWriter, raw_error
from .connections import Seat
from .timing import FREE, Pace, PacedFlow, Patience
from .websocket import SOCKET_PATHS, WebSocketProtocol

_log = logging.getLogger(__name__)
MOST_HEADER_BYTES = 65_536
MOST_HEADERS = 128
_FRAMING = (b"content-length", b"transfer-encoding")
_OF_CONNECTION = frozenset((*_FRAMING, b"connection"))
_STREAM, _LAST_STREAM = b"transfer-encoding: chunked\r\n", b"connection: close\r\ntransfer-encoding: chunked\r\n"
_KNOWN_SIZES = 1024
_HEADS = tuple(b"%x\r\n" % size for size in range(_KNOWN_SIZES))
"""What stands before a part of a stream, by its size."""
_WORTH = 16
"""Bytes of a body in chunks that one byte of content may take."""
_MOST_UNREAD = 65_536
"""Bytes that a client may send on when nobody reads them any more."""
_LOOK = 60.0
"""A timer fires at least this often, because a connection that is to close may wait for a client to read."""


class RequestLine:
    """The connection of one request. Writes parts of a reply that has begun, without a message for each, and tells when
    the client leaves, without a task that waits for it."""

    __slots__ = ("_cycle", "_flow", "_is_closing", "_write", "leave")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._write, self._is_closing = cycle.transport.write, cycle.transport.is_closing
        self.leave: Callable[[], None] | None = None

    @property
    def has_message(self) -> bool:
        return self._cycle.message_event.is_set()

    @property
    def is_lost(self) -> bool:
        return self._cycle.disconnected

    def whole_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue or not self.has_message:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def watch(self, leave: Callable[[], None] | None) -> None:
        if self.leave is None:
            self._flow.resume_reading()  # a connection that is not read does not tell
        self.leave = leave

    def begin(self, send: Send, headers: list[tuple[bytes, bytes]], part: bytes) -> bool:
        """Write the beginning of a streamed reply and its first part, in one piece. False if it has to be sent as
        messages; then nothing was written. `send` takes messages: where it is not the server's own, it adds headers."""
        cycle = self._cycle
        begun = cycle.response_started or cycle.disconnected or self._flow.write_paused
        if begun or not part or send != cycle.send or cycle.scope["method"] == "HEAD":
            return False
        headers = [*cycle.default_headers, *headers]
        names, values = zip(*headers, strict=True)
        if HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values)):
            return False
        if not _OF_CONNECTION.isdisjoint(names):
            return False
        lines = [STATUS_LINE[200], *[b"%b: %b\r\n" % header for header in headers]]
        lines.append(_STREAM if cycle.keep_alive else _LAST_STREAM)
        cycle.response_started = cycle.chunked_encoding = True
        cycle.waiting_for_100_continue = False
        self._write(b"%b\r\n%x\r\n%b\r\n" % (b"".join(lines), len(part), part))
        return True

    def ready(self) -> bool:
        """Whether a part can be written now. If not, it is to be sent as a message."""
        cycle = self._cycle
        if self._flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        return bool(cycle.chunked_encoding)

    def write(self, part: bytes) -> None:
        """Write a part. There was nothing else written since it was `ready`; but the client may have left."""
        if not self._is_closing():
            size = len(part)
            head = _HEADS[size] if size < _KNOWN_SIZES else b"%x\r\n" % size
            self._write(b"".join((head, part, b"\r\n")))


class _Refused(Exception):
    """Stops the parser."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection that was let in."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        *,
        seat: Seat,
        patience: Patience,
        pace: Pace,
        write_error: ErrorWriter,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.access_log = False  # `observing` writes lines of its own
        self.url = b""
        self._line: RequestLine | None = None
        self._seat = seat
        self._patience = patience
        self._pace = pace
        self._write_error = write_error
        self._due = math.inf
        """When what the connection waits for has to be there."""
        self._read_by = math.inf
        """When the client has to have read what was sent."""
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = math.inf
        """When the timer fires, if nothing delays this process."""
        self._clock = LoopClock.current()
        self._size = 0
        """Bytes of the headers so far. 0: no byte of a request has come."""
        self._came = 0
        """Bytes that came last."""
        self._in_headers = True
        """Whether headers are read or waited for."""
        self._in_body = False
        self._spent = 0
        """Bytes that came for a body, less what they were good for: chunks have heads, and trailers behind them."""
        self._body_only = False
        """Whether the headers that the parser reads are known already."""
        self._body_size = 0
        """Bytes that came since the headers."""
        self._keep_alive = True
        """Whether the client wants to send another request after this one."""
        self._deaf = False
        """Whether what comes is thrown away."""
        self._becomes_socket = False
        """Whether the request asks for a WebSocket, and can have it."""
        self._unread = 0

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = PacedFlow(transport)
        self._seat.close = transport.abort
        self._clock.hold()
        self._set_due(self._patience.for_headers())

    def connection_lost(self, exc: Exception | None) -> None:
        self._seat.leave()
        self._clock.release()
        if self._timer is not None:
            self._timer.cancel()
        self._flow.release()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._line is not None and self._line.leave is not None and self._line.is_lost:
            self._line.leave()
        # What holds this connection is let go: it is freed at once, and not when garbage is looked for.
        self.cycle = self._line = self.scope = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._unread += len(data)
            if self._unread > _MOST_UNREAD and not self._in_body:
                self.transport.abort()
            else:
                self._slow_down(len(data))
            return
        self._unset_keepalive_if_required()
        self._came = len(data)
        if self._in_headers:
            if not self._size:
                self._due = math.inf  # from here on it is the headers that are waited for
            self._size += len(data)
        elif self._in_body:
            self._spent += len(data)
        self._feed(data)
        if self._in_headers and self._size and not self._deaf:
            if self._size > MOST_HEADER_BYTES:
                self._refuse(_TOO_LARGE)
            elif self._due == math.inf:
                self._set_due(self._patience.for_headers())
        elif self._in_body and not self._deaf:
            self._slow_down(len(data))
            if self._spent > MOST_HEADER_BYTES:
                self._refuse(_TOO_LARGE)

    def _slow_down(self, size: int) -> None:
        """So many bytes came of a body, or of what nobody reads."""
        self._body_size += size
        wait = self._pace.wait(size, self.loop.time()) if self._body_size > FREE else 0.0
        if wait and not self.transport.is_closing():
            self._flow.hold(wait, self.loop)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._becomes_socket:
                self._become_socket(rest)
            else:
                self._refuse_upgrade(rest)
        except httptools.HttpParserError as error:
            if not isinstance(error.__context__, _Refused):
                _log.debug("a request cannot be read", exc_info=error)
                self._refuse(_NOT_HTTP)

    # What the parser finds

    def on_message_begin(self) -> None:
        if self._body_only:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            self._deaf = True
            raise _Refused
        self._size = max(self._size, 1)
        self._due = math.inf
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:  # a trailer: it would come too late to be looked at
            return
        if len(self.headers) >= MOST_HEADERS:
            self._refuse(_TOO_LARGE)
            raise _Refused
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._body_only:
            self._body_only = False
            return
        if self._size + self._came > MOST_HEADER_BYTES and self._header_bytes() > MOST_HEADER_BYTES:
            self._refuse(_TOO_LARGE)
            raise _Refused
        self._due = math.inf
        self._in_headers, self._in_body = False, True
        self._spent = self._body_size = 0
        self._seat.answer()
        if self.parser.should_upgrade() and self._asks_for_socket():
            self._becomes_socket = True
            return
        super().on_headers_complete()
        cycle = self.cycle
        self._line = self.scope[LINE] = RequestLine(cycle)  # type: ignore[literal-required]
        cycle.transport = _ReplyTransport(self.transport, self._end_connection)  # type: ignore[assignment]
        self._keep_alive = cycle.keep_alive
        if cycle.waiting_for_100_continue or _is_large(self.headers):
            cycle.keep_alive = False  # as long as the body is not there

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _asks_for_socket(self) -> bool:
        """Whether this is a request for a WebSocket, at a place where there is one. Notes the place."""
        if self._get_upgrade() != b"websocket" or self.parser.get_method() != b"GET":
            return False
        url = httptools.parse_url(self.url)
        path = unquote(url.path.decode("ascii"))
        place = {"path": path, "raw_path": url.path, "query_string": url.query or b"", "method": "GET"}
        cast(dict[str, Any], self.scope).update(place)
        return path in SOCKET_PATHS

    def _become_socket(self, rest: bytes) -> None:
        """The connection speaks another protocol from here on, which has read `rest` already."""
        self._clock.release()
        if self._timer is not None:
            self._timer.cancel()
        self.connections.discard(self)
        self._flow.release()
        socket = WebSocketProtocol(
            self.app,
            cast(dict[str, Any], self.scope),
            self.transport,
            seat=self._seat,
            patience=self._patience,
            tasks=self.tasks,
            connections=self.connections,
            loop=self.loop,
        )
        lines = [b"GET " + self.url + b" HTTP/1.1", *(name + b": " + value for name, value in self.headers), b"", b""]
        socket.begin(b"\r\n".join(lines))
        if rest:
            socket.data_received(rest)

    def on_body(self, body: bytes) -> None:
        self._spent = max(0, self._spent - _WORTH * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body is still to come
        super().on_message_complete()
        self._in_body = False
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        if self.cycle.response_complete:
            self._wait()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def _end_connection(self) -> None:
        """The last reply has been written. To close now what the client still sends on would reset the connection, and
        the client would not see the reply."""
        if not self._in_body or self.transport.is_closing():
            self.transport.close()
            return
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            # The client was answered before it had sent everything. It may do so, for a moment.
            self._seat.wait()
            self._set_due(self._patience.farewell)
        else:
            self._wait()

    def _wait(self) -> None:
        """For the next request."""
        self._in_headers = True
        self._size = 0
        self.url, self.headers = b"", []
        self._seat.wait()
        self._set_due(self._patience.for_request())

    # What a client does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_by = self._clock.now() + self._patience.for_reading()
        self._arm(self._read_by)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_by = math.inf

    # The deadlines

    def _set_due(self, seconds: float) -> None:
        self._due = self._clock.now() + seconds
        self._arm(self._due)

    def _arm(self, when: float) -> None:
        """Have the timer fire at that time or before."""
        now = self._clock.now()
        when = min(when, now + _LOOK)
        if self._timer is not None:
            if self._look_at <= when:
                return
            self._timer.cancel()
        self._look_at = when
        self._timer = self.loop.call_later(when - now, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now()
        closing = self.transport.is_closing()
        if now >= self._read_by or (now >= self._due and (closing or self._deaf)):
            self.transport.abort()
            return
        if closing and self._read_by == math.inf:
            # What was written last is still on its way.
            self._read_by = now + self._patience.for_reading()
        elif now >= self._due:
            self._set_due(self._patience.farewell)
            if self._in_headers and self._size:
                self._refuse(_late(self._patience.headers))
            else:  # nothing was asked, or it was answered
                self.transport.close()
        self._arm(min(self._due, self._read_by))

    # Refusals

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg))

    def _refuse_upgrade(self, rest: bytes) -> None:
        """A request asks for another protocol: it is answered as if it had not asked. The parser leaves what comes
        behind the headers to that protocol, so a new one is told how long the body is."""
        framing = [name + b": " + value for name, value in self.headers if name in _FRAMING]
        self.parser = httptools.HttpRequestParser(self)
        self._body_only = True
        self._feed(b"\r\n".join([b"POST / HTTP/1.1", *(framing or [b"content-length: 0"]), b"", rest]))

    def _refuse(self, error: ApiError) -> None:
        """Say why, and end the connection. If there is a request that is not answered yet, its answer is the last: that
        it cannot be read, unless all of it was."""
        silent = self._deaf
        self._deaf = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not silent:
            cycle.keep_alive = False
            if self._in_body:
                cast(dict[str, Any], self.scope)[BROKEN] = error
                cycle.message_event.set()
            return
        if silent or self.transport.is_closing():
            self.transport.abort()
            return
        path = self.url.partition(b"?")[0].decode("ascii", "backslashreplace")
        method = "" if self._in_headers else self.scope.get("method", "")
        reply = raw_error(self._write_error, error, path, self.headers or (), method=method, client=self.client)
        self.transport.write(reply)
        self._set_due(self._patience.farewell)
        say_goodbye(self.transport)


class _ReplyTransport:
    """The transport for a reply. Closing it goes through the protocol."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write, self.is_closing = transport.write, transport.is_closing
        self.close = close


def _is_large(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether so much may follow the headers that nobody wants to read it in vain."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value) > _MOST_UNREAD):
            return True
    return False


def say_goodbye(transport: asyncio.Transport) -> None:
    """End a connection on which a reply was written before all of the request was read. To close it would reset it,
    and the client would not see the reply; so only our half is closed, if that can be."""
    if transport.can_write_eof():
        transport.write_eof()
    else:
        transport.close()


_NOT_HTTP = ApiError(400, "the request cannot be read: it is not HTTP/1.1", code="invalid_http")
_TOO_LARGE = ApiError(
    431,
    f"the headers are too large: there may be {MOST_HEADERS} of them, with {MOST_HEADER_BYTES} bytes in all",
    code="headers_too_large",
)


def _late(seconds: float) -> ApiError:
    message = f"the headers did not arrive within {seconds:g} seconds (--header-seconds)"
    return ApiError(408, message, code="request_timeout")
