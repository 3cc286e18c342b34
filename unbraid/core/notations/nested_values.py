"""An array or an object between tags, where the schema says that one comes.

It is JSON, passed on as it is. Models write it in other ways too: as Python does (`['a', None]`), with a comma after
the last item, or escaped as if it stood in a string (`[{\\"a\\": 1}]`). From the first sign of another way on, that way
is read; the text before stays as it is. A comma waits for the next character: it may have been one too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from .. import diagnostics
from ..events import Event
from ..json_text import plain_end
from ..machine.machine import Machine, State
from ..machine.markers import NOT_YET, Markers
from ..machine.output import ARGUMENTS, MARKUP
from .json import QuotedArgumentsFrame, ValueFrame, unescape
from .json_scanner import STRING, JsonScanner, signs
from .python import ITEM, VALUE, PythonArgumentsFrame

ONLY_IN_PYTHON = "'TFN("
"""The first characters of values that JSON does not have."""
_MAY_WAIT = ", \t\n\r"
"""The last characters of text whose end may wait: a comma, and whitespace after it."""
_CLOSERS = {"[": "]", "{": "}"}


class ArgumentFrame(ValueFrame):
    """An array or an object, as JSON."""

    kind = "argument"
    opened_by = ("tagged_value", "xml_value", "leaf", "python_argument", "escaped_argument")
    about = State(
        reads="an array or an object between tags, as JSON",
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    )
    __slots__ = ()

    def step(self, machine: Machine) -> bool:
        if self.lenient:
            return self._follow_brackets(machine, ARGUMENTS)
        scanner, buffer, start = self.scanner, machine.buffer, machine.position
        end = self._scan(machine, start + self.ahead)
        comma = start + self._comma_at(machine, buffer[start:end])
        if comma > start:
            machine.take(comma - start, ARGUMENTS)
        self.ahead = end - comma
        if self.ahead and scanner.error and buffer[end] == _CLOSERS[scanner.open[-1]]:
            machine.report(diagnostics.REPAIRED, "a comma after the last item")
            machine.take(self.ahead, MARKUP)
            scanner.forgive_comma()
            self.ahead = 0
            return True
        if self.ahead and (scanner.error or machine.at_end):
            machine.take(self.ahead, ARGUMENTS)
            self.ahead = 0
        return self._go_on(machine)

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        scanner, waiting = self.scanner, self.ahead
        if scanner.state == STRING and signs(text) is None:
            return machine.pass_arguments(text, text)
        end = scanner.scan(text, 0)
        if end < len(text) or scanner.done:
            self.ahead, scanner.paused = waiting + end, False
            return None
        if not waiting and text[-1] not in _MAY_WAIT:
            return machine.pass_arguments(text, text)
        text = machine.buffer[machine.position :] + text
        comma = self._comma_at(machine, text)
        machine.buffer, machine.position, self.ahead = text, comma, len(text) - comma
        return machine.pass_arguments(text[:comma], text[:comma]) if comma else []

    def _comma_at(self, machine: Machine, text: str) -> int:
        """Where the comma stands at the end of a scanned text; the length of the text, if it ends with none or if the
        comma has waited too long."""
        if not text or text[-1] not in _MAY_WAIT or not self.scanner.needs_item:
            return len(text)
        comma = len(text.rstrip(" \t\n\r")) - 1
        return comma if text[comma] == "," and len(text) - comma <= machine.limits.name else len(text)

    def _broken(self, machine: Machine) -> bool:
        scanner, rest = self.scanner, machine.buffer[machine.position :]
        if scanner.missing and rest[0] in ONLY_IN_PYTHON:
            machine.pop()
            machine.push(PythonArgumentFrame(self.markers, scanner.open, ITEM if scanner.missing == "item" else VALUE))
            return True
        if scanner.missing == "item" and rest == "\\" and not machine.at_end:
            return False
        if scanner.missing == "item" and rest.startswith('\\"'):
            machine.report(diagnostics.REPAIRED, "an argument that is escaped as if it stood in a string")
            machine.pop()
            machine.push(EscapedArgumentFrame(JsonScanner(machine.limits), scanner.open))
            return True
        return super()._broken(machine)

    def _finish(self, machine: Machine) -> None:
        machine.pop()
        scanner = self.scanner
        if scanner.flaw:
            machine.report(diagnostics.MALFORMED_JSON, scanner.flaw)
        if scanner.flaw or not scanner.done:
            machine.call.flawed = True

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.limits, ARGUMENTS, _ends(machine))


class PythonArgumentFrame(PythonArgumentsFrame):
    """The rest of an array or an object that goes on as Python writes it."""

    kind = "python_argument"
    opened_by = ("argument",)
    about = State(
        reads="the rest of an array or an object that goes on as Python writes it",
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    )
    __slots__ = ()

    def __init__(self, markers: Markers, open: str = "", state: int = ITEM) -> None:
        super().__init__(markers)
        self.open, self.state = open, state

    def _break(self, machine: Machine, message: str, kind: str = diagnostics.MALFORMED_JSON) -> bool:
        machine.report(kind, message)
        if self.lead:
            machine.add_arguments(self.lead)
        _follow_brackets(machine, self.open)
        return True

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(_ends(machine))


class EscapedArgumentFrame(QuotedArgumentsFrame):
    """The rest of an array or an object that is escaped as if it stood in a JSON string."""

    kind = "escaped_argument"
    opened_by = ("argument",)
    about = State(
        reads="the rest of an array or an object that is escaped as if it stood in a string",
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    )
    __slots__ = ()

    def __init__(self, scanner: JsonScanner, open: str = "") -> None:
        super().__init__(scanner)
        scanner.scan(open, 0)

    @property
    def in_string(self) -> bool:
        return self.scanner.in_string

    def step(self, machine: Machine) -> bool:
        scanner, buffer, start = self.scanner, machine.buffer, machine.position
        end = plain_end(buffer, start)
        if end > start:
            machine.take(scanner.scan(buffer[:end], start) - start, ARGUMENTS)
        elif start == len(buffer):
            return machine.needs_more()
        elif buffer[start] == '"':
            scanner.fail("a quote that is not escaped, among others that are")
        else:
            escape = unescape(machine)
            if escape is NOT_YET:
                return False
            size, value = escape
            scanner.scan(value, 0)
            machine.take(size, ARGUMENTS, value)
        if scanner.error:
            machine.report(scanner.error, scanner.message)
            _follow_brackets(machine, scanner.open)
        elif scanner.done:
            machine.pop()
            if scanner.flaw:
                machine.report(diagnostics.MALFORMED_JSON, scanner.flaw)
                machine.call.flawed = True
        return True


def _follow_brackets(machine: Machine, open: str) -> None:
    """The frame on top broke inside these brackets: follow them to their end, and check no more."""
    machine.pop()
    rest = ArgumentFrame(machine.limits, ARGUMENTS, _ends(machine))
    rest.lenient, rest.depth = True, len(open)
    machine.push(rest)
    machine.call.flawed = True


def _ends(machine: Machine) -> Markers:
    """The markers that end the value on top, whose array or object this is."""
    ends: Markers = machine.stack[-1].rule.ends  # type: ignore[attr-defined]  # a value between tags
    return ends
