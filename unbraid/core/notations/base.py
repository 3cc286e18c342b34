"""What a notation is: a way to write the arguments of a call, or the whole call.

A notation is one module here. It has the grammar's node for it (a subclass of `CallNotation`), which says how the
notation is read (`step`) and written (`write`), and the frames that read it. Its constraint is the module of the same
name in `unbraid/constraints/notations`. docs/formats.md has the steps to add one.

`ObjectWriter` is for all that are not JSON: it writes the arguments as one JSON object, as `json.dumps` writes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from ...errors import UnbraidError
from .. import diagnostics
from ..events import Event
from ..grammar import Notation
from ..json_text import escape, members, quote
from ..machine.calls import Step
from ..machine.machine import FastPath, Machine
from ..machine.markers import Markers
from ..message import ToolCall


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """Where in a call a notation stands, for the step that reads it."""

    key: Callable[[str], str]
    """What to look for to find a text: the text, with placeholders for the tags in it that are tokens."""
    following: str
    """The key of what comes next in the call; empty where that is not a literal."""
    close: str
    """The key of what closes the calls; empty where nothing does."""

    @property
    def ends(self) -> list[str]:
        """The keys of all that may come after the arguments."""
        return [key for key in (self.following, self.close) if key]


class CallNotation(Notation, ABC):
    """A node of the grammar that stands for arguments, or for a whole call."""

    __slots__ = ()
    is_json: ClassVar[bool] = False
    """Whether the arguments are one JSON object, passed through as it is."""
    begins: ClassVar[str] = ""
    """What every call in this notation begins with, where that is known."""

    @abstractmethod
    def step(self, place: Place) -> Step:
        """The step that reads it."""

    @abstractmethod
    def write(self, call: ToolCall, number: int) -> str:
        """The text of a call's arguments. `number` counts the calls of the message."""

    def can_name(self, key: str) -> bool:
        """Whether an argument of this name can be written."""
        return True

    def members(self, call: ToolCall) -> dict[str, str]:
        """The arguments by their names, each as the JSON it is written as."""
        values = members(call.arguments)
        for key in values:
            if not self.can_name(key):
                raise UnbraidError(
                    f"an argument named {key[:40]!r} cannot be written in this format: the name would read back as "
                    "another; use letters, digits and `_`"
                )
        return values


def string_path(ends: Markers) -> FastPath:
    """The fast path inside a string that is written as its bare characters, up to what ends it."""
    signs, absent = ends.signs, ends.absent

    def take(machine: Machine, text: str) -> list[Event] | None:
        if signs(text) is None:
            return machine.pass_arguments(text, text)
        return machine.pass_arguments(text, escape(text)) if absent(text) else None

    return take


class ObjectWriter:
    """One JSON object, and the keys that it has so far."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = dict.fromkeys(seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    @property
    def empty(self) -> bool:
        return not self._seen

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
