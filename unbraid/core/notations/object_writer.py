"""Arguments that the model writes in another notation, passed on as one JSON object, the way `json.dumps` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..machine.machine import Machine

quote = json.JSONEncoder(ensure_ascii=False).encode
"""A string as JSON."""
is_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
"""Whether a text is a number in JSON, or may yet become one."""
may_become_number = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?"
).fullmatch


def escape(text: str) -> str:
    """Text as it stands inside a JSON string."""
    return quote(text)[1:-1]


class ObjectWriter:
    """The keys of the object so far."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = dict.fromkeys(seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def begin(self, machine: Machine, key: str) -> str:
        """What stands before the value of `key`."""
        before = ", " if self._seen else "{"
        if len(self._seen) < machine.limits.arguments:
            self._seen[key] = None
        return f"{before}{quote(key)}: "

    def end(self, machine: Machine) -> None:
        """The object is whole: write its end. Whether what stands in it is sound, the call knows."""
        machine.add_arguments("}" if self._seen else "{}")
        machine.call.has_arguments = True
        machine.call.complete = not machine.call.flawed

    def save(self) -> list[str]:
        return list(self._seen)
