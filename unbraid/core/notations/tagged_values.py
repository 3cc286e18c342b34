"""One value between tags, turned into JSON as it arrives.

The text alone does not say of what kind a value is: `3` may be a number or a string. The tool's schema does
(`unbraid/schema/kinds.py`), or the tag itself (`type="number"`). A string goes out character by character, an array or
an object as it is, read as JSON or as Python writes it.

The schema may admit strings and other kinds, or say nothing. Then a value is JSON if all of it is, and a string
otherwise. It waits only as long as it can be either, which its first character mostly tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ...schema.kinds import ANY_KIND, STRING
from .. import diagnostics
from ..events import Event
from ..json_text import escape, is_number, may_become_number, members, quote
from ..machine.machine import FastPath, Frame, Machine, State
from ..machine.markers import NOT_YET, Markers, NotYet, run_of
from ..machine.output import ARGUMENTS, MARKUP, PENDING
from .base import ObjectWriter
from .json_scanner import JsonScanner
from .nested_values import ONLY_IN_PYTHON, ArgumentFrame
from .python_values import literal_as_json, number_as_json
from .value_ends import ValueRule

JSON_SPACE = " \t\n\r"
_KEY_STARTS = ('"', "'", "\\", "}")
"""What an object goes on with, as JSON, in Python or escaped."""
_STARTS = {"{": "object", "[": "array", "-": "number", "t": "boolean", "f": "boolean", "n": "null"}
_STARTS |= dict.fromkeys("0123456789", "number")
_PYTHON_STARTS = {"T": "boolean", "F": "boolean", "N": "null"}
_NUMBER_STARTS = "+."
"""What numbers begin with that JSON writes otherwise."""
_may_be_other_number = run_of(r"[-+.\w]*")
_WORD_STARTS = "tfnTFN"
_ONLY_STRINGS = frozenset({STRING})
_WORDS = {"true": "true", "false": "false", "null": "null"}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}

ONLY_ARRAYS = frozenset({"array", "null"})

# The kind of a value, as far as it is known.
_NOTHING, AS_SCALAR, AS_JSON, _STRING, AFTER_JSON, _AS_IS = range(6)


class TaggedValueFrame(Frame):
    """One value. A string is passed on as it arrives. A value that may be JSON or a string waits until its kind is
    known: by its first character, by the first one that JSON cannot have, or by its end."""

    kind = "tagged_value"
    opened_by = ("tagged",)
    about = State(
        reads="one value between its tags",
        ends="its closing tag; another tag or closing, where what follows shows it",
        malformed="what is not of its kind is passed on as a string",
    )
    saved: ClassVar[tuple[str, ...]] = ("kind_names", "scalar", "scanner", "size", "state")
    __slots__ = ("kinds", "rule", "scalar", "scanner", "size", "state")
    items: ClassVar = True
    """Whether what is no array, where there should be one, is an item of it."""

    def __init__(self, rule: ValueRule, kinds: frozenset[str]) -> None:
        self.rule = rule
        self.kinds = kinds
        self.state = _STRING if kinds == {STRING} else _NOTHING
        self.scalar = ""
        """The text that waits, if the value may be a number or a word."""
        self.scanner: JsonScanner | None = None
        """Checks the value, if it may be an array or an object."""
        self.size = 0

    @property
    def kind_names(self) -> list[str]:
        """The kinds that it can be, as a snapshot has them."""
        return sorted(self.kinds)

    @kind_names.setter
    def kind_names(self, names: list[str]) -> None:
        self.kinds = frozenset(names)

    @property
    def written(self) -> str:
        """The part of the value that is written before its text comes: the quote of a string."""
        return '"' if self.state == _STRING else ""

    @property
    def in_string(self) -> bool:
        return self.state != AFTER_JSON

    @property
    def python_words(self) -> bool:
        """Whether `True` may be a word of Python's: not where it may as well be text."""
        return STRING not in self.kinds

    @property
    def decided(self) -> bool:
        """Whether the kind of the value is known."""
        return self.state in (_STRING, AFTER_JSON, _AS_IS)

    @property
    def watched(self) -> Markers:
        """The markers to look for in the text that comes."""
        return self.rule.watched

    def step(self, machine: Machine) -> bool:
        buffer, start = machine.buffer, machine.position
        if self.state == AFTER_JSON:
            return self._after_json(machine)
        if start == len(buffer) and not machine.at_end:
            return False
        match, end, missing = self.find_end(machine, self.watched, start)
        # A tag that has begun shows that the model did not end its turn: then something else did.
        begun = buffer[self.rule.ends.safe_end(buffer, start) :] if machine.turn_over and match is None else ""
        cut_off = machine.cut_off or missing is NOT_YET or bool(begun.strip())
        if match is None and machine.at_end and not cut_off:
            end, missing = len(buffer), 1 + self.rule.needed()
        if end > start and self._pass_on(machine, buffer[start:end], end - start, ended=match is not None):
            return True
        if match is not None and missing is not NOT_YET:
            self.rule.miss(machine, missing)
            return self._on_match(machine, match)
        if not machine.at_end:
            return False
        if cut_off or missing is NOT_YET:
            machine.resolve_pending(str)
            if left := len(buffer) - machine.position:
                machine.take(left, MARKUP)  # the beginning of a tag
            return machine.needs_more()
        self.rule.miss(machine, missing)
        self._finish(machine, None)
        return True

    def find_end(
        self, machine: Machine, watched: Markers, start: int
    ) -> tuple[re.Match[str] | None, int, int | NotYet]:
        """The nearest marker that is not text of the value, where the text before it ends, and how many closings are
        missing if the value ends there. Without such a marker, the end of the text that none can begin in."""
        buffer, at = machine.buffer, start
        while match := watched.find(buffer, at):
            missing = self.missing_at(machine, match) if watched is self.rule.watched else 0
            if missing is NOT_YET:
                return None, match.start(), NOT_YET
            if missing is not None:
                return match, match.start(), missing
            at = match.end()
        return None, watched.safe_end(buffer, at), 0

    def missing_at(self, machine: Machine, match: re.Match[str]) -> int | NotYet | None:
        """How many closings are missing if the value ends at a marker, 0 at its own. None where the marker is text."""
        if STRING not in self.kinds:
            return self.rule.missing_before(match)
        return self.rule.missing_at(machine, match, self.keys(machine))

    def keys(self, machine: Machine) -> ObjectWriter:
        """The keys of the arguments so far."""
        keys: ObjectWriter = machine.stack[machine.stack.index(self) - 1].keys  # type: ignore[attr-defined]
        return keys

    def fast_path(self, machine: Machine) -> FastPath | None:
        return self._pass if self.state == _STRING and machine.call.accepted else None

    def held_path(self, machine: Machine) -> FastPath | None:
        return self._wait if machine.call.accepted else None

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        if machine.position < len(machine.buffer):
            return self._wait(machine, text)
        watched = self.watched
        if watched.signs(text) is None:
            return machine.pass_arguments(text, text)
        suspect = watched.suspect(text)
        if suspect is None:
            return machine.pass_arguments(text, escape(text))
        start = suspect.start()
        rest = text[start:] if start else text
        begun = self.rule.closings[rest]
        if not begun and watched.absent(text):
            return machine.pass_arguments(text, escape(text))
        if machine.fast_path is None:
            return None
        if not start or type(self) is not TaggedValueFrame:
            return self._wait(machine, text)
        if not begun or watched.safe_end(rest, 0):
            return None
        events = machine.pass_arguments(text[:start], escape(text[:start]))
        machine.buffer, machine.position = rest, 0
        return events

    def _wait(self, machine: Machine, text: str) -> list[Event] | None:
        rest, rule = machine.buffer[machine.position :] + text, self.rule
        if rule.closings[rest]:
            return machine.hold(rest)
        if type(self) is not TaggedValueFrame or self.state != _STRING or STRING not in self.kinds:
            return None
        size = len(rule.close.lead) if rest.startswith(rule.close.lead) else 0
        if not rest.startswith(rule.close.key, size) or not machine.in_short:
            return None
        size += len(rule.close.key)
        if rest[size:].strip():
            return None
        events = machine.pass_markup(rest, '"', size)
        machine.stack.pop()
        machine.fast_path = machine.stack[-1].held_path(machine)
        return events

    def _on_match(self, machine: Machine, match: re.Match[str]) -> bool:
        """Take a marker that was looked for. Returns as `step` does."""
        self._finish(machine, match)
        return True

    def _pass_on(self, machine: Machine, text: str, size: int, *, ended: bool) -> bool:
        """Take text of the value, or find its kind first. True if the text must be looked at again.

        size: how many characters of the buffer the text stands in. ended: whether no more text of the value comes."""
        if self.state == _NOTHING:
            rest = text.lstrip(JSON_SPACE)
            space = len(text) - len(rest)
            if self.size + space > machine.limits.held:
                self._is_string(machine)
                return True
            if rest:
                inside = rest[1:].lstrip(JSON_SPACE)
                if rest[0] == "{" and STRING not in self.kinds and not machine.at_end and not inside and not ended:
                    return False
                self._begin(machine, rest[0] + inside[:1], space)
                return True
            self.size += space
            machine.take(size, PENDING)
        elif self.state == _STRING:
            machine.take(size, ARGUMENTS, escape(machine.spell(text)))
        elif self.state == _AS_IS:
            machine.take(size, ARGUMENTS, None if size == len(text) else text)
        else:
            machine.take(size, PENDING)
            if not (
                self._may_be_scalar(machine, text) if self.state == AS_SCALAR else self._may_be_json(machine, text)
            ):
                self._is_item(machine)
                self._is_string(machine)
        return False

    def _begin(self, machine: Machine, begun: str, space: int) -> None:
        """Find the kind by the first character; after a brace, by the second one."""
        text_too = STRING in self.kinds
        kind = _STARTS.get(begun[0]) or (_PYTHON_STARTS.get(begun[0]) if self.python_words else None)
        if begun[0] in _NUMBER_STARTS and not text_too:
            kind = "number"
        # No schema is so strict that models do not write `null` for what they leave out.
        if kind not in self.kinds and not (kind == "null" and not text_too):
            if not self._is_item(machine):
                self._is_string(machine)
        elif kind not in ("array", "object"):
            self.state = AS_SCALAR
        elif text_too:
            self.state, self.scanner = AS_JSON, JsonScanner(machine.limits)
        elif kind == "object" and begun[1:] and not begun.endswith(_KEY_STARTS):
            self._is_string(machine)  # a set of Python's, keys without quotes
        else:
            self._begin_json(machine, space)

    def _begin_json(self, machine: Machine, space: int) -> None:
        """An array or an object comes, after whitespace."""
        machine.resolve_pending(str)
        if space:
            machine.take(space, ARGUMENTS)
        self.state = AFTER_JSON
        machine.push(ArgumentFrame(machine.limits, ARGUMENTS, self.rule.ends))

    def _may_be_scalar(self, machine: Machine, text: str) -> bool:
        self.scalar = (self.scalar + text).lstrip(JSON_SPACE)
        if len(self.scalar) > machine.limits.number:
            return False
        scalar = self.scalar.rstrip(JSON_SPACE)
        if scalar != self.scalar:
            return self._json_of(scalar) is not None
        words = _WORDS | _PYTHON_WORDS if self.python_words else _WORDS
        if may_become_number(scalar) or any(word.startswith(scalar) for word in words):
            return True
        return self._admits_other_numbers and _may_be_other_number(scalar, 0) == len(scalar)

    def _json_of(self, scalar: str) -> str | None:
        """A number or a word as JSON; None where it is neither."""
        words = _WORDS | _PYTHON_WORDS if self.python_words else _WORDS
        if is_number(scalar) or scalar in words:
            return words.get(scalar, scalar)
        return number_as_json(scalar) if self._admits_other_numbers else None

    @property
    def _admits_other_numbers(self) -> bool:
        """Whether `007` may be a number: not where it may as well be text."""
        return "number" in self.kinds and STRING not in self.kinds

    def _may_be_json(self, machine: Machine, text: str) -> bool:
        scanner = self.scanner
        assert scanner is not None
        self.size += len(text)
        end = scanner.scan(text, 0)
        broken = scanner.error or scanner.flaw or (scanner.done and text[end:].strip(JSON_SPACE))
        return not broken and self.size <= machine.limits.held

    def _is_item(self, machine: Machine) -> bool:
        """Whether it can only be an item of an array, which others may go on with. Then its kinds are those of one."""
        if not self.items or "array" not in self.kinds or not self.kinds <= ONLY_ARRAYS:
            return False
        kinds = machine.stack[machine.stack.index(self) - 1].begin_array(machine)  # type: ignore[attr-defined]
        self.kinds = kinds or self.kinds
        return kinds is not None

    def _is_string(self, machine: Machine) -> None:
        machine.add_arguments('"')
        machine.resolve_pending(lambda text: escape(self._read(text)))
        self.state, self.scalar, self.scanner = _STRING, "", None

    def _pass_as_is(self) -> None:
        """Pass the rest on as it is: it is no string, and not checked any more."""
        self.state = _AS_IS

    def _read(self, text: str) -> str:
        """The meaning of the text of a value."""
        return text

    def _after_json(self, machine: Machine) -> bool:
        machine.skip_space()
        ends = self.rule.ends
        comes = ends.matches_at(machine.buffer, machine.position)
        if not comes and (machine.cut_off or (comes is NOT_YET and not machine.at_end)):
            return machine.needs_more()
        if comes or machine.position == len(machine.buffer):
            match = ends.at(machine.buffer, machine.position)
            self.rule.miss(machine, 1 + self.rule.needed() if match is None else self.rule.missing_before(match))
            self._finish(machine, match)
            return True
        if not machine.call.flawed:
            machine.report(diagnostics.MALFORMED_JSON, "text follows the JSON of an argument")
            machine.call.flawed = True
        self._pass_as_is()
        return True

    def _finish(self, machine: Machine, match: re.Match[str] | None) -> None:
        """End the value, at a marker or at the end of the output."""
        scalar = self._json_of(self.scalar.rstrip(JSON_SPACE)) if self.state == AS_SCALAR else None
        if scalar is not None:
            spelled = self.scalar.rstrip(JSON_SPACE)
            if scalar != spelled and spelled not in _PYTHON_WORDS:
                machine.report(diagnostics.REPAIRED, f"a number that JSON writes as {scalar}")
            machine.resolve_pending(lambda text: self._read(text) if scalar == spelled else scalar)
        elif self.state == AS_JSON and self.scanner is not None and self.scanner.done:
            machine.resolve_pending(self._read)
        elif self.state in (_NOTHING, AS_SCALAR, AS_JSON):
            if self.state == AS_SCALAR:
                self._is_item(machine)
            self._is_string(machine)
        machine.pop()
        is_string = self.state == _STRING
        if is_string and STRING not in self.kinds:
            kinds = either(self.kinds)
            machine.report(diagnostics.MALFORMED_JSON, f"an argument is no JSON of type {kinds}: passed on as a string")
        self._take_close(machine, match, is_string)

    def _take_close(self, machine: Machine, match: re.Match[str] | None, is_string: bool) -> None:
        if match is not None and self.rule.ends.which(match) is self.rule.close:
            size = match.end() - match.start()
            if is_string:
                machine.take(size, ARGUMENTS, '"')
            else:
                machine.take(size, MARKUP)
            return
        if is_string:
            machine.add_arguments('"')
        if match is not None:
            machine.report(diagnostics.MALFORMED_CALL, f"an argument without '{self.rule.close.key}'")
            machine.skip_space()

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value, frozenset())  # type: ignore[attr-defined]  # of a notation of tags


