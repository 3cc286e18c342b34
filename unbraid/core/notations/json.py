"""JSON notation: the arguments as one JSON object, passed through as it is.

`JsonScanner` checks the object strictly while it passes by. Where it breaks, brackets and quotes are still followed,
and any marker ends it; the call ends as not complete, with its arguments as the model wrote them. Only inside a string
is a marker data: `[TOOL_CALLS]` where a value should be is the next call, not an array.

Some models write the object as a JSON string. Then what the string says is passed on. Others write plain text where
they know the tool (`Arguments.plain`): `ls -l` is `{"command": "ls -l"}`. Others put numbers between quotes, and their
engines take these off where the schema has no string (`Arguments.by_schema`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ...schema.kinds import STRING as STRING_KIND
from ...schema.kinds import kinds_of
from .. import diagnostics
from ..events import Event
from ..fast_import import frozen, lazily
from ..json_text import escape, plain_end, quote, read_escape
from ..limits import Limits
from ..machine.calls import CallsFrame, Step
from ..machine.machine import FastPath, Frame, Machine, State
from ..machine.markers import NOT_YET, Markers, NotYet, space_end
from ..machine.output import ARGUMENTS, MARKUP, PENDING, Malformed
from ..machine.steps import ReadObject
from ..machine.whole_calls import SPACE, WholeArguments
from ..machine.whole_calls import ReadArguments as ReadWhole
from ..message import ToolCall
from .base import BracketsFrame, CallNotation, NotationPlace
from .json_scanner import STRING, JsonScanner, may_unquote, signs, unquoted

INPUT = "input"
"""The argument that plain text is, where the tool is not known, or is a custom one (`core/custom_tools.py`)."""


@frozen
class Arguments(CallNotation):
    """The arguments as one JSON object, passed through as they are."""

    is_json: ClassVar = True
    plain: bool = False
    """Text that is no object is the tool's strings: each in a line of its own, and the last in all that is left."""
    by_schema: bool = False
    """Whether an argument that is a string, where the schema has none, is what it spells: `"3"` is 3."""

    def step(self, place: NotationPlace) -> Step:
        return (ReadPlainOrObject if self.plain else ReadArguments)(place.following, self.by_schema)

    def whole(self, place: NotationPlace) -> WholeArguments | None:
        return WholeArguments(whole_object(self.by_schema), SPACE)

    def write(self, call: ToolCall, number: int) -> str:
        return call.arguments


@dataclass(slots=True, eq=False, repr=False)
class ReadArguments(ReadObject):
    """Begins the arguments."""

    opens: ClassVar = ("{", '"')
    by_schema: bool

    def begin(self, machine: Machine, frame: CallsFrame) -> None:
        push_arguments(machine, frame.markers, self.by_schema)


