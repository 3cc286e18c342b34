"""Writes the arguments of another notation as one JSON object, key by key, as `json.dumps` writes it."""

from __future__ import annotations

from collections.abc import Iterable

from .. import diagnostics
from ..machine.machine import Machine
from .json_text import quote


class ObjectWriter:
    """One JSON object, and the keys that it has so far."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = dict.fromkeys(seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def begin(self, machine: Machine, key: str) -> str:
        """What stands before the value of `key`."""
        before = ", " if self._seen else "{"
        if key in self._seen:
            machine.report(diagnostics.DUPLICATE_KEY, f"the argument {key!r} comes twice")
        if len(self._seen) < machine.limits.arguments:
            self._seen[key] = None
        return f"{before}{quote(key)}: "

    def end(self, machine: Machine) -> None:
        """The object is whole: write its end. Whether what stands in it is sound, the call knows."""
        machine.add_arguments("}" if self._seen else "{}")
        machine.call.has_arguments = True
        machine.call.complete = not machine.call.flawed

    def keys(self) -> list[str]:
        return list(self._seen)
