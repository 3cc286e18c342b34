"""The steps that a grammar of calls is laid out as: what must come next, what may, and what is read.

Each step looks at the buffer and either is done, and moves `frame.at`, or needs more input and has changed nothing. The
jumps are absolute: the whole state of a call in progress is one number. The arguments are read by frames of their own,
one kind for each notation (`core/notations`); `BeginNotation` pushes them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from .. import diagnostics
from ..events import Event, ToolCallArguments, ToolCallEnd
from ..fast_import import lazily
from ..grammar import Escapes, NameInId, unescaped
from ..tools import Tools
from .calls import CallsFrame
from .machine import Frame, Machine, State
from .markers import (
    NOT_YET,
    QUOTES,
    Markers,
    NotYet,
    after_words,
    escaped_space_end,
    space_end,
    word_end,
    word_end_among_controls,
)
from .output import MARKUP, NAME, Malformed

_number = lazily(lambda: re.compile(r"\d+").fullmatch)
_no_tag = lazily(lambda: re.compile(r"[^<{\[\]\ud800-\udfff]").match)
_closing_bracket = lazily(lambda: re.compile(r"[}\]]").match)


def _words_come(machine: Machine, words: tuple[str, ...]) -> int | NotYet | None:
    """The size of these words, if they come next. Nothing is taken: where they do not come, the whitespace belongs to
    what comes instead."""
    end = after_words(machine.buffer, machine.position, words, machine.limits.name)
    if isinstance(end, int):
        return end - machine.position
    return None if machine.at_end else end


def _next_is(machine: Machine, frame: CallsFrame, key: str, whole: str = "") -> bool | NotYet:
    """Whether `key` comes next, after whitespace, which is taken. A marker that begins with `key` is not `key`, nor the
    `whole` that it begins: there what should come is missing."""
    machine.skip_space()
    rest = machine.buffer[machine.position : machine.position + len(key)]
    if rest != key:
        return NOT_YET if not machine.at_end and key.startswith(rest) else False
    markers = frame.markers
    marker = markers.at(machine.buffer, machine.position)
    if marker is not None and markers.which(marker).key not in (key, whole):
        raise Malformed(diagnostics.MALFORMED_CALL, "a marker in the middle of a tool call")
    undecided = marker is None and markers.matches_at(machine.buffer, machine.position) is NOT_YET
    return NOT_YET if undecided and not machine.at_end else True


def _next_are(machine: Machine, frame: CallsFrame, words: tuple[str, ...], whole: str = "") -> int | NotYet | None:
    """The size of these words, if they come next, as in `_next_is`."""
    comes = _next_is(machine, frame, words[0], whole)
    if not comes:
        return NOT_YET if comes is NOT_YET else None
    return len(words[0]) if len(words) == 1 else _words_come(machine, words)


@dataclass(slots=True, eq=False, repr=False)
class Literal:
    """Text that must come next, or, with `otherwise`, may: if it does not, go on there."""

    key: str
    words: tuple[str, ...]
    """The words that it is made of; whitespace between them is as it comes."""
    otherwise: int | None = None
    due: bool = False
    """Whether it is reported where it may be missing, and is."""
    whole: str = ""
    """What it begins, where that may be a marker: itself, and the quote after it."""

    def wait(self, machine: Machine, text: str) -> list[Event] | None:
        """The fast path where this step waits for its text."""
        rest = machine.buffer[machine.position :] + text
        return machine.hold(rest) if rest != self.words[0] and self.words[0].startswith(rest) else None

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        size = _next_are(machine, frame, self.words, self.whole or self.key)
        if size is NOT_YET:
            return False
        if size is not None:
            machine.take(size, MARKUP)
            frame.at += 1
        elif self.otherwise is not None:
            rest = machine.buffer[machine.position :]
            if machine.cut_off and rest and self.key.startswith(rest):
                raise Malformed(diagnostics.UNFINISHED_CALL, "")
            if self.due:
                machine.report(diagnostics.REPAIRED, f"a tool call without '{self.key}'")
            frame.at = self.otherwise
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, f"a tool call without '{self.key}'")
        return True


@dataclass(slots=True, eq=False, repr=False)
class Branch:
    """Go on at `at` if these words come next, otherwise with the next step. Nothing is taken."""

    words: tuple[str, ...]
    at: int

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        size = _next_are(machine, frame, self.words)
        if size is NOT_YET:
            return False
        frame.at = frame.at + 1 if size is None else self.at
        return True


@dataclass(slots=True, eq=False, repr=False)
class Jump:
    at: int

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        frame.at = self.at
        return True


@dataclass(slots=True, eq=False, repr=False)
class ReadWord:
    """The call's name or id: characters up to whitespace or punctuation. It is known once something follows it."""

    field: str
    end = staticmethod(word_end)

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.skip_space()
        buffer, start, most = machine.buffer, machine.position, machine.limits.name
        end = self.end(buffer, start)
        if end - start > most:
            raise Malformed(diagnostics.TOO_LONG, f"a tool call whose {self.field} is longer than {most} characters")
        if end == len(buffer) and not machine.at_end:
            return False
        if end == start or end == len(buffer):
            raise Malformed(diagnostics.MALFORMED_CALL, f"a tool call without {self.field}")
        self.read(machine, buffer[start:end])
        frame.at += 1
        return True

    def read(self, machine: Machine, word: str) -> None:
        setattr(machine.call, self.field, word)
        machine.take(len(word), NAME if self.field == "name" else MARKUP)


