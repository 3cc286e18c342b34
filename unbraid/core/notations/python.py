"""Python notation: arguments as in a Python call, `key=value, …`, or as a dict of Python's, turned into JSON as they
arrive.

Python's literals say themselves what they are, so no schema is needed. Where something other than a literal comes, the
arguments are broken (`BracketsFrame`). `python_values.py` has the literals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from .. import diagnostics
from ..events import Event
from ..fast_import import frozen
from ..json_text import escape, quote
from ..machine.calls import CallsFrame, Step
from ..machine.machine import FastPath, Machine, State
from ..machine.markers import NOT_YET, Markers, NotYet, run_of, space_end
from ..machine.output import ARGUMENTS, MARKUP
from ..machine.steps import BeginNotation, ReadObject
from ..message import ToolCall
from .base import BracketsFrame, CallNotation, NotationPlace, ObjectWriter
from .python_values import as_python, scalar_as_json, string_as_json, string_run

# What comes next: an item or the end of what is open, a value, the colon after a key, a comma or that end; more quotes
# or a string, more of a string.
ITEM, VALUE, _COLON, _NEXT, _QUOTES, _STRING = range(6)

_CALL = "c"
"""The outermost level: the arguments themselves, up to the bracket that closes the call."""
_SET = "s"
"""A level of brackets that is a set, and a list in JSON."""
_CLOSERS = {_CALL: ")", "(": ")", "[": "]", "{": "}", _SET: "}"}
_AFTER_STRING = ",:)]}"
"""The characters that may follow a string. A quote with another character after it should have been escaped."""

_name_end = run_of(r"[^\s\"'{}\[\]()<>,=\x00-\x1f\ud800-\udfff]*")
_scalar_end = run_of(r"[\w.+-]*")
_MOST_BRACKETS = 8
"""How many brackets after a string are waited for."""
_brackets_end = run_of(rf"\){{0,{_MOST_BRACKETS + 1}}}")
_unescaped = re.compile(r"""[^"'\\]*""").fullmatch


@frozen
class PythonArguments(CallNotation):
    """The arguments as a Python call has them: `key=value, …`, the values Python's literals."""

    def step(self, place: NotationPlace) -> Step:
        return BeginNotation(PythonArgumentsFrame)

    def write(self, call: ToolCall, number: int) -> str:
        return ", ".join(f"{key}={as_python(value)}" for key, value in self.members(call).items())

    def can_name(self, key: str) -> bool:
        return bool(key) and _name_end(key, 0) == len(key)


@frozen
class PythonDict(CallNotation):
    """The arguments as a dict of Python's: `{'key': value, …}`."""

    def step(self, place: NotationPlace) -> Step:
        return ReadDict(place.following)

    def write(self, call: ToolCall, number: int) -> str:
        return as_python(call.arguments)


@dataclass(slots=True, eq=False, repr=False)
class ReadDict(ReadObject):
    """Begins the dict."""

    opens: ClassVar = ("{",)

    def begin(self, machine: Machine, frame: CallsFrame) -> None:
        machine.push(PythonDictFrame(frame.markers))


