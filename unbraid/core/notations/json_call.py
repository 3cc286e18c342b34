"""JSON notation for a whole call: one object with the name and the arguments in it, in any order.

Until the name is known nothing goes out. Where no marker says that a call comes (`Calls.bare`), an object with other
keys is an answer and no call, and many an answer has a name: it is a call from where its arguments come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import ClassVar

from .. import diagnostics
from ..events import Event
from ..fast_import import frozen, lazily
from ..machine.calls import Step
from ..machine.machine import FastPath, Frame, Machine, State
from ..machine.markers import NOT_YET, Beginnings, Markers, NotYet, run_of, space_end
from ..machine.output import MARKUP, NAME, Malformed
from ..machine.steps import BeginNotation
from ..machine.whole_calls import SPACE, WholeArguments
from ..message import ToolCall
from .base import CallNotation, NotationPlace
from .json import ValueFrame, push_arguments, whole_object

_string_so_far = lazily(lambda: re.compile(r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*').match)
_name_end = run_of(r"[\w.:/-]*")
Match = Callable[[str, int], re.Match[str] | None]
_decode = json.JSONDecoder(strict=False).decode


@frozen
class JsonCall(CallNotation):
    """The whole call as one JSON object, its keys in any order."""

    name: str = "name"
    arguments: tuple[str, ...] = ("arguments",)
    """The keys that may hold the arguments; the first is the one that is written."""
    id: str = "id"
    id_first: bool = False
    """Whether the model numbers its calls, and writes the number first."""
    ignored: tuple[str, ...] = ("type",)
    """Keys that are often there and say nothing."""
    by_schema: bool = False
    """As `Arguments` has it."""

    begins: ClassVar = "{"

    def step(self, place: NotationPlace) -> Step:
        common = CommonCall(self)
        return BeginNotation(lambda markers: JsonCallFrame(self, common, markers), named=False)

    def whole(self, place: NotationPlace) -> WholeArguments | None:
        if self.id_first:
            return None
        begins = space_end, "{", space_end, f'"{self.name}"', space_end, ":", space_end, '"', _name_end, '"'
        return WholeArguments(whole_object(self.by_schema), SPACE + _name(self) + _between(self), SPACE + r"\}", begins)

    def write(self, call: ToolCall, number: int) -> str:
        name = json.dumps(call.name, ensure_ascii=False)
        id = f'"{self.id}": "{call.id or number}", ' if self.id_first else ""
        return f'{{{id}"{self.name}": {name}, "{self.arguments[0]}": {call.arguments}}}'


class CommonCall:
    """A call as its format writes it, up to an object of arguments. Nearly all are; to read others takes longer."""

    __slots__ = ("between", "goes_on", "head", "name")

    def __init__(self, node: JsonCall) -> None:
        name, between = _name(node), _between(node)
        self.name: Match = lazily(lambda: re.compile(rf"\s*{name}").match)
        """Up to the end of the name."""
        self.between: Match = lazily(lambda: re.compile(rf"{between}(?=\{{)").match)
        """From there up to the object."""
        self.head: Match = lazily(lambda: re.compile(rf"\s*{name}{between}(?=\{{)").match)
        """Both."""
        self.goes_on = Beginnings((space_end, ",", space_end, f'"{node.arguments[0]}"', space_end, ":", space_end, "{"))
        """Beginnings of what stands between them."""


class JsonCallFrame(Frame):
    """A call as one JSON object. Name and arguments may come in either order."""

    kind = "json_call"
    opened_by = ("calls",)
    about = State(
        reads="a call that is one JSON object",
        ends="its closing brace",
        malformed="the call is given up",
    )
    saved = ("key", "state")
    __slots__ = ("common", "key", "markers", "node", "state")

    _OPEN, _FIRST_KEY, _KEY, _COLON, _VALUE, _NEXT = range(6)
    _MOVES: ClassVar = {(_OPEN, "{"): _FIRST_KEY, (_COLON, ":"): _VALUE, (_NEXT, ","): _KEY}

    def __init__(self, node: JsonCall, common: CommonCall, markers: Markers) -> None:
        self.node = node
        self.common = common
        self.markers = markers
        self.state = self._OPEN
        self.key = ""

    def held_path(self, machine: Machine) -> FastPath | None:
        return self._wait if self._awaits_arguments(machine) and machine.in_short else None

    def _wait(self, machine: Machine, text: str) -> list[Event] | None:
        rest = machine.buffer[machine.position :] + text
        return machine.hold(rest) if len(rest) <= machine.limits.name and self.common.goes_on[rest] else None

    def _awaits_arguments(self, machine: Machine) -> bool:
        """Whether the name has come, and the arguments should come next."""
        return self.state == self._NEXT and machine.call.accepted and not machine.call.has_arguments

    def step(self, machine: Machine) -> bool:
        if self.state == self._OPEN and self._name_comes(machine):
            return True
        if self._awaits_arguments(machine) and (match := self.common.between(machine.buffer, machine.position)):
            self._begin_arguments(machine, match)
            return True
        machine.skip_space()
        if machine.position == len(machine.buffer):
            return machine.needs_more()
        char, state = machine.buffer[machine.position], self.state
        if (state, char) in self._MOVES:
            machine.take(1, MARKUP)
            self.state = self._MOVES[state, char]
        elif state == self._VALUE:
            return self._value(machine, char)
        elif char == '"' and state in (self._FIRST_KEY, self._KEY):
            string = self._whole_string(machine)
            if string is NOT_YET:
                return False
            self.key, self.state = _unquote(machine.spell(string)), self._COLON
            if machine.is_guess and self.key not in self._known():
                raise Malformed(diagnostics.UNEXPECTED_KEY, "an object that is no call")
            machine.take(len(string), MARKUP)
        elif char == "}" and state in (self._FIRST_KEY, self._KEY, self._NEXT):
            if state == self._KEY:
                machine.report(diagnostics.MALFORMED_CALL, "a comma too many in a tool call")
            self._end(machine)
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, f"'{char}' does not belong in a tool call here")
        return True

    def _name_comes(self, machine: Machine) -> bool:
        """Take all up to the end of the name at once, or up to the arguments, where it has come and is what nearly all
        calls are. It comes to the same as to take it piece by piece."""
        buffer, start, call = machine.buffer, machine.position, machine.call
        head = self.common.head(buffer, start)
        match = head or self.common.name(buffer, start)
        if match is None or machine.is_guess or call.name or call.id:
            return False
        begin, end = match.span("name")
        name = match["name"]
        if len(name) > machine.limits.name or self.markers.find(buffer, begin, end) is not None:
            return False
        assert machine.calls is not None
        usual = machine.in_short and not machine.calls.echo and machine.can_begin(name, "")
        if not usual or not machine.take_begun(name, "", begin, end, end + 1):
            call.name = name
            machine.take(begin - start, MARKUP)
            machine.take(end - begin, NAME)
            machine.take(1, MARKUP)
            machine.accept_call()
        self.key, self.state = self.node.name, self._NEXT
        if head is not None:
            self._begin_arguments(machine, head)
        return True

    def _begin_arguments(self, machine: Machine, match: re.Match[str]) -> None:
        """An object of arguments comes, where a match ends."""
        machine.take(match.end() - machine.position, MARKUP)
        machine.call.has_arguments = True
        self.key, self.state = match["key"], self._NEXT
        push_arguments(machine, self.markers, self.node.by_schema)

    def _value(self, machine: Machine, char: str) -> bool:
        call, key = machine.call, self.key
        if key == self.node.name and not call.name:
            if char != '"':
                raise Malformed(diagnostics.MALFORMED_CALL, "a tool call whose name is not a string")
            string = self._whole_string(machine)
            if string is NOT_YET:
                return False
            call.name = _unquote(machine.spell(string))
            machine.take(1, MARKUP)
            machine.take(len(string) - 2, NAME)
            machine.take(1, MARKUP)
            # Many an answer has a name, and few have arguments too.
            if not machine.is_guess or call.has_arguments or not machine.may_call(call.name):
                machine.accept_call()
        elif key in self.node.arguments and not call.has_arguments and char != "n":
            if call.name and not call.accepted:
                machine.accept_call()
            call.has_arguments = True
            push_arguments(machine, self.markers, self.node.by_schema)
        elif key == self.node.id and char == '"' and not call.id and not call.accepted:
            string = self._whole_string(machine)
            if string is NOT_YET:
                return False
            call.id = _unquote(machine.spell(string))
            machine.take(len(string), MARKUP)
        else:
            # An id that comes too late, arguments that are null, or something that does not belong here.
            expected = {self.node.id, *self.node.ignored, *(() if call.has_arguments else self.node.arguments)}
            if key not in expected:
                machine.report(diagnostics.UNEXPECTED_KEY, f"a tool call with an unexpected key '{key}'")
            machine.push(ValueFrame(machine.limits, MARKUP, self.markers))
        self.state = self._NEXT
        return True

    def _known(self) -> set[str]:
        node = self.node
        return {node.name, node.id, *node.arguments, *node.ignored}

    def _end(self, machine: Machine) -> None:
        if not machine.call.name:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without a name")
        if not machine.call.accepted and not machine.call.rejected:
            if not machine.knows(machine.call.name):
                raise Malformed(diagnostics.MALFORMED_CALL, "an object that is no call")
            machine.accept_call()
        machine.take(1, MARKUP)
        machine.pop()
        if not machine.call.has_arguments:
            machine.no_arguments()

    def _whole_string(self, machine: Machine) -> str | NotYet:
        """The string that comes next, with its quotes. It is a name or a key: a line break or a marker in it shows that
        its end is missing."""
        buffer, start, most = machine.buffer, machine.position, machine.limits.name + 2
        end = _string_so_far(buffer, start).end()  # type: ignore[union-attr]  # a quote comes
        closed = buffer.startswith('"', end)
        if end + closed - start > most:
            raise Malformed(diagnostics.TOO_LONG, f"a name or key of a tool call longer than {most - 2} characters")
        broken = not closed and end < len(buffer) and buffer[end:] != "\\"
        if broken or self.markers.find(buffer, start, end) is not None:
            raise Malformed(diagnostics.MALFORMED_CALL, "a name or key of a tool call that does not end")
        if closed:
            return buffer[start : end + 1]
        if machine.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        return NOT_YET


def _name(node: JsonCall) -> str:
    """A pattern for such a call up to the end of its name."""
    return rf'\{{\s*"{re.escape(node.name)}"\s*:\s*"(?P<name>[\w.:/-]+)"'


def _between(node: JsonCall) -> str:
    """A pattern for what stands between its name and its arguments."""
    return rf'\s*,\s*"(?P<key>{"|".join(map(re.escape, node.arguments))})"\s*:\s*'


def _unquote(string: str) -> str:
    try:
        text = str(_decode(string)) if "\\" in string else string[1:-1]
        text.encode()  # half a surrogate pair is no text
    except ValueError:
        raise Malformed(diagnostics.MALFORMED_CALL, "a tool call with a broken escape in a name or key") from None
    return text
