"""How long a server may take: to be reached, to its first piece, and from one piece to the next.

A piece is output: tokens or text. Bytes that are none (comments that keep a connection open, empty messages) do not
count, so a server that only trickles is given up like one that is silent. Time that our own consumer takes between two
pieces does not count either: the clock of a piece starts when it is waited for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..errors import UnbraidError


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    connect: float = 5.0
    """To open a connection."""
    first: float = 120.0
    """To the first piece of an output, from when the request is sent. A server that does not stream has as long for
    all of its answer."""
    piece: float = 120.0
    """To each further piece, and from the last one to the end."""

    def __post_init__(self) -> None:
        if not all(0.0 < seconds < float("inf") for seconds in (self.connect, self.first, self.piece)):
            raise UnbraidError(f"a timeout is a number of seconds above 0, and these are {self}: give others")


class PieceClock:
    """The time that is left for the next piece of one output."""

    __slots__ = ("_piece", "_time", "_until", "came", "seconds")

    def __init__(self, timeouts: Timeouts) -> None:
        self._time = asyncio.get_running_loop().time
        self._piece = timeouts.piece
        self.seconds = timeouts.first
        """How long the piece that is waited for may take."""
        self._until = self._time() + timeouts.first
        self.came = False
        """Set it when a piece has come: that is all that a piece costs."""

    def limit(self) -> asyncio.Timeout:
        """Bounds one wait for the server. Raises `TimeoutError` when the time for the piece is up."""
        if self.came:
            self.came = False
            self.seconds = self._piece
            self._until = self._time() + self._piece
        return asyncio.timeout_at(self._until)
