"""Ids of requests and replies: 96 random bits each, which nobody can guess.

Bytes are drawn from the system for many ids at once, as each request to it costs more than all else about an id. A
process that is forked draws its own.
"""

from __future__ import annotations

import os

_BYTES = 12
_DRAWN = 64
"""How many ids are drawn at once."""
_ids: list[str] = []


def random_id() -> str:
    """24 hexadecimal digits. Any thread may ask."""
    while True:
        try:
            return _ids.pop()
        except IndexError:
            digits = os.urandom(_BYTES * _DRAWN).hex()
            _ids.extend(digits[at : at + 2 * _BYTES] for at in range(0, len(digits), 2 * _BYTES))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)