@dataclass(slots=True, eq=False, repr=False)
class ReadPlainOrObject(ReadArguments):
    """Begins the arguments where they may be plain text."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        plain = self._is_plain(machine, frame)
        if plain is NOT_YET and not machine.at_end:
            return False
        if not plain:
            return ReadArguments.run(self, machine, frame)
        machine.accept_call()
        machine.push(PlainFrame(frame.rule.closers))
        frame.at += 1
        return True

    def _is_plain(self, machine: Machine, frame: CallsFrame) -> bool | NotYet:
        buffer = machine.buffer
        begin = space_end(buffer, machine.position)
        if begin == len(buffer):
            return NOT_YET
        if buffer[begin] == "{":
            inside = space_end(buffer, begin + 1)
            return NOT_YET if inside == len(buffer) else buffer[inside] not in '"}'
        ends = frame.markers.matches_at(buffer, begin)
        return NOT_YET if ends is NOT_YET else not ends


class PlainFrame(Frame):
    """Plain text, passed on as the strings that the tool takes."""

    kind = "plain"
    opened_by = ("calls",)
    about = State(
        reads="plain text, passed on as the strings that the tool takes",
        ends="the marker that closes the call",
        malformed="any text is what it says",
    )
    saved = ("begun", "keys")
    __slots__ = ("begun", "ends", "keys")

    def __init__(self, ends: Markers) -> None:
        self.ends = ends
        self.begun = False
        """Whether the text has begun, after the line break before it."""
        self.keys: list[str] = []
        """The arguments that are to come after this one."""

    @property
    def in_string(self) -> bool:
        return self.begun

    def step(self, machine: Machine) -> bool:
        if not self.begun:
            self._begin(machine)
        match, end = machine.find(self.ends)
        while end > machine.position:
            text = machine.buffer[machine.position : end]
            line = text.find("\n") if self.keys else -1
            size = len(text) if line < 0 else line
            if size:
                machine.take(size, ARGUMENTS, escape(machine.spell(text[:size])))
            if line >= 0:
                machine.take(1, MARKUP)
                machine.add_arguments(f'", {quote(self.keys.pop(0))}: "')
        if match is None:
            return machine.needs_more()
        machine.add_arguments('"}')
        machine.call.has_arguments = machine.call.complete = True
        machine.pop()
        return True

    def _begin(self, machine: Machine) -> None:
        if machine.buffer.startswith("\n", machine.position):
            machine.take(1, MARKUP)
        else:
            machine.report(diagnostics.REPAIRED, "plain text in the line of the call's name")
        schema = machine.parameters()
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        first, *self.keys = [key for key in properties if key in required] or list(properties) or [INPUT]
        machine.add_arguments(f'{{{quote(first)}: "')
        self.begun = True

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        assert isinstance(machine.calls, CallsFrame)
        return cls(machine.calls.rule.closers)


class ValueFrame(BracketsFrame):
    """One JSON value, passed on as it is: the arguments, or something that is only markup."""

    kind = "value"
    opened_by: ClassVar[tuple[str, ...]] = ("calls", "json_call", "tagged", "xml")
    about = State(
        reads="one JSON value, passed on as it is",
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to the nearest marker",
    )
    saved: ClassVar[tuple[str, ...]] = ("ahead", "depth", "escaped", "lenient", "quotes", "role", "scanner")
    __slots__ = ("ahead", "role", "scanner")
    string_quotes = '"'
    brackets = ("{[", "}]")
    ends_at_comma = True

    def __init__(self, limits: Limits, role: int, markers: Markers) -> None:
        super().__init__(markers)
        self.scanner = JsonScanner(limits, markers.like_json)
        self.role = role
        self.ahead = 0
        """How much of the buffer has been scanned, and not taken: no character is scanned twice."""

    def step(self, machine: Machine) -> bool:
        if self.lenient:
            return self._follow_brackets(machine, self.role)
        start = machine.position
        end = self._scan(machine, start + self.ahead)
        self.ahead = 0
        if end > start:
            machine.take(end - start, self.role)
        return self._go_on(machine)

    def _scan(self, machine: Machine, at: int) -> int:
        """Scan the buffer; the position up to which it is the value's."""
        scanner = self.scanner
        end = scanner.scan(machine.buffer, at)
        while scanner.paused:
            # `[` begins an array and `[TOOL_CALLS]`: outside strings a marker is a marker.
            marker = self.markers.matches_at(machine.buffer, end)
            if marker:
                scanner.fail("a marker in the middle of the arguments")
            elif marker is NOT_YET and not machine.at_end:
                scanner.paused = False
                break
            else:
                end = scanner.scan(machine.buffer, end)
        return end

    def _go_on(self, machine: Machine) -> bool:
        """Act on what was scanned. Returns as `step` does."""
        scanner = self.scanner
        if scanner.error:
            return self._broken(machine)
        if scanner.done or (machine.at_end and machine.turn_over and scanner.finish()):
            self._finish(machine)
        elif machine.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        else:
            return False
        return True

    def fast_path(self, machine: Machine) -> FastPath | None:
        return self._pass if self.role == ARGUMENTS and not self.lenient and machine.call.accepted else None

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        scanner = self.scanner
        if scanner.state == STRING and signs(text) is None:
            return machine.pass_arguments(text, text)
        machine.moves += 1
        end = scanner.scan(text, 0)
        if end == len(text) and not scanner.done and not scanner.member:
            return machine.pass_arguments(text, text)
        self.ahead, scanner.paused = end, False
        return None

    @property
    def in_string(self) -> bool:
        return bool(self.quotes) if self.lenient else self.scanner.in_string

    def _broken(self, machine: Machine) -> bool:
        bare = machine.calls is not None and machine.calls.bare and machine.call.accepted
        if bare and machine.buffer.startswith(("{", "["), machine.position):
            # Where JSON has no place for a bracket, and a bracket opens calls, it opens the next one.
            raise Malformed(self.scanner.error, self.scanner.message)
        machine.report(self.scanner.error, self.scanner.message)
        self.lenient, self.depth = True, len(self.scanner.open)
        return True

    def _finish(self, machine: Machine) -> None:
        machine.pop()
        if self.role == ARGUMENTS:
            finish_arguments(machine, self.scanner)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        assert machine.calls is not None
        return cls(machine.limits, ARGUMENTS, machine.calls.markers)


