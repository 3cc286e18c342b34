"""Tags that say where a piece of text comes from: `<co: 0,1>warm</co: 0,1>`.

They are markup in the text of a strand, and open nothing: the text between them stays text. What a tag says is of no
fixed length, so it is held until its end comes, or a character that no such tag can have. Then it was text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .machine import Frame, Machine
from .pending_call import MARKUP, TEXT
from .scopes import innermost


@dataclass(slots=True, eq=False, repr=False)
class CitationRule:
    """How the tags are written."""

    opens: tuple[str, ...]
    close: str
    inside: re.Pattern[str]

    @property
    def bare(self) -> bool:
        return True

    def frame(self) -> Frame:
        return CitationFrame(self)


class CitationFrame(Frame):
    """A tag, from what it begins with on."""

    kind = "citation"
    __slots__ = ("rule",)

    def __init__(self, rule: CitationRule) -> None:
        self.rule = rule

    def step(self, machine: Machine) -> bool:
        rule, buffer, start = self.rule, machine.buffer, machine.position
        begin = start + next(len(open) for open in rule.opens if buffer.startswith(open, start))
        limit = begin + machine.limits.name
        end = buffer.find(rule.close, begin, limit)
        is_tag = rule.inside.fullmatch(buffer, begin, min(limit, len(buffer)) if end < 0 else end) is not None
        if is_tag and end < 0 and len(buffer) < limit and not machine.at_end:
            return False
        machine.pop()
        if is_tag and end >= 0:
            machine.take(end + len(rule.close) - start, MARKUP)
        else:
            machine.take(begin - start, TEXT)
        return True

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        rule = innermost(machine).rule.citation
        assert isinstance(rule, CitationRule)
        return cls(rule)
