"""A call that has come whole, and as its format writes it: it is read at once.

Most calls are short, and many come in one piece: in a whole reply, in a rollout, in a delta of several tokens. Step by
step each costs some hundred calls of functions. So a grammar of calls begins with a step (`WholeCall`) that looks for
all of a call with two patterns, which are derived from the same grammar, and for its arguments in between. Where it
finds anything unusual, it takes nothing, and the steps after it read the call. Both ways come to the same: the tests
compare them, on all formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..events import Event
from .calls import CallsFrame
from .machine import Machine, Places
from .markers import Answers, Beginnings, Markers, Pieces
from .output import MARKUP, NAME

SPACE = r"\s{0,4}+"
"""Whitespace where it says nothing: no more than any limit allows."""
LONGEST = 4096
"""Longer calls are worth their steps: those cost little by the character."""

Match = Callable[[str, int], re.Match[str] | None]
ReadArguments = Callable[[Machine, Markers, int, str], tuple[str, int] | None]
"""Reads the arguments of a call to a tool that stand at a position of the buffer: their JSON, and where they end. None
where they are unusual. It is given what can end a malformed call there."""


@dataclass(slots=True, eq=False, repr=False)
class WholeArguments:
    """How a notation's arguments are read at once."""

    read: ReadArguments
    before: str = ""
    """A pattern for what the notation has before the arguments, with the group `name` if it holds the call's name."""
    after: str = ""
    """A pattern for what it has after them."""
    begins: Pieces = ()
    """Where it holds the name: what it begins with, up to the name's end."""


