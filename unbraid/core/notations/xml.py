"""XML notation: arguments between tags, whose keys and values are XML text.

Entities and CDATA sections are read as they arrive; only an unfinished one waits. All else is as in `tagged.py`. Arrays
and objects are read by the same frames as there (`nested_values.py`), which see the text decoded (`DecodedFrame`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ...schema.kinds import ANY_KIND, STRING
from .. import diagnostics
from ..events import Diagnostic, Event, ToolCallArguments
from ..fast_import import frozen, lazily
from ..machine.calls import Step
from ..machine.machine import Frame, Machine, State
from ..machine.markers import NOT_YET, Marker, Markers, NotYet
from ..machine.output import ARGUMENTS, MARKUP, PENDING
from ..machine.steps import BeginNotation
from ..machine.whole_calls import WholeArguments
from ..message import ToolCall
from .base import Closing, NotationPlace
from .nested_values import ArgumentFrame
from .tagged import TaggedArguments, TaggedArgumentsFrame, tag_rule
from .tagged_values import AFTER_JSON, TaggedValueFrame, Wrapper
from .value_ends import ValueRule

SECTION_OPEN, SECTION_CLOSE = "<![CDATA[", "]]>"
AMPERSAND = "&"

_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ENTITY = rf"&(?:(?P<name>{'|'.join(_NAMED)})|#(?P<number>[0-9]{{1,7}})|#[xX](?P<hex>[0-9a-fA-F]{{1,6}}));"
_entity = lazily(lambda: re.compile(_ENTITY).match)
_begins = "|".join(sorted({name[:size] for name in _NAMED for size in range(1, len(name) + 1)}, key=len, reverse=True))
_partial_entity = lazily(lambda: re.compile(rf"&(?:{_begins}|#(?:[0-9]{{0,7}}|[xX][0-9a-fA-F]{{0,6}}))?\Z").match)
_markup = lazily(
    lambda: (
        re.compile(rf"{_ENTITY}|{re.escape(SECTION_OPEN)}(?P<text>.*?)(?:{re.escape(SECTION_CLOSE)}|\Z)", re.DOTALL).sub
    )
)


def read_entity(text: str, at: int, at_end: bool) -> tuple[int, str] | NotYet:
    """The size of the entity that begins at an ampersand, and its character. An ampersand that begins none is itself.

    at_end: whether no more text comes."""
    match = _entity(text, at)
    if match is None:
        return NOT_YET if _partial_entity(text, at) and not at_end else (1, AMPERSAND)
    char = _char(match)
    return (1, AMPERSAND) if char is None else (match.end() - at, char)


def decode(text: str) -> str:
    """A text decoded. A section in it may lack its end."""
    return _markup(_said, text) if AMPERSAND in text or SECTION_OPEN in text else text


def encode(text: str) -> str:
    """A text encoded: as a section, if it has `<` or `&` in it."""
    if "<" not in text and AMPERSAND not in text:
        return text
    # What ends a section is cut in two, with a section for each half.
    inside = text.replace(SECTION_CLOSE, f"]]{SECTION_CLOSE}{SECTION_OPEN}>")
    return f"{SECTION_OPEN}{inside}{SECTION_CLOSE}"


def encode_attribute(text: str) -> str:
    """A text as it stands in an attribute."""
    for name in ("amp", "lt", "gt", "quot"):
        text = text.replace(_NAMED[name], f"&{name};")
    return "".join(f"&#{ord(char)};" if char < " " else char for char in text)


def _char(match: re.Match[str]) -> str | None:
    """The character that an entity is; None for a number that is none."""
    name, number, hex = match.group("name", "number", "hex")
    if name:
        return _NAMED[name]
    code = int(number) if number else int(hex, 16)
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else None


def _said(match: re.Match[str]) -> str:
    if match.group("text") is not None:
        return match.group("text")
    char = _char(match)
    return match.group() if char is None else char


_SECTION_END = Markers([Marker("close", "", SECTION_CLOSE)])


@frozen
class XmlArguments(TaggedArguments):
    """Arguments between tags, with entities and CDATA sections in them."""

    def step(self, place: NotationPlace) -> Step:
        rule = tag_rule(self, place, (SECTION_OPEN, AMPERSAND))
        return BeginNotation(lambda markers: XmlArgumentsFrame(rule, markers))

    def whole(self, place: NotationPlace) -> WholeArguments | None:
        return None

    def check(self, call: ToolCall, tail: tuple[Closing, ...], tools: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Sections hold any text."""

    def encoded_key(self, key: str) -> str:
        return encode_attribute(key)

    def decoded_key(self, spelled: str) -> str:
        return decode(spelled)

    def _encoded(self, text: str) -> str:
        return encode(text)


