"""XML notation: arguments between tags, whose keys and values are XML text.

Entities and CDATA sections are read as they arrive; only an unfinished one waits. All else is as in `tagged.py`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from .. import diagnostics
from ..machine.calls import Step
from ..machine.machine import Machine
from ..machine.markers import Marker, Markers
from ..machine.pending_call import MARKUP, PENDING
from ..machine.steps import BeginNotation
from ..records import frozen
from .base import Place
from .json_scanner import JsonScanner
from .tagged import TaggedArguments, TaggedArgumentsFrame, TaggedValueFrame, ValueRule, tag_rule
from .xml_text import AMPERSAND, SECTION_CLOSE, SECTION_OPEN, decode, encode, encode_attribute, entity

_SECTION_END = Markers([Marker("close", "", SECTION_CLOSE)])


@frozen
class XmlArguments(TaggedArguments):
    """Arguments between tags, with entities and CDATA sections in them."""

    def step(self, place: Place) -> Step:
        rule = tag_rule(self, place, (SECTION_OPEN, AMPERSAND))
        return BeginNotation(lambda markers: XmlArgumentsFrame(rule, markers))

    def encoded_key(self, key: str) -> str:
        return encode_attribute(key)

    def decoded_key(self, written: str) -> str:
        return decode(written)

    def _encoded(self, text: str) -> str:
        return encode(text)


class XmlArgumentsFrame(TaggedArgumentsFrame):
    """Between such arguments."""

    kind = "xml"
    __slots__ = ()

    def _value(self, kinds: frozenset[str]) -> TaggedValueFrame:
        return XmlValueFrame(self.rule.value, kinds)


class XmlValueFrame(TaggedValueFrame):
    """One value. Only an entity, and what begins or ends a section, waits until it is whole."""

    kind = "xml_value"
    saved: ClassVar[tuple[str, ...]] = (*TaggedValueFrame.saved, "in_section")
    __slots__ = ("in_section",)

    def __init__(self, rule: ValueRule, kinds: frozenset[str]) -> None:
        super().__init__(rule, kinds)
        self.in_section = False

    @property
    def watched(self) -> Markers:
        return _SECTION_END if self.in_section else self.rule.watched

    def _on_found(self, machine: Machine, found: re.Match[str]) -> bool:
        text = found.group()
        if text == AMPERSAND and not self.in_section:
            size, char = entity(machine.buffer, machine.position, not machine.at_end)
            if size:
                self._pass_on(machine, char, size)
            return bool(size)
        if text not in (SECTION_OPEN, SECTION_CLOSE):
            return super()._on_found(machine, found)
        self.in_section = text == SECTION_OPEN
        if self.decided:
            machine.take(len(text), MARKUP)
            return True
        machine.take(len(text), PENDING)
        self.size += len(text)
        if self.size > machine.limits.held:
            self._is_string(machine)
        return True

    def _read(self, written: str) -> str:
        return decode(written)

    def _begin_json(self, machine: Machine, space: int) -> None:
        machine.resolve_pending(decode)
        self._pass_as_is()
        self.scanner = JsonScanner(machine.limits)

    def _pass_on(self, machine: Machine, text: str, size: int) -> bool:
        scanner = self.scanner if self.decided else None
        taken = super()._pass_on(machine, text, size)
        if scanner is not None:
            end = scanner.scan(text, 0)
            if scanner.error:
                self._is_no_json(machine, scanner.message, scanner.error)
            elif scanner.done and text[end:].strip(" \t\n\r"):
                self._is_no_json(machine, "text follows the JSON of an argument")
        return taken

    def _is_no_json(self, machine: Machine, message: str, kind: str = diagnostics.MALFORMED_JSON) -> None:
        machine.report(kind, message)
        machine.call.flawed, self.scanner = True, None

    def _finish(self, machine: Machine, found: re.Match[str] | None) -> None:
        if self.decided and self.scanner is not None:
            problem = self.scanner.flaw or ("" if self.scanner.done else "the JSON of an argument ends too early")
            if problem:
                self._is_no_json(machine, problem)
        super()._finish(machine, found)