class SchemaValueFrame(ValueFrame):
    """The arguments of a tool whose schema has more than strings. What stands between quotes where it has none waits
    until the quotes close, or until it can only be a string."""

    kind = "schema_value"
    opened_by = ("calls", "json_call")
    about = State(
        reads="JSON arguments; a string where the schema has none is what it spells",
        ends="the end of the object",
        malformed="brackets and quotes are followed to its end, or to the nearest marker",
    )
    saved = (*ValueFrame.saved, "inner", "kinds", "size", "texts")
    __slots__ = ("inner", "kinds", "size", "texts")

    def __init__(self, limits: Limits, role: int, markers: Markers) -> None:
        super().__init__(limits, role, markers)
        self.scanner.stops = True
        self.inner: JsonScanner | None = None
        """Checks what stands between the quotes."""
        self.kinds: list[str] = []
        """What it may be instead of a string."""
        self.texts: list[str] = []
        """It, as far as it has come."""
        self.size = 0

    def step(self, machine: Machine) -> bool:
        return super().step(machine) if self.inner is None else self._between_quotes(machine, self.inner)

    def fast_path(self, machine: Machine) -> FastPath | None:
        return super().fast_path(machine) if self.inner is None and not self.scanner.member else None

    def _scan(self, machine: Machine, at: int) -> int:
        return at if self.scanner.member else super()._scan(machine, at)

    def _go_on(self, machine: Machine) -> bool:
        scanner = self.scanner
        if not scanner.member:
            return super()._go_on(machine)
        buffer, start = machine.buffer, machine.position
        if size := scanner.scan(buffer[start : _to_value(buffer, start).end()], 0):  # type: ignore[union-attr]
            machine.take(size, ARGUMENTS)
        at = machine.position
        if scanner.error or at == len(buffer):
            return super()._go_on(machine)
        kinds = machine.kinds(_key_of(scanner.member))
        scanner.member = ""
        if buffer[at] == '"' and scanner.expects_value and STRING_KIND not in kinds:
            scanner.scan('"', 0)
            machine.take(1, PENDING)
            self.inner, self.kinds, self.texts, self.size = JsonScanner(machine.limits), sorted(kinds), [], 0
        return True

    def _between_quotes(self, machine: Machine, inner: JsonScanner) -> bool:
        buffer, start = machine.buffer, machine.position
        if start == len(buffer):
            return self._as_it_is(machine) if machine.at_end else False
        end = plain_end(buffer, start)
        size, text = end - start, buffer[start:end]
        if not size and buffer[start] == '"':
            return self._close(machine, inner)
        if not size:
            escape = read_escape(buffer, start, machine.at_end)
            if escape is NOT_YET:
                return False
            size, text = escape
        self.scanner.scan(buffer[start : start + size], 0)
        machine.take(size, PENDING)
        self.texts.append(machine.spell(text))
        self.size += size
        if self.size <= machine.limits.held and may_unquote(inner, self.texts[-1], self.kinds):
            return True
        return self._as_it_is(machine)

    def _as_it_is(self, machine: Machine) -> bool:
        """It is a string."""
        machine.resolve_pending(str)
        self.inner, self.texts = None, []
        return True

    def _close(self, machine: Machine, inner: JsonScanner) -> bool:
        self.scanner.scan('"', 0)
        machine.take(1, PENDING)
        text = "".join(self.texts)
        if value := unquoted(inner, text):
            machine.report(diagnostics.REPAIRED, f"{text.strip():.40} between quotes, where the schema has no string")
            machine.resolve_pending(lambda _: value)
        return self._as_it_is(machine)


_to_value = lazily(lambda: re.compile(r"[ \t\n\r]*:?[ \t\n\r]*").match)


def _key_of(spelled: str) -> str:
    """A key without its escapes."""
    try:
        return str(json.loads(f'"{spelled}"', strict=False)) if "\\" in spelled else spelled
    except (ValueError, RecursionError):
        return spelled


