"""How long the server waits for a client, and how fast it reads large bodies, all connections taken together.

To read is work for the event loop, whether a body is wanted or not, and a client that is near can send as fast as the
loop can read: it would do nothing else. So large bodies share a rate. After each piece of one, its connection is not
read for as long as the piece is worth; the client's system holds back the rest. A small body is free, so that
nobody else waits.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from uvicorn.protocols.http.flow_control import FlowControl

RATE = 60e6
"""Bytes a second. A slow core reads and keeps some ten times as many."""
FREE = 131_072
"""Bytes of a body that are read at once, however much others send."""
_SLACK = 0.005
"""Seconds that are not worth a timer."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds that the server waits for a client. 0: without end.

    Headers have to be there in full `headers` seconds after the connection or their first byte. How long a body may
    take is in `http`.
    """

    headers: float = 10.0
    """For the headers of a request."""
    keep_alive: float = 75.0
    """For the next request on a connection."""
    sending: float = 60.0
    """For a client to read what was sent to it."""
    farewell: float = 2.0
    """For a client that was refused to see why, before the connection is cut."""

    def for_headers(self) -> float:
        return self.headers or math.inf

    def for_request(self) -> float:
        return self.keep_alive or math.inf

    def for_reading(self) -> float:
        return self.sending or math.inf


class Pace:
    """The rate of one server."""

    def __init__(self, rate: float = RATE) -> None:
        self._rate = rate
        self._free = 0.0
        """When the next piece may be read."""

    def wait(self, size: int, now: float) -> float:
        """How many seconds a connection is not to be read, after it has sent so many bytes."""
        self._free = max(self._free, now) + size / self._rate
        wait = self._free - now
        return wait if wait > _SLACK else 0.0


class PacedFlow(FlowControl):
    """Decides whether a connection is read. There are two reasons not to: the application has not taken what came,
    which is uvicorn's, and the pace."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._full = False
        self._held: asyncio.TimerHandle | None = None

    def pause_reading(self) -> None:
        self._full = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._full = False
        if self._held is None:
            super().resume_reading()

    def hold(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Do not read for so long."""
        if self._held is not None:
            self._held.cancel()
        self._held = loop.call_later(seconds, self._go_on)
        super().pause_reading()

    def release(self) -> None:
        """The connection has ended."""
        if self._held is not None:
            self._held.cancel()

    def _go_on(self) -> None:
        self._held = None
        if not self._full and not self._transport.is_closing():
            super().resume_reading()
