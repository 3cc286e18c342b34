"""A WebSocket on one connection: frames by the library `websockets`, limits by us, ASGI to the application.

A connection that asks to become one is handed over by `access.protocol`, with its seat: it counts as long as it lasts.
What is bounded here:

- *What waits to be read.* Reading stops while the application has `_MOST_WAITING` bytes of messages before it.
- *A message.* `MOST_MESSAGE` bytes, in however many frames. There is no compression: sound does not shrink, and a
  megabyte of zeros would be a kilobyte.
- *A client that does not read.* `Patience.sending`, as for replies.
- *A client that vanishes.* It is pinged; where nothing at all comes for `Patience.keep_alive`, the connection ends.

Refusals before the handshake are ordinary replies (ASGI's `websocket.http.response`). When the server is to end, the
application is told (`LEAVING` in the scope), and ends the session itself when it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

from starlette.types import ASGIApp, Message, Scope
from websockets.datastructures import Headers
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from ...patience import LoopClock
from .connections import Seat
from .timing import Patience

_log = logging.getLogger(__name__)
_quiet = logging.getLogger("unbraid.websockets")
_quiet.setLevel(logging.CRITICAL)
SOCKET_PATHS = ("/v1/realtime",)
"""Where there are WebSockets. A request for one elsewhere is answered as if it had not asked."""
LEAVING = "unbraid.leaving"
"""The key of a scope under which stands an event: the server is to end."""
MOST_MESSAGE = 16 << 20
"""Bytes of a message. OpenAI's API takes 15 MiB of sound at once."""
_MOST_WAITING = 1 << 20
_PING = 20.0
_FAREWELL = 5.0
"""Seconds for a client to answer the end."""
GOING_AWAY, SERVER_ERROR = 1012, 1011
_NO_STATUS = 1005
_ABNORMAL = 1006
Start = Callable[[Awaitable[None]], None]