class XmlArgumentsFrame(TaggedArgumentsFrame):
    """Between arguments of XML text."""

    kind = "xml"
    opened_by = ("calls",)
    about = State(
        reads="between arguments that stand in tags, as XML",
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    )
    __slots__ = ()

    def _value(self, kinds: frozenset[str]) -> TaggedValueFrame:
        return XmlValueFrame(self.rule.value, kinds)

    def _wrapper(self, key: str, text: bool) -> TaggedValueFrame:
        return XmlWrapperFrame(self.rule.value, key, text)


class XmlValueFrame(TaggedValueFrame):
    """One value. Only an entity, and what begins or ends a section, waits until it is whole."""

    kind = "xml_value"
    opened_by = ("xml",)
    about = State(
        reads="one value between its tags, with entities and CDATA sections",
        ends="its closing tag; another tag or closing, where what follows shows it",
        malformed="what is not of its kind is passed on as a string",
    )
    saved: ClassVar[tuple[str, ...]] = (*TaggedValueFrame.saved, "in_section")
    __slots__ = ("in_section",)

    def __init__(self, rule: ValueRule, kinds: frozenset[str]) -> None:
        super().__init__(rule, kinds)
        self.in_section = False

    @property
    def python_words(self) -> bool:
        """Templates of this kind write values as Python does: what no schema tells to be text may be a word of it."""
        return STRING not in self.kinds or self.kinds == ANY_KIND

    @property
    def watched(self) -> Markers:
        return _SECTION_END if self.in_section else self.rule.watched

    def _on_match(self, machine: Machine, match: re.Match[str]) -> bool:
        text = match.group()
        if text == AMPERSAND and not self.in_section:
            entity = read_entity(machine.buffer, machine.position, machine.at_end)
            if entity is NOT_YET:
                return False
            self._pass_on(machine, entity[1], entity[0], ended=True)
            return True
        if text not in (SECTION_OPEN, SECTION_CLOSE):
            return super()._on_match(machine, match)
        self.in_section = text == SECTION_OPEN
        if self.decided:
            machine.take(len(text), MARKUP)
            return True
        machine.take(len(text), PENDING)
        self.size += len(text)
        if self.size > machine.limits.held:
            self._is_string(machine)
        return True

    def _read(self, text: str) -> str:
        return decode(text)

    def _begin_json(self, machine: Machine, space: int) -> None:
        machine.resolve_pending(decode)
        self.state = AFTER_JSON
        machine.push(ArgumentFrame(machine.limits, ARGUMENTS, self.rule.ends))
        machine.push(DecodedFrame())

    def _after_json(self, machine: Machine) -> bool:
        if self.in_section:
            machine.skip_space()
            comes = _SECTION_END.matches_at(machine.buffer, machine.position)
            if comes is NOT_YET and not machine.at_end:
                return False
            if comes:
                machine.take(len(SECTION_CLOSE), MARKUP)
                self.in_section = False
        return super()._after_json(machine)


class XmlWrapperFrame(Wrapper, XmlValueFrame):
    """A value of XML text that may hold all of the arguments."""

    kind = "xml_wrapper"
    opened_by = ("xml",)
    about = State(
        reads="such a value that may hold all of the arguments",
        ends="its closing tag; another tag or closing, where what follows shows it",
        malformed="it is an argument like others",
    )
    saved: ClassVar[tuple[str, ...]] = (*XmlValueFrame.saved, "key", "text", "python")

    def __init__(self, rule: ValueRule, key: str = "", text: bool = False) -> None:
        XmlValueFrame.__init__(self, rule, ANY_KIND)
        self.begin(key, text)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value)  # type: ignore[attr-defined]  # of a notation of tags


