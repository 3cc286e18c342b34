"""How long the server waits for a client.

Headers have to be there in full `headers` seconds after the connection or their first byte. A body may take long if it
is large and the line is slow, so its limit is one on progress: no pause of more than `body` seconds, and no less than
`SLOWEST` bytes a second after the first `body` seconds. 25 MB of audio may take seven hours; one byte at a time is
over after `body` seconds. Only the time that the server waits counts. 0 seconds: without end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def _end(seconds: float) -> float:
    return seconds or math.inf


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds that the server waits."""

    headers: float = 10.0
    """For the headers of a request."""
    body: float = 30.0
    """For the next piece of a body."""
    keep_alive: float = 75.0
    """For the next request on a connection."""
    sending: float = 60.0
    """For a client to read what was sent to it."""
    farewell: float = 2.0
    """For a client that was refused to see why, before the connection is cut."""

    def for_headers(self) -> float:
        return _end(self.headers)

    def for_request(self) -> float:
        return _end(self.keep_alive)

    def for_reading(self) -> float:
        return _end(self.sending)
