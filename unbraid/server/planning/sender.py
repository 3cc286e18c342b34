"""Who sent the request that is being answered, and how large it is: what decides where it is worked out.

It is known to everything that runs for the request, tasks included.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Sender:
    """The sender of one request."""

    client: str = ""
    """A digest of the API key; without keys, the address."""
    size: int = 0
    """The bytes of the body."""
    held: int = 0
    """Those of them that are in memory (`held`)."""


sender: ContextVar[Sender] = ContextVar("unbraid_sender")
