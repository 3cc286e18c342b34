"""Text and the markers in it: the frames for content, reasoning and speech."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import diagnostics
from .frames import MARKUP, TEXT, Frame
from .markers import Markers
from .program import ScopeRule

if TYPE_CHECKING:
    from ..events import Event
    from .machine import Machine


class ScopeFrame(Frame):
    """Text of one strand, up to the nearest marker."""

    kind = "scope"
    __slots__ = ("orphan_closer", "rule", "tail")

    def __init__(self, rule: ScopeRule, tail: str = "", orphan_closer: str = "") -> None:
        self.rule = rule
        self.tail = tail
        """The end of the text so far, as far as it may begin a stray marker."""
        self.orphan_closer = orphan_closer
        """The closing marker of a call that was no call: text, like the call, and no surprise."""

    def step(self, machine: Machine) -> bool:
        rule, buffer, start = self.rule, machine.buffer, machine.position
        markers = rule.markers
        found = markers.find(buffer, start)
        if found is not None:
            end = found.start()
        else:
            end = len(buffer) if machine.at_end else markers.safe_end(buffer, start)
        if end > start:
            for key, past in self._strays_in(buffer[start:end]):
                machine.take(start + past - machine.position, TEXT)
                if key == self.orphan_closer:
                    self.orphan_closer = ""
                else:
                    machine.report(diagnostics.STRAY_CLOSER, f"'{key}' closes nothing here: kept as text")
            if end > machine.position:
                machine.take(end - machine.position, TEXT)
        if found is not None:
            self.tail = ""
            machine.on_marker(markers.which(found), found.end() - found.start())
            return True
        return machine.at_end and machine.end_scope()

    def _strays_in(self, text: str) -> list[tuple[str, int]]:
        """The closing markers in `text` that close nothing, and where in it each ends. Nothing is held back for them: a
        marker may have begun in text that has already gone out."""
        strays = self.rule.strays
        if not self.tail and strays.absent(text):
            return []
        seen, at = self.tail + text, 0
        found = []
        while match := strays.find(seen, at):
            at = match.end()
            found.append((match.group(), at - len(self.tail)))
        self.tail = seen[strays.safe_end(seen, at) :]
        return found

    def fast_path(self, machine: Machine, text: str) -> Event | None:
        if self.tail or not self.rule.all_markers.absent(text):
            return None
        start, machine.offset = machine.offset, machine.offset + len(text)
        return machine.text_event(text, start, machine.offset)

    def save(self) -> list[Any]:
        return [self.rule.strand, self.tail, self.orphan_closer]


class RepeatedOpenerFrame(Frame):
    """At the start of a scope that the prompt opened: the model may write the opening marker once more."""

    kind = "again"
    __slots__ = ("markers",)

    def __init__(self, markers: Markers) -> None:
        self.markers = markers

    def step(self, machine: Machine) -> bool:
        found = self.markers.at(machine.buffer, machine.position)
        if found is not None:
            machine.take(found.end() - found.start(), MARKUP)
            machine.trail = self.markers.which(found).trail
        elif not machine.at_end and self.markers.safe_end(machine.buffer, machine.position) == machine.position:
            return False
        machine.pop()
        return True

    def save(self) -> list[Any]:
        return []
