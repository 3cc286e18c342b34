"""Reading calls: the steps that a grammar of calls is laid out as, and the states that last over several deltas.

Every state is a frame on the parser's stack: `step` does what it can with the text at hand and returns False when it
needs more. Frames hold plain values only, so that a parser can be saved at any point. Output that breaks the grammar
raises `Malformed`, which never leaves the parser: what was read so far is kept, and reading goes on at the next marker.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from . import diagnostics
from .grammar import JsonCall
from .json_scanner import JsonScanner
from .limits import Limits
from .markers import Markers

if TYPE_CHECKING:
    from .parser import Parser
    from .program import CallsRule

TEXT, MARKUP, NAME, ARGUMENTS = range(4)
"""What becomes of a piece of input: text of the strand around it, markup, a call's name, its arguments."""

_space = re.compile(r"\s*").match
# Nothing that could be markup of the call around it, or a stand-in for a token.
_word = re.compile(r"[^\s\"'{}\[\]()<>,\x00-\x1f\ud800-\udfff]*").match
_string = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match
_plain = re.compile(r'[^"\\]*').match
_escape = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})').match
_partial_escape = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z").match
_bracket_or_quote = re.compile(r'["\\{}\[\]]').search
_closing_bracket = re.compile(r"[}\]]").match
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# Whitespace that waits for a closing marker; more than this is not waited for.
_MOST_SPACE = 64


class Malformed(Exception):
    """The output does not follow the grammar here."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message


class Frame(ABC):
    """A state on the parser's stack."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def step(self, parser: Parser) -> bool:
        """Do what can be done with the buffer; False when more input is needed."""

    def pass_whole(self, parser: Parser, text: str) -> bool:
        """Emit all of `text` if it is plainly of one kind and changes nothing here; False where `step` must look at it.
        Only a short cut for what most deltas are."""
        return False

    @abstractmethod
    def save(self) -> list[Any]:
        """The state as plain values."""


class Step(Protocol):
    """One instruction for reading calls."""

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        """As `Frame.step`; a step that is done moves `frame.at`."""


class PendingCall:
    """The call that is being read. Until it is accepted or rejected, all of it is held back."""

    __slots__ = ("accepted", "complete", "has_arguments", "held", "held_size", "id", "index", "name", "raw", "rejected")

    def __init__(self) -> None:
        self.index = -1
        self.name = ""
        self.id = ""
        self.accepted = False
        self.rejected = False
        self.has_arguments = False
        self.complete = False
        self.held: list[tuple[int, str, str, int, int]] = []
        """Role, text, value, start and end of each piece."""
        self.held_size = 0
        self.raw: list[str] = []

    def save(self) -> list[Any]:
        return [getattr(self, slot) for slot in self.__slots__]

    @classmethod
    def load(cls, saved: list[Any]) -> PendingCall:
        call = cls()
        for slot, value in zip(cls.__slots__, saved, strict=True):
            setattr(call, slot, value)
        call.held = [tuple(piece) for piece in call.held]  # type: ignore[misc]  # JSON knows no tuples
        return call


class CallsFrame(Frame):
    """Inside the markers of calls: which step comes next."""

    kind = "calls"
    __slots__ = ("accepted", "at", "markers", "rule", "skipping")

    def __init__(self, rule: CallsRule, markers: Markers) -> None:
        self.rule = rule
        self.markers = markers
        """All that can end a call that is malformed."""
        self.at = 0
        self.accepted = False
        """Whether a call has been accepted here. If not, none of the markup here was markup."""
        self.skipping = False
        """Something here was malformed, after calls that were not: up to the nearest marker, all is text."""

    def step(self, parser: Parser) -> bool:
        if self.skipping:
            return self._skip(parser)
        return self.rule.steps[self.at].run(parser, self)

    def give_up(self, parser: Parser) -> None:
        """What comes is no call: it is text. Where calls were accepted before, the closing marker is still to come."""
        if self.accepted and self.rule.close is not None:
            self.skipping = True
            return
        parser.leave_calls()
        if self.rule.close is not None:
            parser.excuse(self.rule.close)

    def _skip(self, parser: Parser) -> bool:
        markers = self.markers
        found = markers.find(parser.buffer, parser.position)
        if found is None:
            end = len(parser.buffer) if parser.at_end else markers.settled(parser.buffer, parser.position)
        else:
            end = found.start()
        if end > parser.position:
            parser.end_call()
            parser.take(end - parser.position, TEXT)
        if found is not None and markers.which(found) is self.rule.close:
            self.close(parser, found.end() - found.start())
        elif found is not None or parser.at_end:
            parser.leave_calls()
        else:
            return False
        return True

    def close(self, parser: Parser, size: int) -> None:
        """Take the closing marker."""
        assert self.rule.close is not None
        parser.take(size, MARKUP)
        parser.trail = self.rule.close.trail if self.accepted else ""
        parser.leave_calls()

    def save(self) -> list[Any]:
        return [self.at, self.accepted, self.skipping]

    @classmethod
    def load(cls, saved: list[Any], rule: CallsRule, markers: Markers) -> CallsFrame:
        frame = cls(rule, markers)
        frame.at, frame.accepted, frame.skipping = saved
        return frame


