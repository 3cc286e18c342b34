"""Where a value between tags ends: law 14 (docs/laws.md#law-14).

A value ends at its own closing. Models forget that, and write what comes next: the tag of a further argument, or the
closing of something further out. A value may quote both. So either ends the value only where what follows shows that it
does:

- the tag of the next argument in the tool's schema, at the beginning of a line where templates write it there;
- closings in a row, up to the end of the turn or to the name of a tool in a further call.

Anything else is text of the value. Until the two can be told apart, the marker waits. The parser looks for what follows
(`ValueRule`), the constraint forbids it in values, and the renderer refuses it. `call_tail` says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import grammar
from ..machine.machine import Machine
from ..machine.markers import LONGEST_GAP, NOT_YET, Beginnings, Marker, Markers, NotYet, after_words
from .base import Closing, ObjectWriter


@dataclass(slots=True, eq=False, repr=False)
class NextArgument:
    """The opening tag of a further argument, as templates write it."""

    marker: Marker
    """The tag up to the key. Its lead is the line break that templates write before it."""
    after: str
    """The first word after the key."""
    encoded_key: Callable[[str], str]

    def comes(self, machine: Machine, at: int, keys: ObjectWriter) -> bool | NotYet:
        """Whether the key of the next argument comes at a position."""
        key = next_argument(machine.parameters(), keys.latest)
        return key is not None and key not in keys and _comes(machine, at, [self.encoded_key(key) + self.after])


@dataclass(slots=True, eq=False, repr=False)
class ValueRule:
    """The markers around a value."""

    close: Marker
    ends: Markers
    """Every marker that may end the value: its own closing, the next tag, the closings of the call."""
    watched: Markers
    """`ends`, plus the markers that mean something in its text."""
    next: NextArgument | None = None
    tail: tuple[Closing, ...] = ()
    """What closes the call after its arguments, innermost first, as keys."""
    closings: Beginnings = field(init=False)
    """The closing as templates write it, with the whitespace before it and without."""

    def __post_init__(self) -> None:
        self.closings = Beginnings((), (self.close.lead + self.close.key, self.close.key))

    def missing_at(self, machine: Machine, match: re.Match[str], keys: ObjectWriter) -> int | NotYet | None:
        """How many closings are missing if the value ends at a marker, 0 at its own. None where the marker is text."""
        marker = self.watched.which(match)
        if marker is self.close or marker.role != "end":
            return 0
        spelled = match.group()
        at = match.end() - len(spelled.lstrip())
        if self.next is not None and marker.key == self.next.marker.key:
            if not spelled.startswith(self.next.marker.lead):
                return None
            comes = self.next.comes(machine, match.end(), keys)
            return NOT_YET if comes is NOT_YET else 1 if comes else None
        return self.missing_in_tail(machine, at)

    def missing_before(self, match: re.Match[str]) -> int:
        """How many closings are missing where a value that holds no text ends at a marker."""
        key = self.watched.which(match).key
        if key == self.close.key:
            return 0
        first = next((number for number, closing in enumerate(self.tail) if closing.text == key), 0)
        return 1 + self.needed(0, first)

    def missing_in_tail(self, machine: Machine, at: int) -> int | NotYet | None:
        """The same for a closing of the tail at a position."""
        buffer = machine.buffer
        first = next((n for n, closing in enumerate(self.tail) if buffer.startswith(closing.text, at)), None)
        if first is None:
            return NOT_YET if _comes(machine, at, [closing.text for closing in self.tail]) is NOT_YET else None
        missing, number, undecided = 1 + self.needed(0, first), first, False
        while True:
            closing = self.tail[number]
            comes = _comes(machine, at, [closing.further] if closing.further else [])
            if comes:
                comes = _comes(machine, at, closing.calls(machine.tools or ()))
            if comes:
                return missing
            undecided = undecided or comes is NOT_YET
            end = at + len(closing.text)
            after, following = self._next_closing(buffer, number, end)
            if after is NOT_YET and buffer[end:].strip():
                return NOT_YET
            if not isinstance(after, int):
                break
            missing += self.needed(number + 1, following)
            at, number = after - len(self.tail[following].text), following
        rest = buffer[end:]
        if rest.strip() or len(rest) > LONGEST_GAP:
            return NOT_YET if undecided else None
        return missing + self.needed(number + 1) if machine.at_end and machine.turn_over else NOT_YET

    def miss(self, machine: Machine, closings: int) -> None:
        """So many closings are missing. One may be forgotten; a call that lacks more of them is not complete."""
        if closings > 1:
            machine.call.flawed = True

    def needed(self, first: int = 0, last: int | None = None) -> int:
        """How many closings of a part of the tail must come."""
        return sum(closing.needed for closing in self.tail[first:last])

    def _next_closing(self, buffer: str, number: int, at: int) -> tuple[int | NotYet | None, int]:
        """The position after the nearest closing of the tail that comes next, and which one it is."""
        answer: int | NotYet | None = None
        for following in range(number + 1, len(self.tail)):
            after = after_words(buffer, at, (self.tail[following].text,), LONGEST_GAP)
            if isinstance(after, int):
                return after, following
            if after is NOT_YET:
                answer = NOT_YET
        return answer, number


def _comes(machine: Machine, at: int, texts: list[str]) -> bool | NotYet:
    """Whether one of these texts comes at a position."""
    buffer = machine.buffer
    if any(buffer.startswith(text, at) for text in texts):
        return True
    rest = buffer[at : at + max(map(len, texts), default=0)]
    return NOT_YET if not machine.at_end and any(text.startswith(rest) for text in texts) else False


# --- What comes after a value ---------------------------------------------------------------------------------------


def next_argument(parameters: Mapping[str, Any], key: str | None) -> str | None:
    """The argument that a tool's schema lists next after one."""
    keys = list(parameters.get("properties", ()))
    return keys[keys.index(key) + 1] if key in keys[:-1] else None


