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

from .calls import CallsFrame
from .machine import Machine

SPACE = r"\s{0,4}+"
"""Whitespace where it says nothing: no more than any limit allows."""
LONGEST = 4096
"""Longer calls are worth their steps: those cost little by the character."""

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


class WholeCall:
    """The step that reads a call at once, if all of it has come."""

    __slots__ = ("_arguments", "_head", "_id", "_name", "_patterns", "_tail", "next")

    def __init__(self, head: str, arguments: ReadArguments, tail: str) -> None:
        """head: a pattern for what comes before the arguments, with the group `name`, and `id` where there is one.
        tail: for what comes after them."""
        self._patterns = head, tail
        self._arguments = arguments
        self._head: Callable[[str, int], re.Match[str] | None] = self._compile
        self._tail: Callable[[str, int], re.Match[str] | None] = self._compile
        self._name, self._id = 0, 0
        """The numbers of the groups."""
        self.next = 0
        """The step after the call."""

    def _compile(self, text: str, at: int) -> re.Match[str] | None:
        """Puts the patterns in their places, with the first call: `import unbraid` stays fast."""
        head, tail = map(re.compile, self._patterns)
        self._name, self._id = head.groupindex["name"], head.groupindex.get("id", 0)
        self._head, self._tail = head.match, tail.match
        return self._head(text, at)

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        frame.at += 1
        buffer, start = machine.buffer, machine.position
        head = self._head(buffer, start)
        if head is None or machine.show_markup or machine.tally is not None or machine.gaps:
            return True
        name_at, name_end = head.span(self._name)
        name, id = buffer[name_at:name_end], (head[self._id] or "") if self._id else ""
        if not machine.can_begin(name, id) or len(buffer) - start > LONGEST:
            return True
        markers = frame.markers
        if markers.in_words and markers.find(buffer, name_at, name_end) is not None:
            return True
        at = head.end()
        arguments = self._arguments(machine, buffer, at, name)
        tail = None if arguments is None else self._tail(buffer, arguments[1])
        if arguments is None or tail is None:
            return True
        machine.take_call(name, id, (name_at, name_end, at, arguments[1], tail.end()), arguments[0])
        frame.accepted = True
        frame.at = self.next
        return True