class WholeCall:
    """The step that reads a call at once, if all of it has come; or its beginning, up to the arguments. It waits as
    long as that comes as templates write it, so that little is done for each delta."""

    __slots__ = (
        *("_arguments", "_begin", "_begins", "_head", "_id", "_name", "_patterns", "_tail"),
        *("_openings", "arguments", "next", "opens", "settled"),
    )

    def __init__(self, begin: str, begins: Pieces, arguments: WholeArguments, tail: str) -> None:
        """begin: a pattern for what comes before the notation, with the groups `name` and `id` where they stand there;
        empty if that can be told from other ways to go on only by what follows. begins: the same in pieces, up to the
        name at least. tail: a pattern for what comes after the notation."""
        self._patterns = begin, arguments.before, arguments.after + tail
        self._begins: Answers[bool] = Beginnings((*begins, *arguments.begins))
        self._openings = Answers(self._opening)
        self._arguments = arguments.read
        self._begin: Match | None = None
        self._head: Match = self._compile
        self._tail: Match = self._compile
        self._name, self._id = 0, 0
        """The numbers of the groups."""
        self.arguments, self.next = 0, 0
        """The step of the notation, and the one after the call."""
        self.settled = False
        """Whether what comes before the notation ends with a literal. If not, only what follows shows where it ends."""
        self.opens: tuple[str, ...] = ()
        """What the arguments begin with, where the call starts with them and not before."""

    def starts_with(self, arguments: int, opens: tuple[str, ...]) -> None:
        """The call starts with its arguments, which begin with one of these: not before, so all that comes before them
        is a beginning, too."""
        begins = self._begins
        self.arguments, self.opens = arguments, opens
        self._begins = Answers(lambda text: begins[text] or self._is_head(text))

    def _is_head(self, text: str) -> bool:
        head = self._head(text, 0)
        return head is not None and head.end() == len(text)

    def _compile(self, text: str, at: int) -> re.Match[str] | None:
        """Puts the patterns in their places, with the first call: `import unbraid` stays fast."""
        begin, before, tail = self._patterns
        head = re.compile(begin + before)
        self._name, self._id = head.groupindex["name"], head.groupindex.get("id", 0)
        self._head, self._tail = head.match, re.compile(tail).match
        if self.arguments:
            follow = rf"{SPACE}(?=[{re.escape(''.join(self.opens))}])" if self.opens else r"(?=[\s\S])"
            self._begin = re.compile(begin if self.settled else begin + follow).match
        return self._head(text, at)

    def wait(self, machine: Machine, text: str) -> list[Event] | None:
        """The fast path where this step waits."""
        rest = machine.buffer[machine.position :] + text
        if len(rest) > machine.limits.name:
            return None
        return machine.hold(rest) if self._begins[rest] else self._pass_begin(machine, rest)

    def _pass_begin(self, machine: Machine, rest: str) -> list[Event] | None:
        """The fast path where the call begins, and not all of it has come."""
        opening, frame = self._openings[rest], machine.calls
        if opening is None or not machine.in_short or self._has_begun(machine):
            return None
        assert isinstance(frame, CallsFrame)
        if frame.rule.echo or not self._may_begin(machine, frame.markers, rest, *opening[:4]):
            return None
        before = machine.buffer, machine.position
        machine.buffer, machine.position = rest, 0
        if not machine.take_begun(*opening):
            machine.buffer, machine.position = before
            return None
        frame.at, machine.running = self.arguments, frame
        frame.rule.steps[frame.at].run(machine, frame)
        return machine.go_on()

    def _opening(self, text: str) -> tuple[str, str, int, int, int] | None:
        """The call that a text begins, where it goes up to the arguments: its name, its id, where in the text the name
        begins and ends, and where that beginning ends."""
        head = self._head(text, 0)
        opening = None if head is None or self._begin is None else self._begin(text, 0)
        if head is None or opening is None or text.find("}", head.end()) >= 0:
            return None
        return (*self._said(head), *head.span(self._name), opening.end())

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        buffer, start = machine.buffer, machine.position
        head = self._head(buffer, start)
        if head is None and not machine.at_end:
            rest = buffer[start : start + machine.limits.name]
            if len(buffer) - start <= machine.limits.name and (not rest or self._begins[rest]):
                return False
        frame.at += 1
        call, markers = machine.call, frame.markers
        if head is None or self._has_begun(machine) or not machine.in_short:
            return True
        named = self._named(machine, markers, head)
        if named is None:
            return True
        name, id = named
        whole = self._whole(machine, markers, head, name)
        if whole is not None:
            machine.take_call(name, id, *whole)
            call.held, call.accepted, call.has_arguments, call.complete = [], True, True, True
            machine.reading_call = False
            frame.accepted = True
            frame.at = self.next
        elif self._begin is not None and (opening := self._begin(buffer, start)) is not None:
            name_at, name_end = head.span(self._name)
            if frame.echo or not machine.take_begun(name, id, name_at, name_end, opening.end()):
                call.name, call.id = name, id
                machine.take(name_at - start, MARKUP)
                machine.take(name_end - name_at, NAME)
                machine.take(opening.end() - name_end, MARKUP)
            frame.at = self.arguments
        elif self.opens and head.end() == len(buffer) <= start + machine.limits.name and not machine.at_end:
            frame.at -= 1
            return False
        return True

    @staticmethod
    def _has_begun(machine: Machine) -> bool:
        call = machine.call
        return bool(call.name or call.id or call.accepted or call.rejected or not machine.reading_call)

    def read(self, machine: Machine, markers: Markers, at: int) -> tuple[str, str, Places, str] | None:
        """The call that begins at a position, if all of it has come: its name, its id, its places and its arguments.
        Nothing is taken."""
        head = self._head(machine.buffer, at)
        named = None if head is None else self._named(machine, markers, head)
        if head is None or named is None:
            return None
        whole = self._whole(machine, markers, head, named[0])
        return None if whole is None else (*named, *whole)

    def _named(self, machine: Machine, markers: Markers, head: re.Match[str]) -> tuple[str, str] | None:
        """The name of the call, and its id; None where a call of these is unusual."""
        named = self._said(head)
        return named if self._may_begin(machine, markers, machine.buffer, *named, *head.span(self._name)) else None

    def _said(self, head: re.Match[str]) -> tuple[str, str]:
        """The name and the id."""
        return head[self._name], (head[self._id] or "") if self._id else ""

    @staticmethod
    def _may_begin(machine: Machine, markers: Markers, text: str, name: str, id: str, begin: int, end: int) -> bool:
        """Whether a call of that name and id, of which the name stands there, is as most are."""
        return machine.can_begin(name, id) and not (markers.in_words and markers.find(text, begin, end))

    def _whole(self, machine: Machine, markers: Markers, head: re.Match[str], name: str) -> tuple[Places, str] | None:
        """The places of the call and its arguments, if these have come as most do, and what comes after them."""
        start, at = head.span()
        if len(machine.buffer) - start > LONGEST:
            return None
        arguments = self._arguments(machine, markers, at, name)
        tail = None if arguments is None else self._tail(machine.buffer, arguments[1])
        if arguments is None or tail is None:
            return None
        return (*head.span(self._name), at, arguments[1], tail.end()), arguments[0]
