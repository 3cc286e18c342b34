"""The id of a request: `x-request-id`, taken from the client if it can be, or made.

It goes back in the reply, on to the engine, and into every log line of the request. So it must be harmless wherever it
is written: one word of printable ASCII, not too long. What is anything else is not mended but replaced, since half of
an id finds nothing.
"""

from __future__ import annotations

import re
import secrets

HEADER = "x-request-id"
_TAKEN = re.compile(r"[!-~]{1,128}")


def request_id(given: str | None) -> str:
    """The id that a client has given, or a new one."""
    return given if given is not None and _TAKEN.fullmatch(given) else f"req_{secrets.token_hex(12)}"
