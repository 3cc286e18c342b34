"""What a notation is: a way to write the arguments of a call, or the whole call.

A notation is one module here. It has the grammar's node for it (a subclass of `CallNotation`), which says how the
notation is read (`step`) and written (`write`), and the frames that read it. Its constraint is the module of the same
name in `unbraid/constraints/notations`. docs/formats.md has the steps to add one.

`ObjectWriter` is for all that are not JSON: it writes the arguments as one JSON object, as `json.dumps` writes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UnbraidError
from .. import diagnostics
from ..events import Event
from ..grammar import Notation
from ..json_text import escape, members, quote
from ..machine.calls import Step
from ..machine.machine import FastPath, Frame, Machine
from ..machine.markers import Markers
from ..machine.whole_calls import WholeArguments
from ..message import ToolCall


@dataclass(frozen=True, slots=True)
class Closing:
    """What closes something further out than a value: `</function>`."""

    text: str
    """The closing without the whitespace around it."""
    needed: bool
    """Whether a call that lacks it is not closed."""
    further: str = ""
    """What comes before the name of a further call, where one may follow this closing: from the closing on, as the
    template writes it."""
    after_name: tuple[str, ...] = ()
    """What may come after that name."""

    def calls(self, names: Iterable[str]) -> list[str]:
        """What shows that a further call to one of these tools comes."""
        return [self.further + name + after for name in names for after in self.after_name] if self.further else []


@dataclass(slots=True, eq=False, repr=False)
class NotationPlace:
    """Where in a call a notation stands, for the step that reads it."""

    key: Callable[[str], str]
    """A literal to the text to look for: the literal, with placeholders for the tags in it that are tokens."""
    following: str
    """The key of the literal that comes next in the call, or ""."""
    close: str
    """The key of the marker that closes the calls, or ""."""
    tail: tuple[Closing, ...] = ()
    """What closes the call after its arguments, innermost first, as keys."""

    @property
    def ends(self) -> list[str]:
        """The keys of all that may come after the arguments."""
        return list(dict.fromkeys([*filter(None, (self.following, self.close)), *(one.text for one in self.tail)]))


class CallNotation(Notation, ABC):
    """A node of the grammar that stands for arguments, or for a whole call."""

    __slots__ = ()
    is_json: ClassVar[bool] = False
    """Whether the arguments are one JSON object, passed through as it is."""
    begins: ClassVar[str] = ""
    """The beginning of every call in this notation, or ""."""

    @abstractmethod
    def step(self, place: NotationPlace) -> Step:
        """The step that reads it."""

    def whole(self, place: NotationPlace) -> WholeArguments | None:
        """How arguments are read at once that have come whole and as the template writes them; None where only the
        step reads them."""
        return None

    @abstractmethod
    def write(self, call: ToolCall, number: int) -> str:
        """The text of a call's arguments. `number` counts the calls of the message."""

    def check(self, call: ToolCall, tail: tuple[Closing, ...], tools: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Raise `UnbraidError` for a value that would not read back. tail: what closes the call after its arguments.
        tools: the tools and their parameters, if they are known."""

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


class BracketsFrame(Frame):
    """A value in brackets. Once it has broken it is `lenient`: it is passed on as it is, brackets and quotes are
    followed to its end, and any marker ends it."""

    __slots__ = ("depth", "escaped", "lenient", "markers", "quotes")
    string_quotes: ClassVar[str]
    brackets: ClassVar[tuple[str, str]]
    """The brackets that open, and those that close."""
    ends_at_comma: ClassVar[bool]
    """Whether a comma outside of all brackets ends the value."""
    own_bracket: ClassVar[bool] = True
    """Whether the last bracket to close belongs to the value, and not to what it stands in."""

    def __init__(self, markers: Markers) -> None:
        self.markers = markers
        self.lenient = False
        self.depth = 0
        self.quotes = ""
        """The quotes of the string that is open."""
        self.escaped = False

    @abstractmethod
    def _finish(self, machine: Machine) -> None:
        """End the value."""

    def _follow_brackets(self, machine: Machine, role: int) -> bool:
        """The step of a broken value."""
        buffer, start = machine.buffer, machine.position
        limit = len(buffer) if machine.at_end else self.markers.searchable_end(buffer, start)
        end, over = self._balanced_end(buffer, start, limit)
        if end > start:
            machine.take(end - start, role)
        if not over:
            return machine.needs_more()
        self._finish(machine)
        return True

    def _balanced_end(self, buffer: str, at: int, limit: int) -> tuple[int, bool]:
        """How far the value goes, and whether it is over there: its last bracket closes, what it stands in goes on, or
        a marker comes."""
        opens, closes = self.brackets
        while at < limit:
            if self.escaped:
                self.escaped = False
                at += not self.markers.at(buffer, at)
                continue
            mark = self.markers.find_or_sign(buffer, at, limit)
            if mark is None:
                break
            char = mark.group(1)
            if char is None:
                return mark.start(), True
            if char == "\\":
                self.escaped = bool(self.quotes)
            elif self.quotes:
                self.quotes = "" if char == self.quotes else self.quotes
            elif char in self.string_quotes:
                self.quotes = char
            elif char in opens:
                self.depth += 1
            elif not self.depth and (char in closes or (char == "," and self.ends_at_comma)):
                return mark.start(), True
            elif char in closes:
                self.depth -= 1
                if self.depth == 0 and self.own_bracket:
                    return mark.end(), True
            at = mark.end()
        return limit, False


class ObjectWriter:
    """One JSON object, and the keys that it has so far."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = dict.fromkeys(seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    @property
    def latest(self) -> str:
        """The key that came last, or ""."""
        return next(reversed(self._seen), "")

    @property
    def empty(self) -> bool:
        return not self._seen

    def begin(self, machine: Machine, key: str) -> str:
        """The text before the value of `key`: `{"city": ` or `, "city": `."""
        before = ", " if self._seen else "{"
        if key in self._seen:
            machine.report(diagnostics.DUPLICATE_KEY, f"the argument {key!r} comes twice")
        if len(self._seen) < machine.limits.arguments:
            self._seen[key] = None
        return f"{before}{quote(key)}: "

    def end(self, machine: Machine) -> None:
        """Write the end of the object. The call is complete, unless one of its arguments is flawed."""
        machine.add_arguments("}" if self._seen else "{}")
        machine.call.has_arguments = True
        machine.call.complete = not machine.call.flawed

    def keys(self) -> list[str]:
        return list(self._seen)
