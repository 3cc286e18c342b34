"""Element notation: arguments as nested elements, `<city>Paris</city>`, turned into JSON as they arrive.

An element that holds others is an array if the schema says so, or if the first of them is an item, and an object
otherwise. The text of one that holds none is a value between tags (`tagged_values.py`), by what the schema says at that
depth. It ends as other values do (`value_ends.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UnbraidError
from ...schema.kinds import ITEMS, STRING, keys_inside, kinds_among, schemas_inside
from .. import diagnostics
from ..fast_import import frozen
from ..json_text import as_json, decode, quote
from ..machine.calls import Step
from ..machine.machine import Frame, Machine, State
from ..machine.markers import NOT_YET, Marker, Markers, NotYet, any_matches_at, space_end
from ..machine.output import ARGUMENTS, MARKUP, Malformed
from ..machine.steps import BeginNotation
from ..message import ToolCall
from .base import CallNotation, Closing, NotationPlace, ObjectWriter
from .tagged_values import ONLY_ARRAYS, TaggedValueFrame
from .value_ends import ValueRule

_name = re.compile(r"(?!/)[^<>\"\x00-\x1f\ud800-\udfff]*")
_CLOSERS = {"{": "}", "[": "]"}
_LEAF = "leaf"
_ITEM = "item"
"""Text that is an item of an array which others may go on with."""
_NO_ITEMS = ("[", "null", "None")
"""What the text of an element begins with that is no item: it is all of the value."""


def is_element_name(key: str) -> bool:
    """Whether an element can have this name."""
    return bool(_name.fullmatch(key))


@frozen
class ElementArguments(CallNotation):
    """The arguments as elements that have their names. An object holds an element for each of its members, an array one
    for each item; a string is its bare characters, anything else JSON. An empty array or object is an empty element."""

    mark: str
    """What stands before every tag; whitespace between the two says nothing."""
    item: str = "item"
    """The name of an array's elements."""

    def step(self, place: NotationPlace) -> Step:
        begin = place.key(self.mark + "<")
        close = Marker("close", "", begin)
        ends = Markers([close])
        following = Markers(Marker("end", "", key) for key in place.ends)
        taken = frozenset(key.removeprefix(begin).strip("/>") for key in place.ends)
        rule = ElementRule(begin, self.item, ValueRule(close, ends, ends, tail=place.tail), following, taken)
        return BeginNotation(lambda markers: ElementArgumentsFrame(rule, markers))

    def write(self, call: ToolCall, number: int) -> str:
        return "".join(self._element(key, decode(value)) for key, value in self.members(call).items())

    def can_name(self, key: str) -> bool:
        return is_element_name(key)

    def check(self, call: ToolCall, tail: tuple[Closing, ...], tools: Mapping[str, Mapping[str, Any]] | None) -> None:
        for key, value in self.members(call).items():
            self._check(key, decode(value))

    def _check(self, name: str, value: object) -> None:
        """Only the mark shows a tag: a text that holds it may read back as another."""
        if isinstance(value, str) and self.mark in value:
            raise UnbraidError(
                f"the argument {name!r} cannot be written in this format: it holds {self.mark!r}, which stands before "
                "every tag; leave that out, or write it in another way"
            )
        if isinstance(value, list):
            for item in value:
                self._check(name, item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._check(key, item)

    def _element(self, name: str, value: object) -> str:
        inside = ""
        if isinstance(value, str):
            inside = str(value)
        elif isinstance(value, list):
            inside = "".join(self._element(self.item, item) for item in value)
        elif isinstance(value, dict) and all(map(is_element_name, value)) and next(iter(value), "") != self.item:
            inside = "".join(self._element(key, item) for key, item in value.items())
        # What elements cannot say, and what is empty, is JSON: as a text it reads as what it is.
        if not inside and not isinstance(value, str):
            inside = as_json(value)
        return f"{self.mark}<{name}>{inside}{self.mark}</{name}>"


@dataclass(slots=True, eq=False, repr=False)
class ElementRule:
    """The tags of elements."""

    begin: str
    """The beginning of every tag."""
    item: str
    value: ValueRule
    """The rule of its text, which ends at the next tag."""
    following: Markers
    """The markers that may come after the last argument."""
    taken: frozenset[str]
    """The names of tags that are no element's: those of the markers that close the call."""


@dataclass(slots=True, eq=False, repr=False)
class _Tag:
    closing: bool
    name: str
    end: int


class LeafFrame(TaggedValueFrame):
    """The text of an element that holds no others. Its closing tag is left for `ElementArgumentsFrame`. Other tags are
    text, unless what follows shows that the closing one was forgotten: law 14 (docs/laws.md#law-14)."""

    kind = "leaf"
    opened_by = ("elements",)
    about = State(
        reads="the text of an element that holds no others",
        ends="its closing tag; another tag or closing, where what follows shows it",
        malformed="what is not of its kind is passed on as a string",
    )
    __slots__ = ()
    items = False  # `ElementArgumentsFrame` sees to these

    def missing_at(self, machine: Machine, match: re.Match[str]) -> int | NotYet | None:
        around = machine.stack[machine.stack.index(self) - 1]
        assert isinstance(around, ElementArgumentsFrame)
        return around.missing_at(machine, match.start())

    def _take_close(self, machine: Machine, match: re.Match[str] | None, is_string: bool) -> None:
        if is_string:
            machine.add_arguments('"')


class ElementArgumentsFrame(Frame):
    """Between tags."""

    kind = "elements"
    opened_by = ("calls",)
    about = State(
        reads="between elements, nested",
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    )
    saved = ("again", "holds", "keys", "names", "repeats")
    __slots__ = ("again", "holds", "keys", "markers", "names", "repeats", "rule", "schemas")

    def __init__(self, rule: ElementRule, markers: Markers) -> None:
        self.rule = rule
        self.markers = markers
        self.keys = ObjectWriter()
        self.names: list[str] = []
        """The elements that are open."""
        self.again: str | None = None
        """The element that has just been closed, where its array is still open: models write it once for each item."""
        self.repeats: list[bool] = []
        """Which of those that are open go on with such an array."""
        self.holds: list[str] = []
        """What each of them holds: `_LEAF` for text, `[` or `{`, with a comma if it is not empty; "" if unknown."""
        self.schemas: list[list[object]] = []
        """The tool's schemas for each of them, as far as they were looked up."""

    def step(self, machine: Machine) -> bool:
        if self.names and not self.holds[-1]:
            return self._look_inside(machine)
        machine.skip_space()
        tag = self._tag(machine, machine.position)
        if tag is NOT_YET:
            return False
        if tag is None:
            return self._end(machine)
        if tag.closing:
            following = self.rule.following.at(machine.buffer, machine.position)
            if not self.names or (following and tag.name != self.names[-1]):
                return self._end(machine)
            self._end_array(machine)
            while tag.name in self.names and not self._is_closed_by(machine, tag):
                self._close_unclosed(machine)
            self._close(machine, tag.end - machine.position)
            return True
        if self.holds[-1:] in ([_LEAF], [_ITEM]):
            self._close_unclosed(machine)
        self._open(machine, tag)
        return True

    def missing_at(self, machine: Machine, at: int) -> int | NotYet | None:
        """How many closings are missing if the text of the innermost element ends at a tag, 0 at its own. None where
        the tag is text."""
        tag = self._tag(machine, at)
        if tag is not None and tag is not NOT_YET:
            if not tag.closing:
                return 1 if tag.name == self._next(machine) else None
            if self._is_closed_by(machine, tag):
                return 0
            if tag.name in self.names and tag.name not in self.rule.taken:
                levels = self.names[::-1].index(tag.name)
                comes = self._goes_on(machine, len(self.names) - levels - 1, space_end(machine.buffer, tag.end))
                return levels if comes else NOT_YET if comes is NOT_YET else None
        elif tag is None and (begun := self.rule.value.ends.at(machine.buffer, at)):
            name = _name.match(machine.buffer, begun.end() + machine.buffer.startswith("/", begun.end()))
            size = len(machine.buffer) - begun.end()
            if name is not None and name.end() == len(machine.buffer) and size <= machine.limits.name:
                return NOT_YET  # the output ends inside the tag
        missing = self.rule.value.missing_in_tail(machine, at)
        if isinstance(missing, int):
            return missing + len(self.names) - 1
        return NOT_YET if tag is NOT_YET else missing

    def _is_closed_by(self, machine: Machine, tag: _Tag) -> bool:
        """Whether a closing tag is that of the innermost element. One whose name no schema knows may be closed by any
        name: a grammar cannot hold a model to it."""
        own = self.names[-1]
        if tag.name == own or tag.name in self.rule.taken:
            return tag.name == own
        return own not in self._beside(machine, len(self.names) - 1)

    def _goes_on(self, machine: Machine, depth: int, at: int) -> bool | NotYet:
        """Whether what comes at a position may stand after the element of this depth: a further element beside it, or
        what closes something around it."""
        tag = self._tag(machine, at)
        if tag is not None and tag is not NOT_YET and tag.name not in self.rule.taken:
            return tag.name in (self.names[:depth] if tag.closing else self._beside(machine, depth))
        comes = self.rule.following.matches_at(machine.buffer, at)
        return comes or (NOT_YET if not machine.at_end and NOT_YET in (comes, tag) else False)

    def _next(self, machine: Machine) -> str | None:
        """The element that comes after the innermost one, beside it, by the schema."""
        depth, own = len(self.names) - 1, self.names[-1]
        keys = self._beside(machine, depth)
        if depth and self.holds[depth - 1].startswith("["):
            return self.rule.item
        return keys[keys.index(own) + 1] if own in keys[:-1] else None

    def _beside(self, machine: Machine, depth: int) -> list[str]:
        """The elements that the schema has at a depth."""
        if depth and self.holds[depth - 1].startswith("["):
            return [self.rule.item]
        self._kinds(machine)
        parameters = machine.parameters()
        return keys_inside(parameters, self.schemas[depth - 1] if depth else [parameters])

    def _tag(self, machine: Machine, at: int) -> _Tag | NotYet | None:
        """The tag that comes at a position."""
        buffer, tags = machine.buffer, self.rule.value.ends
        begin = tags.at(buffer, at)
        if begin is None:
            return NOT_YET if tags.matches_at(buffer, at) is NOT_YET and not machine.at_end else None
        start = begin.end()
        closing = buffer.startswith("/", start)
        name = _name.match(buffer, start + closing)
        if name is None or name.end() - name.start() > machine.limits.name:
            return None
        if name.end() == len(buffer) and not machine.at_end:
            return NOT_YET
        if self.markers.at(buffer, at) or not buffer.startswith(">", name.end()):
            return None
        return _Tag(closing, name.group(), name.end() + 1)

    # --- Elements --------------------------------------------------------------------------------------------------

    def _open(self, machine: Machine, tag: _Tag) -> None:
        most = machine.limits.depth
        if len(self.names) >= most:
            raise Malformed(diagnostics.TOO_DEEP, f"arguments nest deeper than {most}")
        repeats = tag.name == self.again
        if not repeats:
            self._end_array(machine)
        if repeats:
            before, self.again = ", ", None
        elif not self.names:
            before = self.keys.begin(machine, tag.name)
        else:
            bracket, comma = self.holds[-1][0], self.holds[-1][1:]
            before = f"{comma} " if comma else bracket
            before += f"{quote(tag.name)}: " if bracket == "{" else ""
            self.holds[-1] = f"{bracket},"
        machine.take(tag.end - machine.position, ARGUMENTS, before)
        self.names.append(tag.name)
        self.holds.append("")
        self.repeats.append(repeats)

    def _look_inside(self, machine: Machine) -> bool:
        """Find out what an element holds: others, text or nothing."""
        start = machine.position
        at = space_end(machine.buffer, start)
        short = at - start <= machine.limits.name
        tag = self._tag(machine, at) if short else None
        if tag is NOT_YET:
            return False
        kinds = self._kinds(machine)
        items = kinds <= ONLY_ARRAYS and tag is None and not machine.buffer.startswith(_NO_ITEMS, at)
        begun = machine.buffer[at:]
        if items and not machine.at_end and any(text.startswith(begun) for text in _NO_ITEMS):
            return False
        if items:
            self._begin_item(machine)
            return True
        if tag is not None and not tag.closing and kinds != {STRING}:
            both = ("array" in kinds) == ("object" in kinds)
            is_array = tag.name == self.rule.item if both else "array" in kinds
            self.holds[-1] = "[" if is_array else "{"
        elif tag is not None and at == start and STRING not in kinds and kinds & {"array", "object"}:
            self.holds[-1] = "[" if "array" in kinds else "{"
        else:
            self.holds[-1] = _LEAF
            leaf = LeafFrame(self.rule.value, kinds)
            if leaf.written:
                machine.add_arguments(leaf.written)
            machine.push(leaf)
        return True

    def _begin_item(self, machine: Machine) -> None:
        """The text of an element is an item of its array, and others may hold the next."""
        self.holds[-1] = _ITEM
        if not self.repeats[-1]:
            machine.report(diagnostics.REPAIRED, f"'{self.names[-1]}' once for each item of its array")
            machine.add_arguments("[")
        items = schemas_inside(machine.parameters(), self.schemas[-1], ITEMS)
        leaf = LeafFrame(self.rule.value, kinds_among(machine.parameters(), items))
        if leaf.written:
            machine.add_arguments(leaf.written)
        machine.push(leaf)

    def _end_array(self, machine: Machine) -> None:
        """No other element goes on with the array that is still open."""
        if self.again is not None:
            machine.add_arguments("]")
            self.again = None

    def _kinds(self, machine: Machine) -> frozenset[str]:
        """The kinds of value that the innermost element may hold. Only what is new is looked up: elements nest deep."""
        parameters, schemas = machine.parameters(), self.schemas
        while (depth := len(schemas)) < len(self.names):
            in_array = depth > 0 and self.holds[depth - 1].startswith("[")
            key = ITEMS if in_array else self.names[depth]
            schemas.append(schemas_inside(parameters, schemas[-1] if schemas else [parameters], key))
        return kinds_among(parameters, schemas[-1])

    def _close(self, machine: Machine, size: int) -> None:
        """Take the tag that closes the innermost element."""
        name, is_item = self.names[-1], self.holds[-1] == _ITEM or self.repeats[-1]
        rest = self._rest()
        self.again = name if is_item else None
        if rest:
            machine.take(size, ARGUMENTS, rest)
        else:
            machine.take(size, MARKUP)

    def _close_unclosed(self, machine: Machine) -> None:
        """End the innermost element, which has no closing tag."""
        machine.report(diagnostics.MALFORMED_CALL, f"an argument without '{self.rule.begin}/{self.names[-1]}>'")
        is_item = self.holds[-1] == _ITEM or self.repeats[-1]
        if rest := self._rest() + "]" * is_item:
            machine.add_arguments(rest)

    def _rest(self) -> str:
        """Pop the innermost element. Returns what is still to be written of it."""
        self.names.pop()
        self.repeats.pop()
        holds = self.holds.pop()
        del self.schemas[len(self.names) :]
        if holds in (_LEAF, _ITEM):
            return ""
        return f"{'' if holds.endswith(',') else holds}{_CLOSERS[holds[0]]}"

    # --- The end ---------------------------------------------------------------------------------------------------

    def _end(self, machine: Machine) -> bool:
        comes = any_matches_at((self.rule.following, self.markers), machine.buffer, machine.position)
        if not comes:
            if machine.cut_off or (comes is NOT_YET and not machine.at_end):
                return machine.needs_more()
            # As between other tags, a text that the turn ends inside of is all there is.
            if machine.position < len(machine.buffer) or self.holds not in ([], [_LEAF], [_ITEM]):
                kind = diagnostics.UNFINISHED_CALL if machine.at_end else diagnostics.MALFORMED_CALL
                raise Malformed(kind, "text between the arguments of a tool call")
            while self.names:
                self.again = self.names[-1] if self.holds[-1] == _ITEM else None
                self._rest()
            self.rule.value.miss(machine, self.rule.value.needed())
        self._end_array(machine)
        while self.names:
            self._close_unclosed(machine)
        machine.pop()
        self.keys.end(machine)
        return True