# --- Steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that must come next, or, with `otherwise`, may: if it does not, go on there."""

    key: str
    otherwise: int = -1

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        comes = parser.next_is(self.key)
        if comes is None:
            return False
        if comes:
            parser.take(len(self.key), MARKUP)
            frame.at += 1
        elif self.otherwise >= 0:
            frame.at = self.otherwise
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, f"a tool call without '{self.key}'")
        return True


@dataclass(frozen=True, slots=True)
class Branch:
    """Go on at `at` if `key` comes next, otherwise with the next step."""

    key: str
    at: int

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        comes = parser.next_is(self.key)
        if comes is None:
            return False
        frame.at = self.at if comes else frame.at + 1
        return True


@dataclass(frozen=True, slots=True)
class Jump:
    at: int

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        frame.at = self.at
        return True


@dataclass(frozen=True, slots=True)
class ReadWord:
    """The call's name or id: characters up to whitespace or punctuation. It is known once something follows it."""

    field: str

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        parser.skip_space()
        buffer, start, most = parser.buffer, parser.position, parser.limits.name
        end = _word(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if end - start > most:
            raise Malformed(diagnostics.TOO_LONG, f"a tool call whose {self.field} is longer than {most} characters")
        if end == len(buffer) and not parser.at_end:
            return False
        if end == start or end == len(buffer):
            raise Malformed(diagnostics.MALFORMED_CALL, f"a tool call without {self.field}")
        setattr(parser.call, self.field, buffer[start:end])
        parser.take(end - start, NAME if self.field == "name" else MARKUP)
        frame.at += 1
        return True


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """The arguments as one JSON object; none at all where a marker comes instead. Here a named call starts: its name is
    known, its id too if it has one, and what follows shows that it is a call."""

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        parser.skip_space()
        markers, buffer, start = frame.markers, parser.buffer, parser.position
        found = markers.find(buffer, start)
        if found is not None and found.start() == start:
            parser.accept_call()
            parser.no_arguments()
        elif buffer.startswith(("{", '"'), start):
            parser.accept_call()
            push_arguments(parser, frame.markers)
        elif not parser.at_end and markers.settled(buffer, start) == start:
            return False
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without arguments")
        frame.at += 1
        return True


@dataclass(frozen=True, slots=True)
class ReadJsonCall:
    node: JsonCall

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        parser.push(JsonCallFrame(self.node, frame.markers))
        frame.at += 1
        return True


@dataclass(frozen=True, slots=True)
class EndCall:
    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        parser.end_call()
        frame.at += 1
        return True


@dataclass(frozen=True, slots=True)
class NextInList:
    """After a call in a list: another one, which is read from step `again` on, or the end of the list."""

    separator: str
    close: str
    again: int

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        for key in (self.separator, self.close):
            comes = parser.next_is(key)
            if comes is None:
                return False
            if comes:
                if key == self.separator:
                    # From here on it is the next call's: if that is no call, the separator is text as well.
                    parser.begin_call()
                    frame.at = self.again
                else:
                    frame.at += 1
                parser.take(len(key), MARKUP)
                return True
        raise Malformed(diagnostics.MALFORMED_CALL, f"a list of tool calls without '{self.close}'")


@dataclass(frozen=True, slots=True)
class Close:
    """The closing marker, where the format has one. The call itself has ended before."""

    def run(self, parser: Parser, frame: CallsFrame) -> bool:
        close = frame.rule.close
        if close is None:
            parser.leave_calls()
            return True
        buffer, start = parser.buffer, parser.position
        end = _space(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if buffer.startswith(close.key, end):
            frame.close(parser, end + len(close.key) - start)
        elif not parser.at_end and end - start < _MOST_SPACE and close.key.startswith(buffer[end:]):
            return False
        elif not frame.rule.close_required:
            parser.leave_calls()
        elif _closing_bracket(buffer, end):
            # A bracket too many is what models get wrong most often, and it is never the answer's text.
            parser.report(diagnostics.MALFORMED_CALL, "a closing bracket too many after a tool call")
            parser.take(end + 1 - start, MARKUP)
        else:
            parser.report(diagnostics.UNCLOSED, f"a tool call without '{close.key}'")
            frame.give_up(parser)
        return True


# --- States that last over several deltas --------------------------------------------------------------------------


class ValueFrame(Frame):
    """One JSON value, passed on as it is: the arguments, or something that is only markup.

    If it breaks, only its brackets and quotes are followed any more, and any marker ends it.
    """

    kind = "value"
    __slots__ = ("depth", "escaped", "lenient", "markers", "quoted", "role", "scanner")

    def __init__(self, scanner: JsonScanner, role: int, markers: Markers) -> None:
        self.scanner = scanner
        self.role = role
        self.markers = markers
        self.lenient = False
        self.depth = 0
        self.quoted = False
        self.escaped = False

    def step(self, parser: Parser) -> bool:
        if self.lenient:
            return self._follow_brackets(parser)
        scanner, start = self.scanner, parser.position
        end = scanner.scan(parser.buffer, start)
        if end > start:
            parser.take(end - start, self.role)
        if scanner.error:
            parser.report(scanner.error, scanner.message)
            self.lenient, self.depth = True, scanner.depth
        elif scanner.done or (parser.at_end and scanner.finish()):
            self._finish(parser)
        elif parser.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        else:
            return False
        return True

    def pass_whole(self, parser: Parser, text: str) -> bool:
        if self.lenient or not self.scanner.pass_string(text):
            return False
        parser.emit(self.role, text)
        return True

    @property
    def in_string(self) -> bool:
        return self.quoted if self.lenient else self.scanner.in_string

    def _finish(self, parser: Parser) -> None:
        parser.pop()
        if self.role == ARGUMENTS:
            finish_arguments(parser, self.scanner)

    def _follow_brackets(self, parser: Parser) -> bool:
        buffer, start = parser.buffer, parser.position
        found = self.markers.find(buffer, start)
        if found is not None:
            limit = found.start()
        else:
            limit = len(buffer) if parser.at_end else self.markers.settled(buffer, start)
        end = self._balanced_end(buffer, start, limit)
        closed = end >= 0
        if not closed:
            end = limit
        if end > start:
            parser.take(end - start, self.role)
        if closed or found is not None:
            self._finish(parser)
            return True
        if parser.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        return False

    def _balanced_end(self, buffer: str, at: int, limit: int) -> int:
        """Where the last open bracket closes, or -1."""
        while at < limit:
            if self.escaped:
                self.escaped = False
                at += 1
                continue
            mark = _bracket_or_quote(buffer, at, limit)
            if mark is None:
                return -1
            at = mark.end()
            char = mark.group()
            if char == '"':
                self.quoted = not self.quoted
            elif char == "\\":
                self.escaped = self.quoted
            elif not self.quoted:
                self.depth += 1 if char in "{[" else -1
                if self.depth == 0:
                    return at
        return -1

    def save(self) -> list[Any]:
        return [self.scanner.save(), self.role, self.lenient, self.depth, self.quoted, self.escaped]

    @classmethod
    def load(cls, saved: list[Any], limits: Limits, markers: Markers) -> ValueFrame:
        scanner, role, *rest = saved
        frame = cls(JsonScanner.load(scanner, limits), role, markers)
        frame.lenient, frame.depth, frame.quoted, frame.escaped = rest
        return frame


class QuotedArgumentsFrame(Frame):
    """Arguments that the model wrote as a JSON string: what the string says is passed on."""

    kind = "quoted"
    __slots__ = ("empty", "opened", "scanner")

    def __init__(self, scanner: JsonScanner) -> None:
        self.scanner = scanner
        self.opened = False
        self.empty = True

    def step(self, parser: Parser) -> bool:
        if not self.opened:
            parser.take(1, MARKUP)
            self.opened = True
        buffer, start = parser.buffer, parser.position
        end = _plain(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if end > start:
            self._check(buffer[start:end])
            parser.take(end - start, ARGUMENTS)
        elif start == len(buffer):
            if parser.at_end:
                raise Malformed(diagnostics.UNFINISHED_CALL, "")
            return False
        elif buffer[start] == '"':
            parser.take(1, MARKUP)
            self._finish(parser)
        else:
            size, value = self._unescape(parser)
            if not size:
                return False
            self._check(value)
            parser.take(size, ARGUMENTS, value)
        return True

    def _unescape(self, parser: Parser) -> tuple[int, str]:
        """The length of the escape that comes next and what it stands for; length 0 when more input is needed."""
        buffer, start = parser.buffer, parser.position
        escape = _escape(buffer, start)
        if escape is None:
            if _partial_escape(buffer, start) and not parser.at_end:
                return 0, ""
            parser.report(diagnostics.MALFORMED_JSON, "a backslash that escapes nothing")
            return 1, "\\"
        text = escape.group()
        if text[1] != "u":
            return 2, _ESCAPED[text[1]]
        high = int(text[2:], 16)
        if not 0xD800 <= high < 0xE000:
            return 6, chr(high)
        second = _escape(buffer, start + 6)
        if second is None and not parser.at_end and (len(buffer) == start + 6 or _partial_escape(buffer, start + 6)):
            return 0, ""
        if second is not None and second.group()[1] == "u" and high < 0xDC00:
            low = int(second.group()[2:], 16)
            if 0xDC00 <= low < 0xE000:
                return 12, chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        # Half of a pair is no character: it stays the escape that it is.
        return 6, text

    def _check(self, value: str) -> None:
        self.empty = False
        end = self.scanner.scan(value, 0)
        if self.scanner.done and value[end:].strip():
            self.scanner.flaw = "text follows the arguments"

    def _finish(self, parser: Parser) -> None:
        parser.pop()
        if self.empty:
            parser.no_arguments()
            return
        self.scanner.finish()
        if self.scanner.error:
            parser.report(self.scanner.error, self.scanner.message)
        finish_arguments(parser, self.scanner)

    def save(self) -> list[Any]:
        return [self.scanner.save(), self.opened, self.empty]

    @classmethod
    def load(cls, saved: list[Any], limits: Limits) -> QuotedArgumentsFrame:
        frame = cls(JsonScanner.load(saved[0], limits))
        frame.opened, frame.empty = saved[1:]
        return frame


def push_arguments(parser: Parser, markers: Markers) -> None:
    """Read the arguments that come next: JSON, or a string that holds it."""
    scanner = JsonScanner(parser.limits)
    quoted = parser.buffer.startswith('"', parser.position)
    parser.push(QuotedArgumentsFrame(scanner) if quoted else ValueFrame(scanner, ARGUMENTS, markers))


def finish_arguments(parser: Parser, scanner: JsonScanner) -> None:
    """The arguments are over: are they what arguments should be?"""
    call = parser.call
    call.has_arguments = True
    call.complete = scanner.done and not scanner.flaw
    if scanner.flaw:
        parser.report(diagnostics.MALFORMED_JSON, scanner.flaw)
    elif scanner.done and not scanner.is_object:
        parser.report(diagnostics.ARGUMENTS_NOT_OBJECT, "a tool call's arguments are not a JSON object")
    elif not scanner.done and not scanner.error:
        parser.report(diagnostics.MALFORMED_JSON, "a tool call's arguments end too early")


class JsonCallFrame(Frame):
    """A call as one JSON object. Name and arguments may come in either order."""

    kind = "json_call"
    __slots__ = ("key", "markers", "node", "state")

    _OPEN, _FIRST_KEY, _KEY, _COLON, _VALUE, _NEXT = range(6)
    _MOVES: ClassVar = {(_OPEN, "{"): _FIRST_KEY, (_COLON, ":"): _VALUE, (_NEXT, ","): _KEY}

    def __init__(self, node: JsonCall, markers: Markers) -> None:
        self.node = node
        self.markers = markers
        self.state = self._OPEN
        self.key = ""

    def step(self, parser: Parser) -> bool:
        parser.skip_space()
        if parser.position == len(parser.buffer):
            if parser.at_end:
                raise Malformed(diagnostics.UNFINISHED_CALL, "")
            return False
        char, state = parser.buffer[parser.position], self.state
        if (state, char) in self._MOVES:
            parser.take(1, MARKUP)
            self.state = self._MOVES[state, char]
        elif state == self._VALUE:
            return self._value(parser, char)
        elif char == '"' and state in (self._FIRST_KEY, self._KEY):
            string = self._whole_string(parser)
            if string is None:
                return False
            self.key, self.state = _unquote(parser.spell(string)), self._COLON
            parser.take(len(string), MARKUP)
        elif char == "}" and state in (self._FIRST_KEY, self._NEXT):
            self._end(parser)
        else:
            raise Malformed(diagnostics.MALFORMED_CALL, f"'{char}' does not belong in a tool call here")
        return True

    def _value(self, parser: Parser, char: str) -> bool:
        call, key = parser.call, self.key
        if key == self.node.name and not call.name:
            if char != '"':
                raise Malformed(diagnostics.MALFORMED_CALL, "a tool call whose name is not a string")
            string = self._whole_string(parser)
            if string is None:
                return False
            call.name = _unquote(parser.spell(string))
            parser.take(1, MARKUP)
            parser.take(len(string) - 2, NAME)
            parser.take(1, MARKUP)
            parser.accept_call()
        elif key in self.node.arguments and not call.has_arguments and char != "n":
            call.has_arguments = True
            push_arguments(parser, self.markers)
        elif key == self.node.id and char == '"' and not call.id and not call.accepted:
            string = self._whole_string(parser)
            if string is None:
                return False
            call.id = _unquote(parser.spell(string))
            parser.take(len(string), MARKUP)
        else:
            # An id that comes too late, arguments that are null, or something that does not belong here.
            known = {self.node.id, *self.node.ignored, *(() if call.has_arguments else self.node.arguments)}
            if key not in known:
                parser.report(diagnostics.UNEXPECTED_KEY, f"a tool call with an unexpected key '{key}'")
            parser.push(ValueFrame(JsonScanner(parser.limits), MARKUP, self.markers))
        self.state = self._NEXT
        return True

    def _end(self, parser: Parser) -> None:
        if not parser.call.name:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without a name")
        parser.take(1, MARKUP)
        parser.pop()
        if not parser.call.has_arguments:
            parser.no_arguments()

    def _whole_string(self, parser: Parser) -> str | None:
        """The string that comes next, with its quotes; None when more input is needed."""
        buffer, start, most = parser.buffer, parser.position, parser.limits.name + 2
        found = _string(buffer, start)
        size = (found.end() if found else len(buffer)) - start
        if size > most:
            raise Malformed(diagnostics.TOO_LONG, f"a name or key of a tool call longer than {most - 2} characters")
        if found is None:
            if parser.at_end:
                raise Malformed(diagnostics.UNFINISHED_CALL, "")
            return None
        return found.group()

    def save(self) -> list[Any]:
        return [self.state, self.key]

    @classmethod
    def load(cls, saved: list[Any], node: JsonCall, markers: Markers) -> JsonCallFrame:
        frame = cls(node, markers)
        frame.state, frame.key = saved
        return frame


def _unquote(string: str) -> str:
    try:
        text = str(json.loads(string, strict=False))
        text.encode()  # half a surrogate pair is no text
    except ValueError:
        raise Malformed(diagnostics.MALFORMED_CALL, "a tool call with a broken escape in a name or key") from None
    return text