class DecodedFrame(Frame):
    """Decodes the text for the frame below it, which reads an array or an object. Then it takes the characters of the
    output whose text that frame took. The rest stays in the buffer, and is decoded again."""

    kind = "decoded"
    opened_by = ("xml_value",)
    about = State(
        reads="entities and CDATA sections, for the frame below that reads an array or an object",
        ends="the end of the value, or what ends the text around it",
        malformed="as in the frame below",
    )
    __slots__ = ()

    @property
    def in_string(self) -> bool:
        return True

    def step(self, machine: Machine) -> bool:
        value = machine.stack[-3]
        assert isinstance(value, XmlValueFrame)
        start, offset = machine.position, machine.offset
        decoded, over = _decoded(machine, value)
        taken, events = self._run_below(machine, decoded.text)
        fragment = "".join(event.fragment for event in events if isinstance(event, ToolCallArguments))
        if taken:
            value.in_section = decoded.sections[taken - 1]
            machine.take(decoded.ends[taken - 1] - start, ARGUMENTS if fragment else MARKUP, fragment or None)
        elif fragment:
            machine.add_arguments(fragment)
        for event in events:
            if isinstance(event, Diagnostic):
                at = decoded.ends[event.start - 1] - start if event.start else 0
                machine.report(event.kind, event.message, offset + at)
        if machine.stack[-1] is not self:
            return True
        if not over or machine.cut_off:
            return machine.needs_more()
        self._end_early(machine, decoded.text[taken:], decoded.ends[-1] if decoded.ends else start)
        return True

    def _run_below(self, machine: Machine, text: str) -> tuple[int, list[Event]]:
        """Let the frame below read a text. Returns how much of it was taken, and the events."""
        names = ("buffer", "position", "offset", "gaps", "out", "at_end", "keep_raw", "running")
        before = {name: getattr(machine, name) for name in names}
        machine.buffer, machine.position, machine.offset, machine.gaps, machine.out = text, 0, 0, [], []
        machine.at_end = machine.keep_raw = False
        machine.stack.pop()
        height = len(machine.stack)
        try:
            while len(machine.stack) == height:
                below = machine.running = machine.stack[-1]
                if not below.step(machine):
                    break
            return machine.position, machine.out
        finally:
            for name, state in before.items():
                setattr(machine, name, state)
            if len(machine.stack) == height:
                machine.stack.append(self)

    def _end_early(self, machine: Machine, rest: str, end: int) -> None:
        below = machine.stack[-2]
        if not (isinstance(below, ArgumentFrame) and below.lenient):
            machine.report(diagnostics.MALFORMED_JSON, "the JSON of an argument ends too early")
        if rest:
            machine.take(end - machine.position, ARGUMENTS, rest)
        machine.call.flawed = True
        machine.pop()
        machine.pop()

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls()


@dataclass(slots=True)
class _Decoded:
    """Decoded text of the buffer; for each character where it ends there, and whether it stands in a section."""

    text: str
    ends: list[int]
    sections: list[bool]


def _decoded(machine: Machine, value: XmlValueFrame) -> tuple[_Decoded, bool]:
    """The buffer decoded, up to the end of the value or to where more input is needed; and whether that is the end."""
    buffer, at, said, in_section = machine.buffer, machine.position, _Decoded("", [], []), value.in_section
    pieces: list[str] = []

    def add(text: str, ends: Iterable[int]) -> None:
        pieces.append(text)
        said.ends += ends
        said.sections += [in_section] * len(text)

    while True:
        match, stop, _ = value.find_end(machine, _SECTION_END if in_section else value.rule.watched, at)
        if match is None and machine.at_end:
            stop = len(buffer)
        add(buffer[at:stop], range(at + 1, stop + 1))
        at, mark = stop, "" if match is None else match.group()
        if mark in (SECTION_OPEN, SECTION_CLOSE):
            in_section, at = mark == SECTION_OPEN, at + len(mark)
            continue
        entity = read_entity(buffer, at, machine.at_end) if mark == AMPERSAND else NOT_YET
        if entity is NOT_YET:
            said.text = "".join(pieces)
            return said, machine.at_end if match is None else mark != AMPERSAND
        at += entity[0]
        add(entity[1], [at])