def either(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


def whole_value(text: str, kinds: frozenset[str]) -> str | None:
    """The JSON of a value that has come whole, if it is plainly a string, a number or a word; else None."""
    if kinds == _ONLY_STRINGS or (STRING in kinds and text[:1].isalpha() and text[0] not in _WORD_STARTS):
        return quote(text)
    if STRING in kinds:
        return None
    kind = "boolean" if text in ("true", "false") else "number" if is_number(text) else ""
    return text if kind in kinds else None


class Wrapper(TaggedValueFrame):
    """A value that may hold all of the arguments: `<parameter=arguments>{"city": "Paris"}</parameter>`. It waits until
    its end, with its key. Then it is an object, as JSON or Python writes it, or an argument like others. The frames
    that derive from it have slots of their own: so this one has none."""

    def begin(self, key: str, text: bool) -> None:
        self.key = key
        self.text = text
        """Whether it is a string, if it is an argument like others."""
        self.python = False
        """Whether it has ceased to be JSON, and may be a dict of Python's."""

    def _may_be_json(self, machine: Machine, text: str) -> bool:
        scanner = self.scanner
        assert scanner is not None
        self.size += len(text)
        end = 0 if self.python else scanner.scan(text, 0)
        self.python = self.python or (bool(scanner.missing) and text[end] in ONLY_IN_PYTHON)
        broken = scanner.error or scanner.flaw or (scanner.done and text[end:].strip(JSON_SPACE))
        return (self.python or not broken) and self.size <= machine.limits.held

    def _is_string(self, machine: Machine) -> None:
        self._name(machine)
        super()._is_string(machine)

    def _finish(self, machine: Machine, match: re.Match[str] | None) -> None:
        if self.state == AS_JSON and self._unwrap(machine):
            machine.pop()
            self._take_close(machine, match, is_string=False)
            return
        if self.state in (AS_SCALAR, AS_JSON) and self.text:
            self._is_string(machine)
        self._name(machine)
        super()._finish(machine, match)

    def _unwrap(self, machine: Machine) -> bool:
        """Write the members of the object as arguments. False, and nothing done, where they are none of the tool's."""
        text = self._object(machine)
        properties = machine.parameters().get("properties", {})
        if text is None or not all(key in properties for key in json.loads(text)):
            return False
        machine.report(diagnostics.REPAIRED, f"all arguments stand in one argument {self.key!r}")
        keys = self.keys(machine)
        fragment = "".join(keys.begin(machine, key) + value for key, value in members(text).items())
        machine.resolve_pending(lambda _: fragment)
        return True

    def _object(self, machine: Machine) -> str | None:
        """The value as a JSON object; None where it is none."""
        text = self._read("".join(machine.call.pending))
        if self.python:
            literal = literal_as_json(text)
            return literal if literal is not None and literal.startswith("{") else None
        return text if self.scanner is not None and self.scanner.done and self.scanner.is_object else None

    def _name(self, machine: Machine) -> None:
        """Write the key of an argument like others."""
        if self.key:
            machine.add_arguments(self.keys(machine).begin(machine, self.key))
            self.key = ""


class WrapperFrame(Wrapper):
    """Such a value between plain tags."""

    kind = "wrapper"
    opened_by = ("tagged",)
    about = State(
        reads="a value between tags that may hold all of the arguments",
        ends="its closing tag; another tag or closing, where what follows shows it",
        malformed="it is an argument like others",
    )
    saved: ClassVar[tuple[str, ...]] = (*TaggedValueFrame.saved, "key", "text", "python")

    def __init__(self, rule: ValueRule, key: str = "", text: bool = False) -> None:
        super().__init__(rule, ANY_KIND)
        self.begin(key, text)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value)  # type: ignore[attr-defined]  # of a notation of tags