@dataclass(slots=True, eq=False, repr=False)
class ReadNamespaced(ReadWord):
    """The call's name, with a namespace before it: `namespace.name` is `name`, if that is a tool and the whole is none.
    The prompt shows each tool as `name.name`; another namespace is reported."""

    def read(self, machine: Machine, word: str) -> None:
        name = word.rpartition(".")[2]
        if machine.knows(word) or not machine.knows(name):
            name = word
        machine.call.name = name
        if head := len(word) - len(name):
            if word[: head - 1] != name:
                machine.report(diagnostics.REPAIRED, f"{word!r} is not among the tools: taken as {name!r}")
            machine.take(head, MARKUP)
        machine.take(len(name), NAME)


@dataclass(slots=True, eq=False, repr=False)
class ReadEscaped(ReadWord):
    """The call's name, as the value of an attribute has it: `a&amp;b` is `a&b`. `<` needs no escape."""

    escapes: Escapes
    end = staticmethod(word_end_among_controls)

    def read(self, machine: Machine, word: str) -> None:
        machine.call.name = unescaped(word, self.escapes)
        machine.take(len(word), NAME)


@dataclass(slots=True, eq=False, repr=False)
class ReadNameInId(ReadWord):
    """The call's id, with its name in it: `functions.name:0`. Models leave the name out, and write only the number."""

    node: NameInId

    def read(self, machine: Machine, word: str) -> None:
        node = self.node
        head = len(node.before) if word.startswith(node.before) else 0
        name, after, number = word[head:].rpartition(node.after)
        numbered = bool(after) and bool(_number(number))
        if machine.tools is not None and not machine.knows(word) and not (name if numbered else not _number(word)):
            self._unnamed(machine, machine.tools, word)
            return
        machine.call.name = name if numbered else word[head:]
        machine.call.id = word if numbered else ""
        if head:
            machine.take(head, MARKUP)
        machine.take(len(machine.call.name), NAME)
        if numbered:
            machine.take(len(after + number), MARKUP)

    def _unnamed(self, machine: Machine, tools: Tools, word: str) -> None:
        """There is no name. A single tool is meant; among several, the arguments tell."""
        if len(tools) == 1:
            (machine.call.name,) = tools
            machine.report(diagnostics.REPAIRED, f"a tool call without a name: to {machine.call.name!r}, the only tool")
        else:
            machine.call.unnamed = True
        machine.take(len(word), NAME)