class PythonArgumentsFrame(BracketsFrame):
    """`key=value, …`. It breaks where something else than a literal comes."""

    kind = "python"
    opened_by = ("calls",)
    about = State(
        reads="arguments as in a Python call",
        ends="the bracket that closes the call",
        malformed="brackets and quotes are followed to that bracket, or to the nearest marker",
    )
    string_quotes = "\"'"
    brackets = ("([{", ")]}")
    ends_at_comma = False
    own_bracket: ClassVar[bool] = False
    saved = ("depth", "escaped", "in_key", "key", "keys", "lead", "lenient", "open", "positional", "quotes", "state")
    __slots__ = ("in_key", "key", "keys", "lead", "open", "positional", "state")

    def __init__(self, markers: Markers) -> None:
        super().__init__(markers)
        self.keys = ObjectWriter()
        self.positional = 0
        """How many arguments came without a name."""
        self.open = _CALL
        """The brackets that are open."""
        self.state = ITEM
        self.lead = ""
        """Text to write before the next item: the comma, which may also have come after the last."""
        self.in_key = False
        """Whether the string is the key of a dict."""
        self.key = ""
        """That key, as far as it has come."""

    @property
    def in_string(self) -> bool:
        return bool(self.quotes)

    def step(self, machine: Machine) -> bool:
        if self.lenient:
            return self._follow_brackets(machine, ARGUMENTS)
        if self.state >= _QUOTES:
            return self._string(machine) if self.state == _STRING else self._more_quotes(machine)
        machine.skip_space()
        buffer, at = machine.buffer, machine.position
        if at == len(buffer):
            return machine.needs_more()
        char = buffer[at]
        if char in self.markers.like_json:
            # `[` begins a list and `[TOOL_CALLS]`: outside strings a marker is a marker.
            marker = self.markers.matches_at(buffer, at)
            if marker is NOT_YET and not machine.at_end:
                return False
            if marker:
                return self._break(machine, "a marker in the middle of the arguments")
        if self.state in (ITEM, _NEXT) and char == _CLOSERS[self.open[-1]]:
            self._close(machine)
        elif self.state == _NEXT and char == ",":
            machine.take(1, MARKUP)
            # Before the next argument, its key knows of the comma.
            self.state, self.lead = ITEM, "" if self.open == _CALL else ", "
        elif self.state == _COLON and char == ":":
            machine.take(1, ARGUMENTS, ": ")
            self.state = VALUE
        elif self.state in (_NEXT, _COLON):
            expected = "':'" if self.state == _COLON else f"',' or '{_CLOSERS[self.open[-1]]}'"
            return self._break(machine, f"'{char}' where {expected} should be")
        elif self.state == ITEM and self.open == _CALL:
            return self._argument(machine, char)
        else:
            return self._value(machine, char)
        return True

    def fast_path(self, machine: Machine) -> FastPath | None:
        plain = self.state == _STRING and not self.in_key and not self.lenient
        return self._pass if plain and machine.call.accepted else None

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        return machine.pass_arguments(text, escape(text)) if _unescaped(text) else None

    def _close(self, machine: Machine) -> None:
        if self.open == _CALL:
            machine.pop()
            self.keys.end(machine)
            return
        machine.take(1, ARGUMENTS, "}" if self.open[-1] == "{" else "]")
        self.open, self.state, self.lead = self.open[:-1], _NEXT, ""
        if not self.open:
            machine.pop()

    def _argument(self, machine: Machine, char: str) -> bool:
        """An argument begins: with its name, or, where the schema says in which order names come, with its value."""
        buffer, start, most = machine.buffer, machine.position, machine.limits.name
        stop = _name_end(buffer, start)
        after = space_end(buffer, stop)
        if stop > start:
            if after - start > most:
                return self._break(machine, f"a name longer than {most} characters", diagnostics.TOO_LONG)
            if after == len(buffer):
                return machine.needs_more()
            if buffer[after] == "=":
                machine.take(after + 1 - start, ARGUMENTS, self.keys.begin(machine, buffer[start:stop]))
                self.state = VALUE
                return True
        elif char not in "\"'([{":
            return self._break(machine, f"'{char}' where an argument should be")
        names = list(machine.parameters().get("properties", {}))[self.positional : self.positional + 1]
        if not names or names[0] in self.keys:
            return self._break(machine, "an argument without a name", diagnostics.MALFORMED_CALL)
        self.positional += 1
        self.state, self.lead = VALUE, self.keys.begin(machine, names[0])
        return True

    def _value(self, machine: Machine, char: str) -> bool:
        buffer, start = machine.buffer, machine.position
        is_key = self.state == ITEM and self.open[-1] == "{"
        if char in "\"'":
            self._write(machine, 1, '"')
            self.state, self.quotes, self.in_key = _QUOTES, char, is_key
            return True
        if char in "([{" and not is_key:
            if len(self.open) >= machine.limits.depth:
                return self._break(machine, f"arguments nest deeper than {machine.limits.depth}", diagnostics.TOO_DEEP)
            is_set = char == "{" and bool(self.open) and self._is_set(machine, start + 1)
            if is_set is NOT_YET:
                return machine.needs_more()
            if is_set:
                machine.report(diagnostics.REPAIRED, "a set, which JSON does not have: taken as a list")
            self._write(machine, 1, "{" if char == "{" and not is_set else "[")
            self.open, self.state = self.open + (_SET if is_set else char), ITEM
            return True
        stop = _scalar_end(buffer, start)
        if stop - start > machine.limits.number:
            most = machine.limits.number
            return self._break(machine, f"a number has more than {most} characters", diagnostics.TOO_LONG)
        if stop == len(buffer):
            return machine.needs_more()
        scalar = scalar_as_json(buffer[start:stop])
        if scalar is None:
            return self._break(machine, f"'{buffer[start : max(stop, start + 1)][:40]}' where a literal should be")
        self._write(machine, stop - start, quote(scalar) if is_key and not scalar.startswith('"') else scalar)
        self.state = _COLON if is_key else _NEXT
        if is_key:
            self.key = scalar.strip('"')
            self._end_key(machine)
        return True

    def _is_set(self, machine: Machine, start: int) -> bool | NotYet:
        """Whether the first thing in these braces is an item, and no key."""
        buffer = machine.buffer
        at = space_end(buffer, start)
        char = buffer[at : at + 1]
        if char and char in "\"'":
            quotes = char * 3 if buffer.startswith(char * 3, at) else char
            match = string_run[quotes](buffer, at + len(quotes))
            end = match.end()  # type: ignore[union-attr]  # an empty match always exists
            end = end + len(quotes) if buffer.startswith(quotes, end) else len(buffer)
        elif char == "(":
            return True
        else:
            end = _scalar_end(buffer, at)
        after = space_end(buffer, end)
        if after - start > machine.limits.name:
            return False  # what is too long to wait for may as well be a key
        if after == len(buffer) or buffer[at:] in ("''", '""'):
            return NOT_YET
        return end > at and buffer[after] in ",}"

    def _write(self, machine: Machine, size: int, value: str) -> None:
        machine.take(size, ARGUMENTS, self.lead + value)
        self.lead = ""

    def _more_quotes(self, machine: Machine) -> bool:
        """After the first quote: two more make it a string between three, one more an empty one."""
        quote, at = self.quotes, machine.position
        rest = machine.buffer[at : at + 2]
        if rest in ("", quote) and not machine.at_end:
            return False
        if rest == quote * 2:
            machine.take(2, MARKUP)
            self.quotes = quote * 3
        self.state = _STRING
        return True

    def _string(self, machine: Machine) -> bool:
        buffer, start = machine.buffer, machine.position
        end = string_run[self.quotes](buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if end > start:
            value = string_as_json(machine.spell(buffer[start:end]))
            if self.in_key:
                self.key = (self.key + value)[: machine.limits.name]
            if value:
                machine.take(end - start, ARGUMENTS, value)
            else:
                machine.take(end - start, MARKUP)
        if not buffer.startswith(self.quotes, end):
            return machine.needs_more()
        closes = self._closes(machine)
        if closes is NOT_YET:
            return False
        if not closes:
            machine.report(diagnostics.REPAIRED, f"{self.quotes} inside a string, without a backslash before it")
            machine.take(1, ARGUMENTS, escape(self.quotes))
            return True
        machine.take(len(self.quotes), ARGUMENTS, '"')
        self.state, self.quotes = _COLON if self.in_key else _NEXT, ""
        if self.in_key:
            self._end_key(machine)
        return True

    def _end_key(self, machine: Machine) -> None:
        """A key of a dict is over. Where the arguments are one, its own keys are theirs."""
        if self.open == "{":
            self.keys.begin(machine, self.key)
        self.key = ""

    def _closes(self, machine: Machine) -> bool | NotYet:
        """Whether the quote that comes ends the string, by what follows it."""
        if len(self.quotes) > 1:
            return True
        buffer, start = machine.buffer, machine.position
        after = space_end(buffer, start + 1)
        if after - start > machine.limits.name:
            return True
        if after == len(buffer):
            return True if machine.at_end else NOT_YET
        if buffer[after] == ")" and self.open == _CALL:
            return self._closes_call(machine, after)
        if buffer[after] in _AFTER_STRING or (buffer[after] in "\"'" and after > start + 1):
            return True  # two strings in a row, and nothing shows what they should be
        marker = self.markers.matches_at(buffer, after)
        return True if marker is NOT_YET and machine.at_end else marker

    def _closes_call(self, machine: Machine, at: int) -> bool | NotYet:
        """Whether the bracket there closes the call. No quote follows that one: it would end a string with code in it,
        `'print('a')"'`. Where no more input comes, the call is not complete."""
        end = _brackets_end(machine.buffer, at)
        if end == len(machine.buffer) and end - at <= _MOST_BRACKETS and not machine.turn_over:
            machine.needs_more()
            return NOT_YET
        return machine.buffer[end : end + 1] not in ("'", '"')

    def _break(self, machine: Machine, message: str, kind: str = diagnostics.MALFORMED_JSON) -> bool:
        machine.report(kind, message)
        if self.lead:
            machine.add_arguments(self.lead)
        machine.call.flawed = self.lenient = True
        self.depth = len(self.open) - (not self.own_bracket)
        return True

    def _finish(self, machine: Machine) -> None:
        machine.pop()
        machine.call.has_arguments = True


class PythonDictFrame(PythonArgumentsFrame):
    """`{'key': value, …}`, its brackets included."""

    kind = "python_dict"
    opened_by = ("calls",)
    about = State(
        reads="arguments as a dict of Python's",
        ends="its closing bracket",
        malformed="brackets and quotes are followed to its end, or to the nearest marker",
    )
    own_bracket = True
    __slots__ = ()

    def __init__(self, markers: Markers) -> None:
        super().__init__(markers)
        self.open, self.state = "", VALUE

    def _close(self, machine: Machine) -> None:
        super()._close(machine)
        if not self.open:
            machine.call.has_arguments = True
            machine.call.complete = not machine.call.flawed

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        assert machine.calls is not None
        return cls(machine.calls.markers)
