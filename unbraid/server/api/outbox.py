"""What streams have ready in one turn of the event loop is written together, at the end of the turn.

To write to a connection whose client waits wakes the client, and that costs the server more than the write. A client of
many streams that are written one right after the other is woken once. Nothing waits for more to come: the turn ends as
soon as all that is ready is worked on. A stream that is alone writes at once, and so does one that has more before its
last part is out.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from starlette.types import Scope

from ..access.protocol import PARTS, Parts


class Outbox:
    """All streams of an event loop."""

    def __init__(self) -> None:
        self.open = 0
        """How many streams there are."""
        self.waiting: list[Stream] = []
        """Those that have a part to be written in this turn."""

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream in waiting:
            stream.flush()


class Stream:
    """One stream, while it is written."""

    def __init__(self, outbox: Outbox, parts: Parts | None) -> None:
        self._outbox = outbox
        self._parts = parts
        self._held = b""
        """What is to be written in this turn."""

    def __enter__(self) -> Stream:
        self._outbox.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.open -= 1
        self.flush()

    def put(self, part: bytes) -> bool:
        """Write a part in this turn. Says whether that is done; if not, the part is to be sent as a message."""
        parts, outbox = self._parts, self._outbox
        more = bool(self._held)
        if more:
            self.flush()
        if parts is None or not parts.ready():
            return False
        if more or outbox.open == 1:
            parts.write(part)
            return True
        self._held = part
        if not outbox.waiting:
            asyncio.get_running_loop().call_soon(outbox.flush)
        outbox.waiting.append(self)
        return True

    def flush(self) -> None:
        """Write what is held."""
        if self._held and self._parts is not None:
            held, self._held = self._held, b""
            self._parts.write(held)


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Outbox] = WeakKeyDictionary()


def stream_of(scope: Scope) -> Stream:
    """What writes the stream that answers a request."""
    loop = asyncio.get_running_loop()
    outbox = _outboxes.get(loop)
    if outbox is None:
        outbox = _outboxes[loop] = Outbox()
    return Stream(outbox, scope.get(PARTS))