@dataclass(slots=True, eq=False, repr=False)
class OpenQuote:
    """The quote before an attribute's value. Models write others, or none. Then all of the value is read here, with the
    quote after it, so that one diagnostic reports both."""

    value: ReadWord | None = None
    """The next step, where the one after it is the quote that closes."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.skip_space()
        buffer, start = machine.buffer, machine.position
        if buffer.startswith('"', start):
            machine.take(1, MARKUP)
            frame.at += 1
            return True
        first = start + buffer.startswith("'", start)
        end = word_end(buffer, first)
        after = space_end(buffer, end)
        short = after - start <= machine.limits.name
        if short and after == len(buffer) and not machine.at_end:
            return False
        if first == start:
            end -= buffer.endswith("/", first, end)  # of a tag that closes itself
        if self.value is None or end == first or after == len(buffer) or not short:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without '\"'")
        machine.report(diagnostics.REPAIRED, f"a tool call whose {self.value.field} stands in no double quotes")
        if first > start:
            machine.take(1, MARKUP)
        self.value.read(machine, buffer[first:end])
        if buffer.startswith(QUOTES, after):
            machine.take(after + 1 - end, MARKUP)
        frame.at += 3
        return True


@dataclass(slots=True, eq=False, repr=False)
class CloseQuote:
    """The quote after an attribute's value."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.skip_space()
        buffer, start = machine.buffer, machine.position
        if start == len(buffer) and not machine.at_end:
            return False
        if start == len(buffer) or word_end(buffer, start) > start:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without '\"'")
        if not buffer.startswith('"', start):
            machine.report(diagnostics.REPAIRED, "an attribute without '\"' after it")
        if buffer.startswith(QUOTES, start):
            machine.take(1, MARKUP)
        frame.at += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class ReadOrdinal(ReadWord):
    """The call's number, which says nothing."""

    def read(self, machine: Machine, word: str) -> None:
        machine.take(len(word), MARKUP)


class CodeFrame(Frame):
    """What a header announces as a call, and is no object: code, most often. The call is not complete."""

    kind = "code"
    opened_by = ("calls",)
    about = State(
        reads="what a header announces as a call, and is none",
        ends="the nearest marker",
        malformed="passed on as it is",
    )
    __slots__ = ("markers",)

    def __init__(self, markers: Markers) -> None:
        self.markers = markers

    def step(self, machine: Machine) -> bool:
        return machine.pass_to_marker(self.markers)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        assert machine.calls is not None
        return cls(machine.calls.markers)


@dataclass(slots=True, eq=False, repr=False)
class ReadObject(ABC):
    """Arguments as one object between brackets; or none, where a marker or `following` comes instead. Here a named call
    starts: its name is known, and its id if it has one."""

    opens: ClassVar[tuple[str, ...]]
    """What the object begins with."""
    following: str
    """What comes after the arguments, as it is looked for; empty where that is not known."""

    @abstractmethod
    def begin(self, machine: Machine, frame: CallsFrame) -> None:
        """Push the frame that reads them."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        if machine.call.accepted:  # with what comes before the arguments
            self.begin(machine, frame)
            frame.at += 1
            return True
        machine.skip_space()
        ends = frame.markers.matches_at(machine.buffer, machine.position)
        if not ends and self.following:
            size = _words_come(machine, (self.following,))
            if size is not None:
                ends = NOT_YET if size is NOT_YET else True
        if ends:
            machine.accept_call()
            machine.no_arguments()
        elif machine.buffer.startswith(self.opens, machine.position):
            machine.accept_call()
            self.begin(machine, frame)
        elif ends is NOT_YET and not machine.at_end:
            return False
        elif machine.call.announced and machine.position < len(machine.buffer):
            machine.accept_call()
            machine.report(diagnostics.MALFORMED_JSON, "a tool call whose arguments are no JSON: passed on as they are")
            machine.push(CodeFrame(frame.markers))
        elif machine.call.announced and not machine.at_end:
            return False
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without arguments")
        frame.at += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class BeginNotation:
    """Push the frame of a notation. The markup before it has shown that this is a call: so the call starts here, unless
    its name comes later (`named` is False)."""

    frame: Callable[[Markers], Frame]
    named: bool = True
    after_name: bool = False
    """Whether only whitespace stands before it, after the name: then a tag must follow, or the name was a word."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        if self.after_name:
            begin = escaped_space_end(machine.buffer, machine.position)
            if machine.buffer[begin:] in ("", "\\") and not machine.at_end:
                return False
            if _no_tag(machine.buffer, begin):
                raise Malformed(diagnostics.MALFORMED_CALL, "text after the name of a tool call")
        if self.named and not machine.call.accepted:
            machine.accept_call()
        machine.push(self.frame(frame.markers))
        frame.at += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class NoMoreOfCall:
    """The call has no arguments, and nothing more of it comes: go on at its end."""

    at: int

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.accept_call()
        machine.no_arguments()
        frame.at = self.at
        return True