class QuotedArgumentsFrame(Frame):
    """Arguments that the model wrote as a JSON string, passed on as the JSON in it: `"{\\"a\\": 1}"` is `{"a": 1}`."""

    kind = "quoted"
    opened_by: ClassVar[tuple[str, ...]] = ("calls", "json_call")
    about = State(
        reads="JSON arguments that stand in a JSON string",
        ends="the closing quote",
        malformed="passed on; the call is not complete",
    )
    saved = ("empty", "opened", "scanner")
    __slots__ = saved

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
        end = plain_end(buffer, start)
        if end > start:
            self._check(buffer[start:end])
            machine.take(end - start, ARGUMENTS)
        elif start == len(buffer):
            return machine.needs_more()
        elif buffer[start] == '"':
            machine.take(1, MARKUP)
            self._finish(machine)
        else:
            escape = unescape(machine)
            if escape is NOT_YET:
                return False
            size, value = escape
            self._check(value)
            machine.take(size, ARGUMENTS, value)
        return True

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

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(JsonScanner(machine.limits))


def unescape(machine: Machine) -> tuple[int, str] | NotYet:
    """The size of the escape that comes next, and what it stands for."""
    escape = read_escape(machine.buffer, machine.position, machine.at_end)
    if escape is not NOT_YET and escape[0] == 1:
        machine.report(diagnostics.MALFORMED_JSON, "a backslash that escapes nothing")
    return escape


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_scan: Any = json.JSONDecoder(object_pairs_hook=list, parse_constant=_refuse).scan_once  # type: ignore[attr-defined]


def whole_object(by_schema: bool) -> ReadWhole:
    """Reads an object at once: Python's own `json` checks it. Where the two might differ, it is not read.

    by_schema: as `Arguments` has it."""

    def read(machine: Machine, markers: Markers, at: int, name: str) -> tuple[str, int] | None:
        buffer = machine.buffer
        if not buffer.startswith("{", at) or buffer.find("}", at) < 0:
            return None
        try:
            pairs, end = _scan(buffer, at)
        except (StopIteration, ValueError, RecursionError):
            return None
        text, limits = buffer[at:end], machine.limits
        brackets = text.count("{") + text.count("[")
        if brackets > limits.depth or len(text) > limits.number:
            return None
        if brackets > 1 and markers.like_json:
            return None
        if not text.isascii() and machine.spell(text) != text:
            return None
        if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
            return None
        if by_schema and machine.tools is not None:
            schema = machine.tools.get(name, {})
            if any(type(value) is str and STRING_KIND not in kinds_of(schema, key) for key, value in pairs):
                return None
        return text, end

    return read


def push_arguments(machine: Machine, markers: Markers, by_schema: bool) -> None:
    """Read the arguments that come next: JSON, or a string that holds it.

    by_schema: as `Arguments` has it."""
    if machine.buffer.startswith('"', machine.position):
        machine.push(QuotedArgumentsFrame(JsonScanner(machine.limits)))
        return
    schema = machine.parameters() if by_schema and machine.call.accepted else {}
    other = any(STRING_KIND not in kinds_of(schema, key) for key in schema.get("properties", ()))
    machine.push((SchemaValueFrame if other else ValueFrame)(machine.limits, ARGUMENTS, markers))


def finish_arguments(machine: Machine, scanner: JsonScanner) -> None:
    """End the arguments, and report what is wrong with them."""
    call = machine.call
    if call.unnamed:
        call.name = _tool_for(machine, scanner)
        machine.report(diagnostics.REPAIRED, f"a tool call without a name: by its arguments, to {call.name!r}")
        machine.accept_call()
    call.has_arguments = True
    call.complete = scanner.done and not scanner.flaw and scanner.is_object
    if scanner.flaw:
        machine.report(diagnostics.MALFORMED_JSON, scanner.flaw)
    elif scanner.done and not scanner.is_object:
        machine.report(diagnostics.ARGUMENTS_NOT_OBJECT, "a tool call's arguments are not a JSON object")
    elif not scanner.done and not scanner.error:
        machine.report(diagnostics.MALFORMED_JSON, "a tool call's arguments end too early")
    if scanner.duplicate:
        machine.report(diagnostics.DUPLICATE_KEY, f"the argument {scanner.duplicate} comes twice")


def _tool_for(machine: Machine, scanner: JsonScanner) -> str:
    """The one tool that takes these arguments."""
    tools, keys = machine.tools, set(scanner.keys)
    assert tools is not None
    names = [name for name, schema in tools.items() if keys <= set(schema.get("properties", {}))]
    if len(names) > 1:
        names = [name for name in names if keys >= set(tools[name].get("required", ()))]
    if len(names) != 1 or not scanner.done:
        raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without a name")
    return names[0]
