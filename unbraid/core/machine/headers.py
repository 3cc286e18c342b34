"""Headers: output that is a sequence of messages, each with a header that says what the message is.

Models write headers in many ways, and get them wrong in more. So a header is held until it ends, and then told by three
patterns: calls, reasoning or content follow. What cannot be a header is text. The prompt may have begun one.

The format's `reasoning`, `answer` and `tools` say how a header is written, its patterns how it is recognised. These are
two descriptions of one thing; `unbraid.register` and the laws check that they agree.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Self

from .. import diagnostics
from ..events import Event
from ..fast_import import lazily
from . import prose
from .machine import START, FastPath, Frame, Machine, State
from .markers import LONGEST_KNOWN, MOST_KNOWN, Markers, is_control
from .output import MARKUP, TEXT
from .scopes import back_to_content, enter, innermost

_words = lazily(lambda: re.compile(r"<[^<>\s]*>?|[^<\s]+").findall)
CONTENT, REASONING, CALLS, NOTHING = "content", "reasoning", "calls", ""


@dataclass(slots=True, eq=False, repr=False)
class HeaderRule:
    """How headers are recognised."""

    opens: tuple[str, ...]
    """What a header begins with, as it is looked for."""
    closes: tuple[str, ...]
    """What a header ends with."""
    ends: tuple[str, ...]
    """What ends the message."""
    breaks: Markers
    """`ends` plus every opener that needs no header. One of these inside a header means: not a header."""
    inside: re.Pattern[str]
    """What may stand between `opens` and `closes`."""
    begins: tuple[str, ...]
    """What the rest of a header may begin with, where the prompt has just begun it; () for anything."""
    fresh: tuple[str, ...]
    """How a prompt looks that has just begun a header."""
    strands: Sequence[tuple[str, re.Pattern[str]]]
    """Which strand follows, by the first pattern that is found."""
    answers_end: bool
    """Whether a message with an answer has an end of its own. Then no header stands inside it."""
    names_calls: bool
    """Whether the function's name stands in the header, and not in the message."""
    words: tuple[str, ...]
    """The words and tags of the headers that the format writes."""
    begun: set[tuple[str, str]] = field(default_factory=set)
    """Beginnings of headers that came and were waited with: what the prompt wrote of one, and what came of it as text.
    Headers are much alike, so they are kept, up to a number."""

    def frame(self, before: str = "") -> Frame:
        """The state inside a header, of which the prompt has written `before`."""
        return HeaderFrame(self, before)

    def close_at(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """Where the nearest close begins and ends."""
        spans = [(at, at + len(close)) for close in self.closes if (at := text.find(close, start, end)) >= 0]
        return min(spans, default=None)

    def close_begun(self, text: str) -> int:
        """How many characters at the end of a text may begin a close."""
        sizes = (size for close in self.closes for size in range(len(close) - 1, 0, -1) if text.endswith(close[:size]))
        return max(sizes, default=0)

    def is_begun(self, text: str) -> bool:
        """Whether text with a marker in it begins a header that the format writes, or one that says to whom it goes."""
        said = 0
        for word in _words(text):
            if word[-1] == ">" or (said < 3 and ("=" in word or said)):
                said += word[-1] != ">"  # to whom it goes, and two words on what it is
            elif not any(one.startswith(word) for one in self.words):
                return False
        return bool(is_control(text))

    def strand(self, header: str) -> tuple[str, re.Match[str] | None]:
        for strand, pattern in self.strands:
            if match := pattern.search(header):
                return strand, match
        return NOTHING, None


class HeaderFrame(Frame):
    """Inside a header. Nothing of it goes out before it is whole: until then it may be text."""

    kind = "header"
    opened_by = (START, "scope")
    about = State(
        reads="the header of a message: whose turn, which channel, to whom",
        ends="one of the format's ends of a header; then what it announces begins",
        malformed="its first character is text, and another header may begin after it",
    )
    saved = ("before",)
    __slots__ = ("before", "rule")

    def __init__(self, rule: HeaderRule, before: str = "") -> None:
        self.rule = rule
        self.before = before
        """What the prompt has written of it."""

    def anew(self) -> HeaderFrame:
        """The same at the start of another response."""
        return HeaderFrame(self.rule, self.before)

    def step(self, machine: Machine) -> bool:
        rule, buffer, start = self.rule, machine.buffer, machine.position
        # Longer than this it is none, however much of the output is there: many headers in one piece cost no more.
        limit = min(len(buffer), start + 2 * machine.limits.name)
        # The prompt may have written all of it.
        complete = self.before.endswith(tuple(map(machine.spell, rule.closes)))
        close = (start, start) if complete else rule.close_at(buffer, start, limit)
        rest = buffer[start : limit if close is None else close[0]]
        too_long = close is None and limit < len(buffer)
        broken = rule.breaks.find(rest, 0) is not None or self._is_none(rest, buffer[start:limit])
        if too_long or (broken and not complete):
            self._give_up(machine, "a header that does not end")
            return True
        if close is None:
            if not machine.at_end:
                if not machine.spellings and len(rest) < LONGEST_KNOWN and len(rule.begun) < MOST_KNOWN:
                    rule.begun.add((self.before, rest))
                return False
            if self._is_cut_off(machine, rest):
                machine.report(diagnostics.MALFORMED_HEADER, "the output ends inside a header")
                machine.pop()
                machine.take(len(rest), MARKUP)
            else:
                self._give_up(machine, "the output ends inside a header")
            return True
        begin, end = close
        if begin == start and not self.before:
            # What it begins with was taken for text. Another close right after it may tell what it was.
            follows = buffer[end:limit]
            again = next((end + len(close) for close in rule.closes if follows.startswith(close)), None)
            if again is None and not machine.at_end and any(close.startswith(follows) for close in rule.closes):
                return False
            if again is None and innermost(machine).strand == CONTENT and self._is_named(machine, buffer[start:end]):
                if end == len(buffer) and not machine.at_end:
                    return False
                self._name_or_cut_off(machine, end)
                return True
            if again is not None and rule.strand(machine.spell(buffer[start:again]))[0] != NOTHING:
                end = again
        header = self.before + machine.spell(buffer[start:end])
        strand, match = rule.strand(header)
        if strand == NOTHING:
            self._give_up(machine, f"a header that says nothing known: {header[:80]!r}")
            return True
        machine.pop()
        back_to_content(machine)
        machine.awaits_end = False
        machine.in_message, machine.names_headers = strand == CONTENT and rule.answers_end, strand != CALLS
        machine.answer_ends()
        if strand == CALLS and strand not in innermost(machine).rule.calls:
            # Nobody reads calls here: the message is content, and its header says to whom it goes.
            machine.report(diagnostics.MALFORMED_HEADER, "a tool call, and this format has no tools: kept as text")
            machine.take(end - start, TEXT)
            return True
        if strand == REASONING:
            machine.take_marker(end - start, strand, "")
        _begin_message(machine, strand)
        if strand == CALLS and rule.names_calls and match is not None and "name" in match.re.groupindex:
            self._take_named(machine, match, end - start)
        elif strand != REASONING and end > start:
            machine.take(end - start, MARKUP)
        return True

    def held_path(self, machine: Machine) -> FastPath | None:
        return self._wait

    def _wait(self, machine: Machine, text: str) -> list[Event] | None:
        rest = machine.buffer[machine.position :] + text
        begun = len(rest) <= 2 * machine.limits.name and (self.before, rest) in self.rule.begun
        return machine.hold(rest) if begun else None

    def _is_none(self, rest: str, text: str) -> bool:
        """Whether `rest` cannot be the rest of a header, by the patterns of the rule."""
        rule = self.rule
        opened = next((len(open) for open in rule.opens if not self.before and rest.startswith(open)), 0)
        closing = rule.close_begun(rest) if rest == text else 0
        if not rule.inside.fullmatch(rest, opened, max(opened, len(rest) - closing)):
            return True
        if rest.find(rule.opens[0], 1) > 0:
            return True  # there the next one begins
        begun = text.lstrip()
        if not self.before or self.before not in rule.fresh or not rule.begins or not begun:
            return False
        return not any(word.startswith(begun[: len(word)]) for word in rule.begins)

    def _name_or_cut_off(self, machine: Machine, end: int) -> None:
        """What ends a header stands alone in an answer, up to there. It is a name, unless the output breaks off."""
        if (
            machine.cut_off
            and end == len(machine.buffer)
            and self._is_cut_off(machine, machine.buffer[machine.position :])
        ):
            machine.report(diagnostics.MALFORMED_HEADER, "the output ends after the end of a header")
            machine.pop()
            machine.take(end - machine.position, MARKUP)
        else:
            self._give_up(machine, "the end of a header in an answer")

    def _is_cut_off(self, machine: Machine, rest: str) -> bool:
        """Whether a header is what the output ends in, and not text that names the beginning of one."""
        may_be_named = not self.before and (machine.turn_over or machine.prose_state & prose.QUOTED)
        if may_be_named and self._is_named(machine, rest):
            return False
        return self.rule.is_begun(machine.spell(rest)) or (machine.cut_off and self._names_tool(machine, rest))

    def _is_named(self, machine: Machine, rest: str) -> bool:
        """Whether text names what a header begins with. A token is named in code alone, and so is the rest of a header
        that broke off."""
        key = next((key for key in self.rule.opens + self.rule.closes if rest.startswith(key)), "")
        state = machine.prose_state
        in_code = not machine.names_headers or not state & prose.BEGUN or machine.spell(key) != key
        return bool(state & (prose.QUOTED if in_code else prose.QUOTED | prose.IN_LINE))

    def _names_tool(self, machine: Machine, rest: str) -> bool:
        """Whether a header that is cut off, and that text may look like, begins to name a tool, or could."""
        if self.before or not self.rule.names_calls or machine.prose_state & prose.QUOTED:
            return False
        if is_control(machine.spell(rest)):
            return False
        name = rest[next((len(open) for open in self.rule.opens if rest.startswith(open)), 0) :]
        return not name or machine.tools is None or any(tool.startswith(name) for tool in machine.tools)

    def _give_up(self, machine: Machine, problem: str) -> None:
        """The header is text, and another one may begin in it."""
        buffer, start = machine.buffer, machine.position
        if start < len(buffer) and (not self.before or machine.at_end):
            machine.report(diagnostics.MALFORMED_HEADER, problem)
        machine.pop()
        if not self.before and buffer.startswith(self.rule.opens + self.rule.closes, start):
            key = next(key for key in self.rule.opens + self.rule.closes if buffer.startswith(key, start))
            if is_control(machine.spell(key)) and not self._is_named(machine, key):
                machine.in_message = machine.names_headers = False
                machine.take(len(key), MARKUP)
            else:
                # One character is enough for the marker to be none, and the next may begin a header: `>>>>name`.
                machine.take(1, TEXT)

    def _take_named(self, machine: Machine, match: re.Match[str], size: int) -> None:
        """Take the header of a call, with the call's name in it. The part that stands in the prompt cannot be taken."""
        header = machine.buffer[machine.position : machine.position + size]
        if machine.spellings:
            # A character of the buffer may stand for several of the header.
            ends = list(accumulate((len(machine.spell(char)) for char in header), initial=len(self.before)))
            begin, end = (bisect_left(ends, max(at, ends[0])) for at in match.span("name"))
        else:
            begin, end = (max(at - len(self.before), 0) for at in match.span("name"))
        machine.call.name = match.group("name")
        machine.call.announced = bool(is_control(machine.spell(header)))
        if begin:
            machine.take(begin, MARKUP)
        machine.take_name(end - begin)
        if size > end:
            machine.take(size - end, MARKUP)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        rule = innermost(machine).rule.header
        assert isinstance(rule, HeaderRule)
        return cls(rule)


def _begin_message(machine: Machine, strand: str) -> None:
    """A header says what comes."""
    content = innermost(machine).rule
    if strand in content.calls:
        machine.push(content.calls[strand].frame())
        machine.begin_call()
        machine.call.may_be_named = machine.call.in_code = False
    elif strand in content.inner:
        enter(machine, content.inner[strand])