def call_tail(
    calls: grammar.Calls, call: grammar.Call, of: grammar.CallList | None, ends: tuple[str, ...] = ()
) -> tuple[Closing, ...]:
    """The closings of a call after its arguments, innermost first. `of` is the list that it stands in. `ends` are
    closings that end the turn as well."""
    at = next((at for at, part in enumerate(call.parts) if isinstance(part, grammar.Notation)), len(call.parts))
    own = [part for part in call.parts[at + 1 :] if isinstance(part, str | grammar.Maybe)]
    pieces = [(part, True) if isinstance(part, str) else (part.marker, part.due) for part in own]
    last = len(pieces) - 1
    if of is not None and of.close.strip():
        pieces.append((of.close, True))
    if calls.close:
        pieces.append((calls.close, calls.close_written))
    # In a list the next call comes right after a call. Otherwise what opens calls comes once more.
    between = of.separator if of is not None else calls.open
    ends_call = {last} if of is not None else {*range(len(pieces))} - {*range(_last_needed(pieces))}
    closings = []
    for number, (text, needed) in enumerate(pieces):
        further = ""
        if number in ends_call and (of is not None or calls.open):
            further = _joined(text, between, *_up_to_name(call))
        after_name = _after_name(call, pieces[0][0].strip())
        closings.append(Closing(text.strip(), needed and text.strip() not in ends, further, after_name))
    return tuple(closings)


def _last_needed(pieces: list[tuple[str, bool]]) -> int:
    """Which closing is the last that must come; 0 where none must."""
    return max((number for number, (_, needed) in enumerate(pieces) if needed), default=0)


def _after_name(call: grammar.Call, close: str) -> tuple[str, ...]:
    """What may come after the name of a call: the next literal, or an argument or `close`."""
    names = [at for at, part in enumerate(call.parts) if isinstance(part, grammar.Name | grammar.NameInId)]
    for part in call.parts[names[0] + 1 :] if names else ():
        if isinstance(part, grammar.Notation):
            return (part.first_word, close)
        if isinstance(part, str):
            return (part.strip() or part,)
        if isinstance(part, grammar.Maybe) and part.due:
            return (part.marker.strip(),)
    return ("",)


def _up_to_name(call: grammar.Call) -> Iterable[str]:
    """The literals of a call before its name."""
    for part in call.parts:
        if isinstance(part, grammar.Maybe) and part.due:
            yield part.marker
        elif isinstance(part, str):
            yield part
        elif not isinstance(part, grammar.Maybe):
            return


def _joined(*pieces: str) -> str:
    """The pieces as the renderer writes them: after whitespace, without the whitespace that a piece begins with."""
    text = ""
    for piece in pieces:
        text += piece.lstrip() if text[-1:].isspace() else piece
    return text.strip()
