"""Text and the markers in it: the frames for content, reasoning and speech, and for citations in them.

A scope is a stretch of text in one strand. Its rule says which markers mean something there: the openers of what is not
open yet, and the closers of what is. The nearest marker decides. So nesting needs no order, an inner scope that was
never closed ends with the outer one, and the stack cannot grow without bound. All other closers close nothing, and are
reported. They are markup where nothing else is spelled like them (`<channel|>`), and text where an answer may well have
them (`</think>`).

An answer may name a marker, too. Whether it does, the text before it tells (`Marker.counts`, `prose.py`): a marker that
does not count there is text, and nothing is held back for it.

A scope does not know what calls and headers are. Its rule holds something that makes their frame (`Opens`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from .. import diagnostics
from ..events import Event
from . import prose
from .machine import START, FastPath, Frame, Machine, State
from .markers import (
    LONGEST_KNOWN,
    MOST_KNOWN,
    NOT_YET,
    Answers,
    Counts,
    Marker,
    Markers,
    NotYet,
    find_token,
    is_control,
    space_end,
)
from .output import KEPT, MARKUP, TEXT

CITED = "cited"
"""The strand of tags that name no source."""


class Opens(Protocol):
    """What a marker can open besides another scope."""

    def frame(self) -> Frame: ...


class OpensCalls(Opens, Protocol):
    """The rule of calls, as a scope sees it."""

    @property
    def bare(self) -> bool:
        """Whether the marker is the beginning of the first call, and not markup."""

    def take_whole(self, machine: Machine, size: int) -> bool:
        """Take all up to where the calls are closed, if it has come; the marker has this size."""


@dataclass(slots=True, eq=False, repr=False)
class CitationRule:
    """How tags are written that say where a piece of text comes from: `<co: 0,1>warm</co: 0,1>`."""

    opens: tuple[str, ...]
    close: str
    inside: re.Pattern[str]

    def frame(self) -> Frame:
        return CitationFrame(self)


@dataclass(slots=True, eq=False, repr=False)
class ScopeRule:
    """A stretch of text in one strand, inside certain others, and the markers that mean something there."""

    strand: str
    markers: Markers
    strays: Markers
    """Closers that close nothing here, and openers that may be names, or of calls where calls are text. They are only
    watched for."""
    all_markers: Markers
    """`markers` and `strays` together."""
    opens: tuple[Marker, ...]
    closes: tuple[Marker, ...]
    leading: Markers
    """Markers that mean nothing at the very start: the opening marker once more, after a prompt that ends with it; in
    the content, the closing marker of a reasoning that nobody opened."""
    close_required: bool
    """Whether the output should not end without a closer."""
    inner: Mapping[str, ScopeRule]
    """The scopes that can open in this one, by strand."""
    calls: Mapping[str, OpensCalls]
    """Call rules, by strand."""
    header: Opens | None
    """The header rule, if the format has headers."""
    call_end: str
    """The key of the marker that ends messages with calls and no others, or ""."""
    citation: CitationRule | None
    """The rule for citations, if the format has them."""
    closes_of: Mapping[str, str]
    """What closes a strand that is named here."""
    some: dict[frozenset[Counts], Markers] = field(default_factory=dict)
    """The markers that count in certain places, as they are needed."""
    follow: Markers | None = None
    """`following`, once it is needed."""
    alone: Answers[Marker | None] = field(init=False)
    """The one of `markers` that a text is, with the whitespace before it."""
    held: dict[tuple[str, int, bool, bool], Markers | None] = field(default_factory=dict)
    """What `ScopeFrame._waits_after` has said, up to a number: text ends much alike."""

    def __post_init__(self) -> None:
        self.alone = Answers(self.markers.alone)

    def counting(self, places: frozenset[Counts]) -> Markers:
        """The markers that count in these places."""
        markers = self.some.get(places)
        if markers is None:
            markers = self.some[places] = self.markers.only(lambda marker: marker.counts in places)
        return markers

    def following(self) -> Markers:
        """The markers that follow what has ended: they open something, or end the turn."""
        if self.follow is None:
            self.follow = self.markers.only(self._follows)
        return self.follow

    def _follows(self, marker: Marker) -> bool:
        if marker.role == "open":
            return marker.strand not in self.calls or not self.calls[marker.strand].bare
        return marker.role == "end" and marker.counts == "always" and marker.strand != CITED


class ScopeFrame(Frame):
    """Text of one strand, up to the nearest marker."""

    kind = "scope"
    opened_by = (START, "scope", "header")
    about = State(
        reads="text of one strand: content, reasoning or speech",
        ends="its closing marker, the closer of a scope around it, a header, or the end of the output",
        malformed="a closer of something that is not open is reported; it is text, or markup if it is a token",
    )
    saved = ("strand", "tail", "orphan_closer", "orphan_of_call")
    __slots__ = ("in_plain_line", "orphan_closer", "orphan_of_call", "rule", "strand", "tail", "waits")

    def __init__(self, rule: ScopeRule) -> None:
        self.rule = rule
        self.strand = rule.strand
        self.in_plain_line = False
        """Whether text without line breaks and backticks does not change where the next stands. For the fast path."""
        self.waits: Markers | None = None
        """The markers that text was last held back for."""
        self.tail = ""
        """The end of the text so far, as far as it may begin a stray closer."""
        self.orphan_closer = ""
        """The closer of a call that was no call, or of what was only named: text as well, and no surprise."""
        self.orphan_of_call = False
        """Whether it is that of a call."""

    def anew(self) -> ScopeFrame:
        """The same at the start of another response."""
        return ScopeFrame(self.rule)

    def entered(self, machine: Machine) -> None:
        machine.open_strand(self.strand)

    def left(self, machine: Machine) -> None:
        machine.close_strand()

    def step(self, machine: Machine) -> bool:
        rule, buffer, start = self.rule, machine.buffer, machine.position
        markers, self.waits = rule.markers, None
        size = len(buffer)
        match = markers.find(buffer, start) if start < size else None
        end = match.start() if match is not None else markers.safe_end(buffer, start) if start < size else size
        if end > start:
            self._take_text(machine, end)
        if end == size:
            if not machine.at_end or len(machine.stack) == 1:
                return False
            pop_unclosed(machine)
            return True
        if match is None:
            return self._maybe_named(machine, None, None)
        marker, state = markers.which(match), machine.prose[machine.place]
        counts = marker.counts
        in_code = state & prose.MAY_QUOTE
        if counts == "always" or (counts == "unquoted" and not in_code) or (not state and counts in _FRESH):
            self._on_marker(machine, marker, match.end() - end)
            return True
        return self._maybe_named(machine, match, marker)

    def _maybe_named(self, machine: Machine, match: re.Match[str] | None, marker: Marker | None) -> bool:
        """A marker comes, or the beginning of one. It may be a name that an answer says: then its first character is
        text, and a marker may begin with the next."""
        rule, buffer, start = self.rule, machine.buffer, machine.position
        after_name = bool(self.orphan_closer)
        if match is not None and marker is not None:
            here = places(machine, after_name)
            if marker.counts not in here and marker.counts in (unclosed := places(machine, after_name, unclosed=True)):
                closes = _span_closes(machine, match.end())
                if closes is NOT_YET and not machine.at_end:
                    return False
                here = here if closes else unclosed
            outside = "outside code" in here
            at_end = marker.counts in _AT_THE_END and (outside or marker.counts != "at the end")
            counts = marker.counts in here or (at_end and self._is_last(machine, match.end(), outside))
            if counts is NOT_YET and not machine.at_end:
                return False
            if counts:
                self._on_marker(machine, marker, match.end() - start)
            elif outside and marker.counts == "not later":
                return self._on_noise(machine, marker)
            else:
                self._take_text(machine, space_end(buffer, start) + 1)
            return True
        counting = rule.counting(places(machine, after_name, unclosed=True) | _AWAITED)
        bracket = counting.at(buffer, start)  # that no other marker begins with, here
        if bracket and counting.which(bracket).counts not in places(machine, after_name):
            bracket = None if _span_closes(machine, bracket.end()) is not False else bracket
        if bracket:
            self._on_marker(machine, counting.which(bracket), bracket.end() - start)
        elif machine.at_end:
            self._cut_off(machine)
        elif (end := counting.safe_end(buffer, start)) > start:
            self._take_text(machine, end)
        else:
            self.waits = counting
            return False
        return True

    def _on_noise(self, machine: Machine, marker: Marker) -> bool:
        """A token that opens nothing here, and that no answer names: it is markup, and what comes after it is text."""
        buffer, start = machine.buffer, machine.position
        begin = space_end(buffer, start)
        end = begin + len(marker.key)
        label = marker.label or marker.end
        rest = buffer[end : end + len(label)]
        if label.startswith(rest) and rest != label and not machine.at_end:
            return False
        if begin > start:
            self._take_text(machine, begin)
        machine.report(diagnostics.STRAY_CLOSER, f"'{machine.spell(marker.key)}' opens nothing in an answer")
        machine.take(end - begin + (len(rest) if label.startswith(rest) else 0), MARKUP)
        return True

    def _is_last(self, machine: Machine, end: int, outside_code: bool) -> bool | NotYet:
        """Whether no text follows a marker that ends there: the output ends or, outside code, another marker comes."""
        buffer = machine.buffer
        begin = space_end(buffer, end)
        if begin - end > machine.limits.name:
            return False
        if begin == len(buffer):
            return machine.at_end or NOT_YET
        return outside_code and self.rule.following().matches_at(buffer, begin)

    def _take_text(self, machine: Machine, end: int) -> None:
        """Take the text up to a position of the buffer."""
        start = machine.position
        role = KEPT if self.orphan_closer else TEXT
        for marker, past in self._strays_in(machine.buffer[start:end]):
            machine.take(start + past - machine.position, role)
            if marker.role == "named":
                # What closes it is a name, too.
                self.orphan_closer, self.orphan_of_call = self.rule.closes_of[marker.strand], False
            elif marker.role == "open":
                machine.report(diagnostics.CALL_IN_REASONING, f"'{marker.key}' in the reasoning: kept as text")
            elif not self._is_orphan(machine, marker):
                machine.report(diagnostics.STRAY_CLOSER, f"'{marker.key}' closes nothing here: kept as text")
        if end > machine.position:
            machine.take(end - machine.position, role)

    def _cut_off(self, machine: Machine) -> None:
        """The output ends inside of what may have been a marker: text, unless no text has such a thing."""
        rest = machine.buffer[machine.position :]
        begun = rest.lstrip()
        state = prose.after(machine.prose_state, rest[: len(rest) - len(begun)])
        if prose.settled(state) & prose.QUOTED or not is_control(machine.spell(begun)):
            self._take_text(machine, len(machine.buffer))
            return
        if len(begun) < len(rest):
            self._take_text(machine, len(machine.buffer) - len(begun))
        machine.take(len(begun), MARKUP)

    def _on_marker(self, machine: Machine, marker: Marker, size: int) -> None:
        """A marker opens something, closes something, or only ends what is open."""
        self.tail = ""
        if marker.role == "open":
            self._open(machine, marker, size)
            return
        if marker.role == "header":
            assert self.rule.header is not None
            machine.push(self.rule.header.frame())
            return
        if marker.role == "stray":
            if self._is_orphan(machine, marker, size):
                machine.take(size, KEPT)
            else:
                machine.report(diagnostics.STRAY_CLOSER, f"'{marker.key}' closes nothing here")
                machine.marks = "tool_calls" if marker.strand in self.rule.calls else ""
                machine.take(size, MARKUP)
                machine.marks = ""
            return
        if marker.role == "citation":
            assert self.rule.citation is not None
            machine.push(self.rule.citation.frame())
            return
        if marker.role == "answer":
            # What opens the answer ends the reasoning.
            back_to_content(machine)
            machine.answer_ends()
        elif marker.role == "close":
            while machine.strands[-1] != marker.strand:
                pop_unclosed(machine)
        if marker.key == self.rule.call_end:
            if not machine.awaits_end:
                machine.report(diagnostics.STRAY_CLOSER, f"'{marker.key}' ends a tool call, and there is none")
            machine.awaits_end = False
        if marker.role == "end" and marker.strand != CITED:
            machine.answer_ends()
            machine.in_message, machine.names_headers = False, True
        machine.take_marker(size, marker.strand, marker.trail)
        if marker.role == "close":
            machine.pop()
            machine.answer_ends()

    def _open(self, machine: Machine, marker: Marker, size: int) -> None:
        self.orphan_closer = ""
        calls, more = self.rule.calls.get(marker.strand), machine.position + size < len(machine.buffer)
        if calls is not None:
            if more and calls.take_whole(machine, size):
                return
            machine.push(calls.frame())
            machine.begin_call()
            begun = machine.buffer[machine.position : machine.position + size]
            if machine.spell(marker.key) != marker.key or "\n" in begun.rstrip():
                # A token names nothing, unless it stands in code; nor does what begins a line.
                machine.call.may_be_named = False
            if calls.bare:
                return
        elif more and self._take_reasoning(machine, marker, size):
            return
        machine.take_marker(size, marker.strand, marker.trail)
        if calls is None:
            inner = self.rule.inner[marker.strand]
            enter(machine, inner)
            if marker.strand == "reasoning":
                machine.push(LeadingMarkerFrame(inner.leading, marker.label))

    def _take_reasoning(self, machine: Machine, opener: Marker, size: int) -> bool:
        """Take a reasoning that has come whole and has nothing unusual in it, with its markers, as the frames of its
        own would. False where it has not; then nothing is taken, and they read it."""
        if opener.strand != "reasoning" or opener.label or not machine.reads_whole or not machine.reasoning_apart:
            return False
        inner, buffer, start = self.rule.inner["reasoning"], machine.buffer, machine.position
        begin = start + size
        if opener.trail:
            if not buffer.startswith(opener.trail, begin):
                return False
            begin += len(opener.trail)
        match = inner.markers.find(buffer, begin)
        if match is None:
            return False
        end, closer = match.start(), inner.markers.which(match)
        if closer.role != "close" or closer.strand != "reasoning" or closer.key == inner.call_end:
            return False
        first = space_end(buffer, begin)
        if inner.leading.at(buffer, first) or inner.leading.safe_end(buffer, first) == first:
            return False
        text = buffer[begin:end]
        if not inner.strays.absent(text) or (not text.isascii() and find_token(text)):
            return False
        machine.prose[1] = prose.settled(machine.prose[1]) & ~prose.QUOTED
        machine.marks = "reasoning"
        machine.take(begin - start, MARKUP)
        machine.marks = ""
        if text:
            machine.take_reasoning(text)
        machine.take_marker(match.end() - end, "reasoning", closer.trail)
        machine.answer_ends()
        return True

    def _is_orphan(self, machine: Machine, closer: Marker, size: int = 0) -> bool:
        """Whether it closes the call that was no call. Only the first one does. `size` characters are still to come."""
        if closer.key != self.orphan_closer:
            return False
        self.orphan_closer = ""
        if machine.tally is not None and self.orphan_of_call:
            machine.tally.call_closes(machine.offset + size)
        return True

    def _strays_in(self, text: str) -> list[tuple[Marker, int]]:
        """The markers in `text` that mean nothing here, and where in it each ends. Nothing is held back for them: the
        beginning of one may be in text that has already gone out."""
        strays = self.rule.strays
        if not self.tail and strays.absent(text):
            return []
        seen, at = self.tail + text, 0
        ends = []
        while match := strays.find(seen, at):
            at = match.end()
            ends.append((strays.which(match), at - len(self.tail)))
        self.tail = seen[strays.safe_end(seen, at) :]
        return ends

    def fast_path(self, machine: Machine) -> FastPath | None:
        if self.tail or self.orphan_closer:
            return None
        state = machine.prose[machine.place]
        self.in_plain_line = state & prose.CHANGING == prose.PLAIN_LINE
        return None if state & prose.AFTER_CALL else self._pass

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        markers = self.rule.all_markers
        for char in markers.first_characters:
            if char in text:
                if (suspect := markers.suspect(text)) is not None:
                    marker = self.rule.alone[text]
                    if marker is not None:
                        return self._pass_marker(machine, text, marker)
                    return self._hold_space(machine, text, suspect.start())
                break
        if not self.in_plain_line or "\n" in text or "`" in text:
            self.follow(machine, text)
        start = machine.offset
        machine.offset = end = start + len(text)
        return [machine.text_event(text, start, end)]

    def _pass_marker(self, machine: Machine, text: str, marker: Marker) -> list[Event] | None:
        """Take a text that is a marker, with what is held back before it, if it counts."""
        state, called = machine.prose[machine.place], machine.call_count > 0
        counts = marker.counts == "always" or (marker.counts == "unquoted" and not state & prose.MAY_QUOTE)
        if not counts:
            counts = marker.counts in places_of(text, 0, state, machine.in_message, called, unclosed=False)
        if not counts or machine.fast_path is None:
            return None
        machine.buffer, machine.position, machine.running = text, 0, self
        self.waits = None
        self._on_marker(machine, marker, len(text))
        return machine.go_on()

    def _hold_space(self, machine: Machine, text: str, start: int) -> list[Event] | None:
        """Hold back the whitespace that a text ends with, where a marker may begin with it."""
        rest, state = text[start:], machine.prose[machine.place]
        if start:
            state = prose.after(state, text[:start])
        situation = rest, state, machine.in_message, machine.call_count > 0
        cache = self.rule.held
        if situation in cache:
            waits = cache[situation]
        else:
            waits = self._waits_after(*situation)
            if len(cache) < MOST_KNOWN and len(rest) < LONGEST_KNOWN:
                cache[situation] = waits
        if waits is None or machine.fast_path is None:
            return None
        machine.prose[machine.place] = state
        machine.buffer, machine.position = rest, 0
        self.waits, machine.fast_path = waits, self._pass_held
        machine.moves += 1
        begin = machine.offset
        machine.offset = end = begin + start
        return [machine.text_event(text[:start], begin, end)] if start else []

    def _waits_after(self, rest: str, *situation: Any) -> Markers | None:
        """The markers that `rest` may begin, if it is whitespace and may begin one."""
        markers = self.rule.markers
        if not rest.isspace() or markers.safe_end(rest, 0):
            return None
        waits = self.rule.counting(places_of(rest, 0, *situation, unclosed=True) | _AWAITED)
        return None if waits.safe_end(rest, 0) else waits

    def held_path(self, machine: Machine) -> FastPath | None:
        return None if self.waits is None or self.tail or self.orphan_closer or machine.at_end else self._pass_held

    def _pass_held(self, machine: Machine, text: str) -> list[Event] | None:
        held = machine.buffer[machine.position :]
        rest = held + text
        if self.rule.all_markers.suspect(rest) is None:
            if machine.prose[machine.place] & prose.AFTER_CALL:
                return None
            self.follow(machine, rest)
            machine.buffer, machine.position = "", 0
            machine.fast_path = self._pass
            start = machine.offset
            machine.offset = end = start + len(rest)
            return [machine.text_event(rest, start, end)]
        marker = self.rule.alone[rest]
        if marker is not None:
            return self._pass_marker(machine, rest, marker)
        # The same markers count, as long as the whitespace before them is the same.
        assert self.waits is not None
        same = not text[0].isspace() or not held.isspace()
        if same and self.rule.markers.find(rest, 0) is None and self.waits.safe_end(rest, 0) == 0:
            machine.buffer, machine.position = rest, 0
            machine.moves += 1
            return []
        return None

    def follow(self, machine: Machine, text: str) -> None:
        """Text goes out past `take`: note where the next stands."""
        place = machine.place
        machine.prose[place] = state = prose.after(machine.prose[place], text)
        machine.moves += 1
        self.in_plain_line = state & prose.CHANGING == prose.PLAIN_LINE

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        """The scope at the bottom of the stack stands there from the start."""
        return cls(innermost(machine).rule.inner[saved["strand"]])


class LeadingMarkerFrame(Frame):
    """At the start of the output, and of reasoning. Models may open what is open once more. Where nothing is open, they
    may close it: templates write `</think>` for a turn without reasoning. What opens the reasoning may have a label."""

    kind = "leading_marker"
    opened_by = (START, "scope")
    about = State(
        reads="at the start: the opening marker once more, where it is open; or a closing one alone",
        ends="the marker, or anything else",
        malformed="anything else belongs to the scope below",
    )
    saved = ("label", "is_last")
    __slots__ = ("is_last", "label", "markers")

    def __init__(self, markers: Markers, label: str = "") -> None:
        self.markers = markers
        self.label = label
        """What should come first."""
        self.is_last = False
        """Whether nothing but the label is waited for."""

    def anew(self) -> LeadingMarkerFrame:
        """The same at the start of another response."""
        return LeadingMarkerFrame(self.markers, self.label)

    def fast_path(self, machine: Machine) -> FastPath | None:
        return None if self.label else self._pass

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        """Text that begins otherwise belongs to the scope below."""
        if text[0].isspace() or machine.fast_path is None:
            return None
        if text[0] in self.markers.first_characters and (self.markers.at(text, 0) or not self._is_absent(text, 0)):
            return None
        machine.stack.pop()
        path = machine.fast_path = machine.stack[-1].fast_path(machine)
        if path is None or (events := path(machine, text)) is None:
            machine.stack.append(self)
            machine.fast_path = self._pass
            return None
        machine.moves += 1
        return events

    def step(self, machine: Machine) -> bool:
        if self.label:
            return self._step_label(machine)
        buffer, start = machine.buffer, machine.position
        begin = space_end(buffer, start)
        match = self.markers.at(buffer, begin)
        if match is not None:
            marker = self.markers.which(match)
            machine.take_markup(match.end() - start, marker.strand, marker.trail)
            if marker.label:
                self.label, self.is_last = marker.label, True
                return True
        elif not machine.at_end and begin - start <= machine.limits.name and not self._is_absent(buffer, begin):
            return False
        machine.pop()
        return True

    def _step_label(self, machine: Machine) -> bool:
        """The label comes first, or not at all."""
        buffer, start = machine.buffer, machine.position
        word = self.label.rstrip()
        closed: bool | NotYet = False
        if buffer.startswith(word, start):
            closed = innermost(machine).rule.markers.matches_at(buffer, start + len(word))
        if buffer.startswith(self.label, start):
            machine.take_marker(len(self.label), innermost(machine).strand, "")
        elif closed or (machine.at_end and buffer[start:] == word):
            machine.take_marker(len(word), innermost(machine).strand, "")
        elif (closed is NOT_YET or self.label.startswith(buffer[start:])) and not machine.at_end:
            return False
        else:
            machine.report(diagnostics.REPAIRED, f"{innermost(machine).strand} without '{self.label.strip()}'")
        self.label = ""
        if self.is_last:
            machine.pop()
        return True

    def _is_absent(self, text: str, at: int) -> bool:
        """Whether no marker can come there any more."""
        return at < len(text) and self.markers.safe_end(text, at) > at

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(innermost(machine).rule.leading)


class CitationFrame(Frame):
    """A tag that says where the text comes from. It is markup, and opens nothing: the text between two tags stays text.
    The tag is held until its end comes, or a character that no such tag has. Then it was text."""

    kind = "citation"
    opened_by = ("scope",)
    about = State(
        reads="a tag that says where the text comes from",
        ends="its end",
        malformed="what it begins with is text",
    )
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
        assert rule is not None
        return cls(rule)


_LONGEST_SPAN = 1024
"""How far it is looked for what closes inline code after a marker in it."""
_tick_or_break = re.compile("[`\n]").search
_AT_THE_END = frozenset[Counts](("at an edge", "at the end", "outside code"))
_QUOTED = frozenset[Counts](("always",))
_IN_CODE: frozenset[Counts] = frozenset((*_QUOTED, "unquoted"))
_IN_LINE: frozenset[Counts] = frozenset((*_IN_CODE, "outside code"))
_ON_LINE: frozenset[Counts] = frozenset((*_IN_LINE, "at an edge", "on a line"))
_BETWEEN = frozenset[Counts](("between",))
_NOT_LATER = frozenset[Counts](("not later",))
_FRESH: frozenset[Counts] = frozenset((*_ON_LINE, *_BETWEEN, *_NOT_LATER, "before the answer", "at the end"))
_AFTER_CALL: frozenset[Counts] = frozenset((*_FRESH, "after a call"))
_AWAITED = _AT_THE_END | _NOT_LATER
"""Where a marker may count or be markup, and so is waited for, wherever it stands."""


def places(machine: Machine, after_name: bool, *, unclosed: bool = False) -> frozenset[Counts]:
    """The places that a marker stands in, or the beginning of one, which comes next with the whitespace before it.
    After a name in inline code, all in it are names. unclosed: where inline code that is open is none."""
    state, called = machine.prose[machine.place], machine.call_count > 0
    return places_of(machine.buffer, machine.position, state, machine.in_message, called, after_name, unclosed=unclosed)


def places_of(
    buffer: str, start: int, state: int, in_message: bool, called: bool, after_name: bool = False, *, unclosed: bool
) -> frozenset[Counts]:
    """The same, where that comes after prose of this state, in an answer that a header has begun or not, after a call
    or not."""
    if buffer[start].isspace():
        state = prose.after(state, buffer[start : space_end(buffer, start)])
    after_tick, state = state, prose.settled(state)
    if unclosed:
        after_tick = state = state & ~prose.SPAN
    if state & prose.QUOTED:
        in_name = state & prose.SPAN and (after_name or after_tick != state)
        return _QUOTED if in_name else _IN_CODE
    if not state & prose.BEGUN:
        return _AFTER_CALL if called else _FRESH
    chosen = _IN_LINE if state & prose.IN_LINE else _ON_LINE
    return chosen if in_message else chosen | _BETWEEN


def _span_closes(machine: Machine, at: int) -> bool | NotYet:
    """Whether a backtick closes the inline code that is open there. It does so in the same line, or not at all."""
    end = at + _LONGEST_SPAN
    sign = _tick_or_break(machine.buffer, at, end)
    if sign is None:
        return NOT_YET if len(machine.buffer) < end and not machine.at_end else False
    return sign.group() == "`"


def innermost(machine: Machine) -> ScopeFrame:
    """The innermost scope."""
    for frame in reversed(machine.stack):
        if isinstance(frame, ScopeFrame):
            return frame
    raise AssertionError("a scope is at the bottom of the stack")


def enter(machine: Machine, rule: ScopeRule) -> None:
    """Open a scope inside the innermost one."""
    machine.push(ScopeFrame(rule))
    if rule.strand == "speech":
        machine.sections += 1


def back_to_content(machine: Machine) -> None:
    """Close all that is open."""
    while len(machine.stack) > 1:
        pop_unclosed(machine)


def pop_unclosed(machine: Machine) -> None:
    """Pop the frame on top, which no marker has closed."""
    frame = machine.stack[-1]
    if isinstance(frame, ScopeFrame) and frame.rule.close_required and machine.reasoning_apart:
        machine.report(diagnostics.UNCLOSED, f"{frame.strand} without '{frame.rule.closes[0].key}'")
    if machine.at_end and machine.tally is not None and isinstance(frame, ScopeFrame):
        machine.tally.left_open(frame.strand)
    machine.pop()
