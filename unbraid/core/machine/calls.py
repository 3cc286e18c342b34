"""Between the markers of calls: the frame that every state of a call stands on.

A grammar of calls is laid out as a short list of steps (`steps.py`; `compiler/calls.py` makes the list). The state of
the frame is the number of the next step. A call that breaks is given up at its own end, or where the next one begins,
so that one broken call does not take the others with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from ..events import Event
from .machine import CallsState, FastPath, Frame, Machine, Places, State
from .markers import Marker, Markers, find_token, run_of, space_end
from .output import KEPT, MARKUP
from .scopes import innermost

_closing_end = run_of(r"(?:\s*[}\])])*")

NEXT, LAST = "next call", "end of a call"
"""The strands of two markers in a list of calls: the opening literal of a further call, and the end of a call."""


class Step(Protocol):
    """One instruction for reading calls."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        """As `Frame.step`. A step that is done moves `frame.at`."""


@runtime_checkable
class Waits(Protocol):
    """A step that has a fast path where it waits."""

    def wait(self, machine: Machine, text: str) -> list[Event] | None: ...


class StepWithFrame(Step, Protocol):
    """A step that pushes a frame of its own."""

    def frame(self, markers: Markers) -> Frame: ...


class ReadsWhole(Protocol):
    """A step that reads calls at once."""

    def read(self, machine: Machine, markers: Markers, at: int) -> tuple[str, str, Places, str] | None:
        """The call that begins at a position, if all of it has come: its name, its id, its places and its arguments.
        Nothing is taken."""


@dataclass(slots=True, eq=False, repr=False)
class CallsRule:
    """Where calls stand, in one scope, and the steps that read them."""

    strand: str
    steps: tuple[Step, ...]
    close: Marker | None
    closers: Markers
    """All that closes the calls."""
    openers: Markers
    """All that opens them: models may write it twice."""
    close_required: bool
    bare: bool
    """Whether they begin without a marker."""
    listed: bool
    """Whether several calls may stand between the markers."""
    echo: bool
    """Whether they are others once more, which are left out."""
    again: int | None
    """The step that a further call of a list begins with; None where its opening literal is unknown."""
    markers: Markers
    """All that can end a malformed call in this scope."""
    waits: Mapping[int, FastPath]
    """For steps that wait for more: what adds to the text that is held back, as long as they would wait on."""
    whole: ReadsWhole | None
    """What reads a call at once that has come whole, where there is only one between the markers."""

    def frame(self) -> CallsFrame:
        return CallsFrame(self)

    def take_whole(self, machine: Machine, size: int) -> bool:
        """Take a call that has come whole, with its markers, the first of them of this size. False where it has not, or
        anything is unusual; then nothing is taken, and the steps read it."""
        if self.whole is None or not machine.reads_whole:
            return False
        call = self.whole.read(machine, self.markers, machine.position + size)
        if call is None:
            return False
        _, _, (_, _, at, after, end), arguments = call
        if machine.tally is not None and machine.buffer[at:after] != arguments:
            return False  # there is markup among the arguments
        closed = self.closers.at(machine.buffer, space_end(machine.buffer, end) if self.close_required else end)
        if closed is None:
            return False
        machine.take_call(*call)
        machine.marks = "tool_calls"
        machine.take(closed.end() - end, MARKUP)
        self.closed(machine, accepted=True)
        if machine.tally is not None:
            machine.tally.call_closes(machine.offset)
        return True

    def closed(self, machine: Machine, *, accepted: bool) -> None:
        """The closing marker was taken."""
        assert self.close is not None
        machine.awaits_end = False
        machine.trail = self.close.trail if accepted else ""
        machine.marks = "tool_calls" if machine.trail else ""


class CallsFrame(CallsState):
    """Inside the markers of calls: which step comes next."""

    kind = "calls"
    opened_by = ("scope", "header")
    about = State(
        reads="calls between their markers, step by step",
        ends="the closing marker, or where no further call comes",
        malformed="text up to the nearest marker; in a list, the next call is read",
    )
    saved = ("strand", "at", "accepted", "skipping", "tried_at")
    __slots__ = ("at", "rule", "skipping", "strand", "tried_at")

    def __init__(self, rule: CallsRule) -> None:
        self.rule = rule
        self.strand = rule.strand
        self.markers = rule.markers
        self.at = 0
        self.accepted = False
        self.skipping = False
        """Whether a call was malformed, after calls that were not. Then all up to the nearest marker is text."""
        self.tried_at: int | None = None
        """Where a call was last looked for, after a broken one. If no call comes of it, it is text."""

    @property
    def bare(self) -> bool:
        return self.rule.bare

    @property
    def echo(self) -> bool:
        return self.rule.echo

    def entered(self, machine: Machine) -> None:
        machine.calls = self

    def left(self, machine: Machine) -> None:
        machine.calls = None

    def step(self, machine: Machine) -> bool:
        if self.skipping:
            return self._skip(machine)
        steps, stack = self.rule.steps, machine.stack
        while steps[self.at].run(machine, self):
            if stack[-1] is not self or self.skipping or machine.trail:
                return True
        return False

    def held_path(self, machine: Machine) -> FastPath | None:
        return None if self.skipping else self.rule.waits.get(self.at)

    def give_up(self, machine: Machine) -> None:
        """What comes is no call: it is text. Where calls were accepted before, the closing marker is still to come, and
        where the call is left out."""
        if machine.call.left_out or (self.rule.close is not None and (self.accepted or self.rule.again is not None)):
            self.skipping = True
            return
        machine.leave_calls()
        if self.rule.close is not None and machine.kept(MARKUP, machine.spell(self.rule.close.key)) == KEPT:
            # The call was taken for text, and so its closing marker is text.
            scope = innermost(machine)
            scope.orphan_closer, scope.orphan_of_call = self.rule.close.key, True

    def _skip(self, machine: Machine) -> bool:
        if self.rule.close is None:
            return self._skip_brackets(machine)
        markers = self.markers
        match, end = machine.find(markers)
        if end > machine.position:
            machine.end_call()
            self._keep(machine, end)
        marker = None if match is None else markers.which(match)
        if match is not None and marker is not None and (marker.role, marker.strand) == ("close", self.strand):
            self.close(machine, match.end() - match.start())
        elif match is not None and marker is not None and (marker.strand == LAST or self.tried_at == machine.offset):
            machine.take(match.end() - match.start(), machine.kept(MARKUP, machine.spell(marker.key)))
        elif marker is not None and marker.strand == NEXT and self.rule.again is not None:
            self.tried_at = machine.offset
            machine.begin_call()
            self.skipping, self.at = False, self.rule.again
        elif match is not None or machine.at_end:
            machine.leave_calls()
        else:
            return False
        return True

    def _keep(self, machine: Machine, end: int) -> None:
        """Take what is left of a broken call, up to there: as text, but for the tokens of its tags."""
        buffer = machine.buffer
        while machine.position < end:
            token = find_token(buffer, machine.position, end)
            if token is None or token.start() > machine.position:
                machine.take((end if token is None else token.start()) - machine.position, machine.kept(KEPT, ""))
            else:
                machine.take(1, machine.kept(MARKUP, machine.spell(token.group())))

    def _skip_brackets(self, machine: Machine) -> bool:
        """What still closes a call that is left out, where no marker does."""
        end = _closing_end(machine.buffer, machine.position)
        if end > machine.position:
            machine.end_call()
            machine.take(end - machine.position, MARKUP)
        if space_end(machine.buffer, end) == len(machine.buffer) and not machine.at_end:
            return False
        machine.leave_calls()
        return True

    def close(self, machine: Machine, size: int) -> None:
        """Take the closing marker."""
        machine.take(size, MARKUP)
        self.rule.closed(machine, accepted=self.accepted)
        machine.leave_calls()
        if machine.tally is not None and not self.rule.listed:
            machine.tally.call_closes(machine.offset)

    def latest_frame(self) -> Frame:
        step: StepWithFrame = self.rule.steps[self.at - 1]  # type: ignore[assignment]  # the one that pushed a frame
        return step.frame(self.markers)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        rule = innermost(machine).rule.calls[saved["strand"]]
        assert isinstance(rule, CallsRule)
        return cls(rule)
