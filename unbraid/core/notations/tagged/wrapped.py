"""A value that may hold all of the arguments: models write `<parameter=arguments>{"city": "Paris"}</parameter>`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ....schema.kinds import ANY_KIND
from ... import diagnostics
from ...json_text import members
from ...machine.machine import Machine
from ..base import ObjectWriter
from ..python_values import literal_as_json
from .nested import ONLY_IN_PYTHON
from .values import AS_JSON, AS_SCALAR, JSON_SPACE, TaggedValueFrame, ValueRule


class Wrapper(TaggedValueFrame):
    """A value that may hold all of the arguments. It waits until that is told, with its key: by its end, where it is an
    object, as JSON or Python writes it. A base for the frames of the notations, which have slots of their own: so this
    one has none."""

    def begin(self, key: str, text: bool) -> None:
        self.key = key
        self.text = text
        """Whether it is a string, where it is an argument like others."""
        self.python = False
        """Whether it is no JSON any more, and may be a dict of Python's."""

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

    def _finish(self, machine: Machine, found: re.Match[str] | None) -> None:
        if self.state == AS_JSON and self._unwrap(machine):
            machine.pop()
            self._take_close(machine, found, is_string=False)
            return
        if self.state in (AS_SCALAR, AS_JSON) and self.text:
            self._is_string(machine)
        self._name(machine)
        super()._finish(machine, found)

    def _unwrap(self, machine: Machine) -> bool:
        """Write the members of the object as arguments. False, and nothing done, where they are none of the tool's."""
        text = self._object(machine)
        known = machine.parameters().get("properties", {})
        if text is None or not all(key in known for key in json.loads(text)):
            return False
        machine.report(diagnostics.REPAIRED, f"all arguments stand in one argument {self.key!r}")
        keys = self._keys(machine)
        written = "".join(keys.begin(machine, key) + value for key, value in members(text).items())
        machine.resolve_pending(lambda _: written)
        return True

    def _object(self, machine: Machine) -> str | None:
        """The value as a JSON object; None where it is none."""
        text = self._read("".join(machine.call.pending))
        if self.python:
            literal = literal_as_json(text)
            return literal if literal is not None and literal.startswith("{") else None
        return text if self.scanner is not None and self.scanner.done and self.scanner.is_object else None

    def _name(self, machine: Machine) -> None:
        """It is an argument like others: write its key."""
        if self.key:
            machine.add_arguments(self._keys(machine).begin(machine, self.key))
            self.key = ""

    def _keys(self, machine: Machine) -> ObjectWriter:
        keys: ObjectWriter = machine.stack[-2].keys  # type: ignore[attr-defined]  # of a notation of tags
        return keys


class WrapperFrame(Wrapper):
    """Such a value between plain tags."""

    kind = "wrapper"
    saved: ClassVar[tuple[str, ...]] = (*TaggedValueFrame.saved, "key", "text", "python")

    def __init__(self, rule: ValueRule, key: str = "", text: bool = False) -> None:
        super().__init__(rule, ANY_KIND)
        self.begin(key, text)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value)  # type: ignore[attr-defined]  # of a notation of tags