@dataclass(slots=True, eq=False, repr=False)
class EndCall:
    """The call is over. If it is not complete, its closing marker is still part of what the model wrote for it."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.call.end = machine.offset
        if machine.call.complete or not machine.call.accepted or frame.rule.close is None:
            machine.end_call()
        frame.at += 1
        return True


def pass_end(machine: Machine, fragment: str, rest: str) -> list[Event] | None:
    """For a fast path of the frame on top, which reads arguments: a call ends with a last fragment of these, if all
    that is left of it is a literal, and that is what comes. The whitespace after it belongs to what comes next."""
    frame, call = machine.calls, machine.call
    assert isinstance(frame, CallsFrame)
    literal, *after = frame.rule.steps[frame.at : frame.at + 2]
    key = rest.rstrip()
    if not isinstance(literal, Literal) or literal.key != key or not isinstance(after[0], EndCall) or call.flawed:
        return None
    start = machine.offset
    machine.offset = call.end = end = start + len(key)
    machine.buffer, machine.position = rest[len(key) :], 0
    machine.moves += 1
    call.has_arguments, call.complete, call.raw = True, True, []
    machine.reading_call = False
    machine.stack.pop()
    frame.at += 2
    machine.fast_path = frame.held_path(machine)
    return [ToolCallArguments(call.index, fragment, start, start), ToolCallEnd(call.index, True, "", end, end)]


@dataclass(slots=True, eq=False, repr=False)
class BeginInList:
    """A call of a list begins here: what came before it is the list's."""

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        machine.call.begin = machine.offset
        frame.at += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class NextInList:
    """After a call in a list: another one, which is read from step `again` on, or the end of the list."""

    separator: str
    close: tuple[str, ...]
    """The words that end the list, or ()."""
    first: tuple[str, ...]
    """Words of a call's opening tag, or () if unknown."""
    whole: str
    """The whole opening literal."""
    last: tuple[str, ...]
    """Words of a call's closing tag, or (). Models write it twice."""
    again: int

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        if self.last:
            size = _words_come(machine, self.last)
            if size is NOT_YET:
                return False
            if size is not None:
                machine.report(diagnostics.REPAIRED, f"'{''.join(self.last)}' twice")
                machine.take(size, MARKUP)
                return True
        if not self.close:
            return self._open_end(machine, frame)
        if self.separator or not self.first:
            further = _next_is(machine, frame, self.separator, self.whole)
        else:
            size = _next_are(machine, frame, self.first, self.whole)
            further = NOT_YET if size is NOT_YET else size is not None
        if further is NOT_YET or (not further and _next_is(machine, frame, self.close[0]) is NOT_YET):
            return False
        size = _words_come(machine, (self.separator, *self.close) if further and self.separator else self.close)
        if size is NOT_YET:
            return False
        if size is not None:
            if further and self.separator:
                machine.report(diagnostics.MALFORMED_CALL, f"'{self.separator}' after the last tool call of a list")
            machine.take(size, MARKUP)
            frame.at += 1
        elif further:
            self._begin(machine, frame)
            if self.separator:
                machine.take(len(self.separator), MARKUP)
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, f"a list of tool calls without '{''.join(self.close)}'")
        return True

    def _open_end(self, machine: Machine, frame: CallsFrame) -> bool:
        """The list ends where no other call comes."""
        if self.separator or self.first:
            size = _words_come(machine, (self.separator,) if self.separator else self.first)
            if size is NOT_YET:
                return False
            more = size is not None
        else:
            end = space_end(machine.buffer, machine.position)
            short = end - machine.position <= machine.limits.name
            closes = frame.rule.closers.matches_at(machine.buffer, end)
            if short and (closes is NOT_YET or end == len(machine.buffer)) and not machine.at_end:
                return False
            more = short and closes is False and end < len(machine.buffer)
        if not more:
            frame.at += 1
            return True
        self._begin(machine, frame)
        machine.skip_space()
        machine.take(len(self.separator), MARKUP)
        return True

    def _begin(self, machine: Machine, frame: CallsFrame) -> None:
        # From here on it is the next call's: if that is no call, the separator is text as well.
        machine.begin_call()
        frame.at = self.again