class WebSocketProtocol(asyncio.Protocol):
    """One connection that was let in, and asks for a WebSocket."""

    def __init__(
        self,
        app: ASGIApp,
        scope: Scope,
        transport: asyncio.Transport,
        *,
        seat: Seat,
        patience: Patience,
        tasks: set[asyncio.Task[None]],
        connections: set[Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._app = app
        self._scope = scope
        self._transport = transport
        self._seat = seat
        self._patience = patience
        self._tasks = tasks
        self._connections = connections
        self._loop = loop
        self._frames = ServerProtocol(max_size=MOST_MESSAGE, logger=_quiet)
        self._accepted: Response | None = None
        """The reply that accepts it, until it is sent."""
        self._denied: tuple[int, Headers, list[bytes]] | None = None
        self._open = False
        self._over = False
        """Whether the end was said, by either side."""
        self._lost = False
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._came = asyncio.Event()
        self._paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._message: list[bytes] = []
        self._is_text = True
        self._clock = LoopClock.current()
        self._clock.hold()
        self._heard = self._clock.now()
        """When something last came."""
        self._read_by = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = asyncio.Event()

    def begin(self, head: bytes) -> None:
        """Take the connection over. `head`: the request for the WebSocket, as it was sent."""
        self._connections.add(self)
        self._transport.set_protocol(self)
        self._seat.close = self._transport.abort
        self._frames.receive_data(head)
        request = next((event for event in self._frames.events_received() if isinstance(event, Request)), None)
        if request is None:
            self._deny(400, "this is no request for a WebSocket")
            return
        self._accepted = self._frames.accept(request)
        if self._accepted.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._frames.send_response(self._accepted)
            self._write()
            self._transport.close()
            return
        offered = [one.strip() for each in request.headers.get_all("Sec-WebSocket-Protocol") for one in each.split(",")]
        self._scope = {
            **self._scope,
            "type": "websocket",
            "scheme": "wss" if self._scope["scheme"] == "https" else "ws",
            "subprotocols": [one for one in offered if one],
            "extensions": {"websocket.http.response": {}},
            LEAVING: self._leaving,
        }
        self._put({"type": "websocket.connect"})
        task = self._loop.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deny(self, status: int, text: str) -> None:
        with contextlib.suppress(InvalidState):
            self._frames.send_response(self._frames.reject(HTTPStatus(status), text))
            self._write()
        self._transport.close()

    # The application

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except OSError:
            pass  # the client has left while something was sent
        except Exception:
            _log.exception("a WebSocket failed")
            self._end(SERVER_ERROR, "internal error")
        except asyncio.CancelledError:
            self._end(GOING_AWAY, "the server ends")
            raise
        finally:
            if self._accepted is not None and not self._lost:
                self._deny(500, "internal error")
            elif not self._lost:
                self._end(1000, "")
                self._loop.call_later(_FAREWELL, self._transport.abort)

    async def _receive(self) -> Message:
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        message = self._waiting.popleft()
        self._waiting_bytes -= _size(message)
        if self._paused and self._waiting_bytes < _MOST_WAITING:
            self._paused = False
            self._heard = self._clock.now()
            self._transport.resume_reading()
        return message

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if self._lost:
            raise OSError("the client has left")
        kind = message["type"]
        if kind == "websocket.send":
            if self._over:
                raise OSError("the connection has ended")
            text = message.get("text")
            if text is not None:
                self._frames.send_text(text.encode())
            else:
                self._frames.send_binary(message["bytes"])
            self._write()
        elif kind == "websocket.accept":
            self._accept(message)
        elif kind == "websocket.close":
            if self._accepted is not None:
                self._accepted = None
                self._deny(403, "refused")
            else:
                self._end(message.get("code") or 1000, message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
            self._denied = message["status"], headers, []
        elif kind == "websocket.http.response.body":
            assert self._denied is not None
            status, headers, parts = self._denied
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                headers["Connection"] = "close"
                self._accepted = None
                self._frames.send_response(Response(status, HTTPStatus(status).phrase, headers, b"".join(parts)))
                self._write()
                self._transport.close()

    def _accept(self, message: Message) -> None:
        reply, self._accepted = self._accepted, None
        assert reply is not None
        for name, value in message.get("headers") or ():
            reply.headers[name.decode("latin-1")] = value.decode("latin-1")
        if message.get("subprotocol"):
            reply.headers["Sec-WebSocket-Protocol"] = message["subprotocol"]
        self._open = True
        self._frames.send_response(reply)
        self._write()
        self._look()

    def _end(self, code: int, reason: str) -> None:
        """Say that it is over. The client has a moment to say the same."""
        if self._over or not self._open:
            return
        self._over = True
        with contextlib.suppress(InvalidState):
            self._frames.send_close(code, reason.encode()[:120].decode("utf-8", "ignore"))
        self._write()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._loop.call_later(_FAREWELL, self._transport.abort)

    # The connection

    def data_received(self, data: bytes) -> None:
        self._heard = self._clock.now()
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._frame(event)
        self._write()  # pongs, and what the library says to broken frames
        if self._frames.close_expected() and self._frames.parser_exc is not None:
            self._say_left(_code(self._frames.close_sent))
            self._transport.close()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._say_left(_code(self._frames.close_rcvd))
            self._over = True
            self._write()
            self._transport.close()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) and not self._over:
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._message.append(bytes(frame.data))
            if frame.fin:
                data, self._message = b"".join(self._message), []
                self._take(data)

    def _take(self, data: bytes) -> None:
        if self._is_text:
            try:
                self._put({"type": "websocket.receive", "text": data.decode()})
            except UnicodeDecodeError:
                self._say_left(1007)
                self._end(1007, "text is UTF-8")
                return
        else:
            self._put({"type": "websocket.receive", "bytes": data})
        if self._waiting_bytes >= _MOST_WAITING and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _put(self, message: Message) -> None:
        self._waiting.append(message)
        self._waiting_bytes += _size(message)
        self._came.set()

    def _say_left(self, code: int) -> None:
        self._put({"type": "websocket.disconnect", "code": code})

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._seat.leave()
        self._clock.release()
        self._connections.discard(self)
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        self._say_left(_NO_STATUS if self._over else _ABNORMAL)

    def eof_received(self) -> None:
        """The client has closed its half: it has left."""

    def pause_writing(self) -> None:
        self._writable.clear()
        self._read_by = self._clock.now() + self._patience.for_reading()
        self._arm()

    def resume_writing(self) -> None:
        self._writable.set()
        self._read_by = math.inf

    def shutdown(self) -> None:
        """The server is to end. uvicorn calls it."""
        self._leaving.set()

    def _write(self) -> None:
        out = b"".join(self._frames.data_to_send())
        if out and not self._transport.is_closing():
            self._transport.write(out)

    # The deadlines

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        soon = min(_PING, self._read_by - self._clock.now())
        self._timer = self._loop.call_later(soon, self._look)

    def _look(self) -> None:
        """Ping the client, and end what has waited too long."""
        now = self._clock.now()
        silent = 0.0 if self._paused else now - self._heard
        if self._lost:
            return
        if now >= self._read_by or silent > max(self._patience.for_request(), 2 * _PING):
            self._transport.abort()
            return
        if not self._over and self._open:
            with contextlib.suppress(InvalidState):
                self._frames.send_ping(b"")
            self._write()
        self._arm()


def _size(message: Message) -> int:
    return len(message.get("text") or message.get("bytes") or b"")


def _code(close: object) -> int:
    return cast(int, getattr(close, "code", _NO_STATUS)) if close is not None else _NO_STATUS
