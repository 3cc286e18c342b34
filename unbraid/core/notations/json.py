"""The JSON in calls: arguments, and calls that are JSON objects themselves."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar

from .. import diagnostics
from ..events import Event
from ..grammar import JsonCall
from ..limits import Limits
from ..machine.frames import ARGUMENTS, MARKUP, NAME, Frame, Malformed, wait
from ..machine.markers import Markers
from .json_scanner import JsonScanner

if TYPE_CHECKING:
    from ..machine.machine import Machine

_string_so_far = re.compile(r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*').match
_plain = re.compile(r'[^"\\]*').match
_escape = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})').match
_partial_escape = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z").match
_decode = json.JSONDecoder(strict=False).decode
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class ValueFrame(Frame):
    """One JSON value, passed on as it is: the arguments, or something that is only markup.

    If it breaks, only its brackets and quotes are followed any more, and any marker ends it.
    """

    kind = "value"
    __slots__ = ("depth", "escaped", "lenient", "markers", "quoted", "role", "scanner")

    def __init__(self, limits: Limits, role: int, markers: Markers) -> None:
        self.scanner = JsonScanner(limits, markers.like_json)
        self.role = role
        self.markers = markers
        self.lenient = False
        self.depth = 0
        self.quoted = False
        self.escaped = False

    def step(self, machine: Machine) -> bool:
        if self.lenient:
            return self._follow_brackets(machine)
        scanner, start = self.scanner, machine.position
        end = scanner.scan(machine.buffer, start)
        while scanner.paused:
            # `[` begins an array and `[TOOL_CALLS]`: outside strings a marker is a marker.
            marker = self.markers.matches_at(machine.buffer, end)
            if marker:
                scanner.fail("a marker in the middle of the arguments")
            elif marker is None and not machine.at_end:
                scanner.paused = False
                break
            else:
                end = scanner.scan(machine.buffer, end)
        if end > start:
            machine.take(end - start, self.role)
        if scanner.error:
            self._broken(machine)
        elif scanner.done or (machine.at_end and scanner.finish()):
            self._finish(machine)
        elif machine.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        else:
            return False
        return True

    def fast_path(self, machine: Machine, text: str) -> Event | None:
        if self.lenient or self.role != ARGUMENTS or not machine.call.accepted or not self.scanner.pass_string(text):
            return None
        return machine.pass_arguments(text, text)

    @property
    def in_string(self) -> bool:
        return self.quoted if self.lenient else self.scanner.in_string

    def _broken(self, machine: Machine) -> None:
        machine.report(self.scanner.error, self.scanner.message)
        self.lenient, self.depth = True, len(self.scanner.open)

    def _finish(self, machine: Machine) -> None:
        machine.pop()
        if self.role == ARGUMENTS:
            finish_arguments(machine, self.scanner)

    def _follow_brackets(self, machine: Machine) -> bool:
        buffer, start = machine.buffer, machine.position
        limit = len(buffer) if machine.at_end else self.markers.searchable_end(buffer, start)
        end, over = self._balanced_end(buffer, start, limit)
        if end > start:
            machine.take(end - start, self.role)
        if over:
            self._finish(machine)
            return True
        return wait(machine)

    def _balanced_end(self, buffer: str, at: int, limit: int) -> tuple[int, bool]:
        """How far the value goes, and whether it is over there: its last bracket closes, what it stands in goes on, or
        a marker comes."""
        while at < limit:
            if self.escaped:
                self.escaped = False
                at += not self.markers.at(buffer, at)
                continue
            mark = self.markers.find_or_sign(buffer, at, limit)
            if mark is None:
                return limit, False
            char = mark.group(1)
            if char is None:
                return mark.start(), True
            if char == '"':
                self.quoted = not self.quoted
            elif char == "\\":
                self.escaped = self.quoted
            elif self.quoted or char in "'()":
                pass
            elif char in "{[":
                self.depth += 1
            elif self.depth == 0:
                return mark.start(), True
            elif char != ",":
                self.depth -= 1
                if self.depth == 0:
                    return mark.end(), True
            at = mark.end()
        return limit, False

    def save(self) -> list[Any]:
        return [self.scanner.save(), self.role, self.lenient, self.depth, self.quoted, self.escaped]

    @classmethod
    def load(cls, saved: list[Any], limits: Limits, markers: Markers) -> ValueFrame:
        scanner, role, *rest = saved
        frame = cls(limits, role, markers)
        frame.scanner = JsonScanner.load(scanner, limits, markers.like_json)
        frame.lenient, frame.depth, frame.quoted, frame.escaped = rest
        return frame


class QuotedArgumentsFrame(Frame):
    """Arguments that the model wrote as a JSON string: what the string says is passed on."""

    kind = "quoted"
    __slots__ = ("empty", "opened", "scanner")

    def __init__(self, scanner: JsonScanner) -> None:
        self.scanner = scanner
        self.opened = False
        self.empty = True

    @property
    def in_string(self) -> bool:
        return True

    def step(self, machine: Machine) -> bool:
        if not self.opened:
            machine.take(1, MARKUP)
            self.opened = True
        buffer, start = machine.buffer, machine.position
        end = _plain(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if end > start:
            self._check(buffer[start:end])
            machine.take(end - start, ARGUMENTS)
        elif start == len(buffer):
            return wait(machine)
        elif buffer[start] == '"':
            machine.take(1, MARKUP)
            self._finish(machine)
        else:
            size, value = self._unescape(machine)
            if not size:
                return False
            self._check(value)
            machine.take(size, ARGUMENTS, value)
        return True

    def _unescape(self, machine: Machine) -> tuple[int, str]:
        """The length of the escape that comes next and what it stands for; length 0 when more input is needed."""
        buffer, start = machine.buffer, machine.position
        escape = _escape(buffer, start)
        if escape is None:
            if _partial_escape(buffer, start) and not machine.at_end:
                return 0, ""
            machine.report(diagnostics.MALFORMED_JSON, "a backslash that escapes nothing")
            return 1, "\\"
        text = escape.group()
        if text[1] != "u":
            return 2, _ESCAPED[text[1]]
        high = int(text[2:], 16)
        if not 0xD800 <= high < 0xE000:
            return 6, chr(high)
        second = _escape(buffer, start + 6)
        if second is None and not machine.at_end and (len(buffer) == start + 6 or _partial_escape(buffer, start + 6)):
            return 0, ""
        if second is not None and second.group()[1] == "u" and high < 0xDC00:
            low = int(second.group()[2:], 16)
            if 0xDC00 <= low < 0xE000:
                return 12, chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        # Half of a pair is no character: it stays the escape that it is.
        return 6, text

    def _check(self, value: str) -> None:
        self.empty = self.empty and not value.strip()
        end = self.scanner.scan(value, 0)
        if self.scanner.done and value[end:].strip(" \t\n\r"):
            self.scanner.flaw = "text follows the arguments"

    def _finish(self, machine: Machine) -> None:
        machine.pop()
        if self.empty:
            machine.no_arguments()
            return
        self.scanner.finish()
        if self.scanner.error:
            machine.report(self.scanner.error, self.scanner.message)
        finish_arguments(machine, self.scanner)

    def save(self) -> list[Any]:
        return [self.scanner.save(), self.opened, self.empty]

    @classmethod
    def load(cls, saved: list[Any], limits: Limits) -> QuotedArgumentsFrame:
        frame = cls(JsonScanner.load(saved[0], limits))
        frame.opened, frame.empty = saved[1:]
        return frame


def push_arguments(machine: Machine, markers: Markers) -> None:
    """Read the arguments that come next: JSON, or a string that holds it."""
    if machine.buffer.startswith('"', machine.position):
        machine.push(QuotedArgumentsFrame(JsonScanner(machine.limits)))
    else:
        machine.push(ValueFrame(machine.limits, ARGUMENTS, markers))


def finish_arguments(machine: Machine, scanner: JsonScanner) -> None:
    """The arguments are over: are they what arguments should be?"""
    call = machine.call
    call.has_arguments = True
    call.complete = scanner.done and not scanner.flaw
    if scanner.flaw:
        machine.report(diagnostics.MALFORMED_JSON, scanner.flaw)
    elif scanner.done and not scanner.is_object:
        machine.report(diagnostics.ARGUMENTS_NOT_OBJECT, "a tool call's arguments are not a JSON object")
    elif not scanner.done and not scanner.error:
        machine.report(diagnostics.MALFORMED_JSON, "a tool call's arguments end too early")


class JsonCallFrame(Frame):
    """A call as one JSON object. Name and arguments may come in either order."""

    kind = "json_call"
    __slots__ = ("key", "markers", "node", "state")

    _OPEN, _FIRST_KEY, _KEY, _COLON, _VALUE, _NEXT = range(6)
    _MOVES: ClassVar = {(_OPEN, "{"): _FIRST_KEY, (_COLON, ":"): _VALUE, (_NEXT, ","): _KEY}

    def __init__(self, node: JsonCall, markers: Markers) -> None:
        self.node = node
        self.markers = markers
        self.state = self._OPEN
        self.key = ""

    def step(self, machine: Machine) -> bool:
        machine.skip_space()
        if machine.position == len(machine.buffer):
            return wait(machine)
        char, state = machine.buffer[machine.position], self.state
        if (state, char) in self._MOVES:
            machine.take(1, MARKUP)
            self.state = self._MOVES[state, char]
        elif state == self._VALUE:
            return self._value(machine, char)
        elif char == '"' and state in (self._FIRST_KEY, self._KEY):
            string = self._whole_string(machine)
            if string is None:
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

    def _value(self, machine: Machine, char: str) -> bool:
        call, key = machine.call, self.key
        if key == self.node.name and not call.name:
            if char != '"':
                raise Malformed(diagnostics.MALFORMED_CALL, "a tool call whose name is not a string")
            string = self._whole_string(machine)
            if string is None:
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
            push_arguments(machine, self.markers)
        elif key == self.node.id and char == '"' and not call.id and not call.accepted:
            string = self._whole_string(machine)
            if string is None:
                return False
            call.id = _unquote(machine.spell(string))
            machine.take(len(string), MARKUP)
        else:
            # An id that comes too late, arguments that are null, or something that does not belong here.
            known = {self.node.id, *self.node.ignored, *(() if call.has_arguments else self.node.arguments)}
            if key not in known:
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

    def _whole_string(self, machine: Machine) -> str | None:
        """The string that comes next, with its quotes; None when more input is needed. It is a name or a key: a line
        break or a marker in it shows that its end is missing."""
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
        return None

    def save(self) -> list[Any]:
        return [self.state, self.key]

    @classmethod
    def load(cls, saved: list[Any], node: JsonCall, markers: Markers) -> JsonCallFrame:
        frame = cls(node, markers)
        frame.state, frame.key = saved
        return frame


def _unquote(string: str) -> str:
    try:
        text = str(_decode(string)) if "\\" in string else string[1:-1]
        text.encode()  # half a surrogate pair is no text
    except ValueError:
        raise Malformed(diagnostics.MALFORMED_CALL, "a tool call with a broken escape in a name or key") from None
    return text