@dataclass(slots=True, eq=False, repr=False)
class Empty:
    """Where the first call should be, or after an empty list: the calls may be closed with nothing in them. Where the
    first call should be, their opening marker may come once more."""

    after_list: bool = False

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        closers, openers = frame.rule.closers, frame.rule.openers
        buffer, start = machine.buffer, machine.position
        begin = space_end(buffer, start)
        call = machine.call
        begun = not machine.reading_call or call.accepted or call.rejected or bool(call.name)
        if begun or begin - start > machine.limits.name:
            frame.at += 1
        elif match := closers.at(buffer, begin):
            machine.drop_call()
            frame.accepted = True
            frame.close(machine, match.end() - start)
        elif match := openers.at(buffer, begin):
            machine.report(diagnostics.REPAIRED, f"'{match.group()}' twice")
            machine.take(match.end() - start, MARKUP)
        elif not machine.at_end and (
            begin == len(buffer) or closers.safe_end(buffer, begin) == begin or openers.safe_end(buffer, begin) == begin
        ):
            return False
        elif self.after_list and (frame.rule.close is None or not frame.rule.close_required):
            machine.drop_call()
            machine.leave_calls()
        else:
            frame.at += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class EmptyList:
    """Where the first call of a list should be: the list may be over. Then step `at` comes next."""

    words: tuple[str, ...]
    """What closes the list."""
    at: int = 0

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        size = _words_come(machine, self.words)
        if size is NOT_YET:
            return False
        if size is None:
            frame.at += 1
        else:
            machine.take(size, MARKUP)
            frame.at = self.at
        return True


@dataclass(slots=True, eq=False, repr=False)
class Close:
    """The closing marker, where the format has one. The call itself has ended before."""

    def wait(self, machine: Machine, text: str) -> list[Event] | None:
        """The fast path where this step waits for its marker."""
        rest, frame = machine.buffer[machine.position :] + text, machine.calls
        assert isinstance(frame, CallsFrame)
        if not (frame.rule.close_required and frame.accepted and machine.in_short):
            return None
        if rest.isspace():
            return machine.pass_space(rest)
        closers, begin = frame.rule.closers, space_end(rest, 0) if rest[0].isspace() else 0
        match = closers.at(rest, begin)
        if match is None:
            return machine.hold(rest) if closers.safe_end(rest, 0) == 0 else None
        machine.buffer, machine.position = rest, 0
        if begin:
            machine.take(begin, MARKUP)
        frame.close(machine, match.end() - begin)
        return machine.go_on()

    def run(self, machine: Machine, frame: CallsFrame) -> bool:
        close = frame.rule.close
        if close is None:
            machine.leave_calls()
            return True
        if frame.rule.close_required:
            machine.skip_space()
        closers, position = frame.rule.closers, machine.position
        if match := closers.at(machine.buffer, position):
            frame.close(machine, match.end() - position)
        elif not machine.at_end and closers.safe_end(machine.buffer, position) == position:
            return False
        elif not frame.rule.close_required:
            machine.leave_calls()
        elif _closing_bracket(machine.buffer, position) and not close.key.startswith(machine.buffer[position]):
            # A bracket too many is what models get wrong most often; before the closing marker it is never text.
            machine.report(diagnostics.MALFORMED_CALL, "a closing bracket too many after a tool call")
            machine.take(1, MARKUP)
        else:
            machine.report(diagnostics.UNCLOSED, f"a tool call without '{close.key}'")
            if machine.at_end and closers.safe_end(machine.buffer, position) == position:
                machine.take(len(machine.buffer) - position, MARKUP)  # the output was cut off inside of the marker
            frame.give_up(machine)
        return True
