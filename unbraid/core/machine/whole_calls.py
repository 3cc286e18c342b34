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
from .machine import Machine
from .markers import Beginnings, Pieces
from .output import MARKUP, NAME

SPACE = r"\s{0,4}+"
"""Whitespace where it says nothing: no more than any limit allows."""
LONGEST = 4096
"""Longer calls are worth their steps: those cost little by the character."""

Match = Callable[[str, int], re.Match[str] | None]
ReadArguments = Callable[[Machine, str, int, str], tuple[str, int] | None]
"""Reads the arguments of a call to a tool that stand at a position of the buffer: their JSON, and where they end. None
where they are unusual."""


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

    __slots__ = ("_arguments", "_begin", "_begins", "_head", "_id", "_name", "_patterns", "_tail", "arguments", "next")

    def __init__(self, begin: str, begins: Pieces, arguments: WholeArguments, tail: str) -> None:
        """begin: a pattern for what comes before the notation, with the groups `name` and `id` where they stand there;
        empty if that can be told from other ways to go on only by what follows. begins: the same in pieces, up to the
        name at least. tail: a pattern for what comes after the notation."""
        self._patterns = begin, arguments.before, arguments.after + tail
        self._begins = Beginnings((*begins, *arguments.begins))
        self._arguments = arguments.read
        self._begin: Match | None = None
        self._head: Match = self._compile
        self._tail: Match = self._compile
        self._name, self._id = 0, 0
        """The numbers of the groups."""
        self.arguments, self.next = 0, 0
        """The step of the notation, and the one after the call."""

    def _compile(self, text: str, at: int) -> re.Match[str] | None:
        """Puts the patterns in their places, with the first call: `import unbraid` stays fast."""
        begin, before, tail = self._patterns
        head = re.compile(begin + before)
        self._name, self._id = head.groupindex["name"], head.groupindex.get("id", 0)
        self._head, self._tail = head.match, re.compile(tail).match
        if self.arguments:
            self._begin = re.compile(rf"{begin}(?=[\s\S])").match
        return self._head(text, at)

    def wait(self, machine: Machine, text: str) -> list[Event] | None:
        """The fast path where this step waits."""
        rest = machine.buffer[machine.position :] + text
        return machine.hold(rest) if len(rest) <= machine.limits.name and rest in self._begins else None

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        buffer, start = machine.buffer, machine.position
        head = self._head(buffer, start)
        if head is None and not machine.at_end:
            rest = buffer[start : start + machine.limits.name]
            if len(buffer) - start <= machine.limits.name and (not rest or rest in self._begins):
                return False
        frame.at += 1
        if head is None or not machine.in_short:
            return True
        name_at, name_end = head.span(self._name)
        name, id = buffer[name_at:name_end], (head[self._id] or "") if self._id else ""
        if not machine.can_begin(name, id):
            return True
        markers = frame.markers
        if markers.in_words and markers.find(buffer, name_at, name_end) is not None:
            return True
        at = head.end()
        arguments = self._arguments(machine, buffer, at, name) if len(buffer) - start <= LONGEST else None
        tail = None if arguments is None else self._tail(buffer, arguments[1])
        if arguments is not None and tail is not None:
            machine.take_call(name, id, (name_at, name_end, at, arguments[1], tail.end()), arguments[0])
            frame.accepted = True
            frame.at = self.next
        elif self._begin is not None and (begun := self._begin(buffer, start)) is not None:
            machine.call.name, machine.call.id = name, id
            machine.take(name_at - start, MARKUP)
            machine.take(name_end - name_at, NAME)
            machine.take(begun.end() - name_end, MARKUP)
            frame.at = self.arguments
        return True
