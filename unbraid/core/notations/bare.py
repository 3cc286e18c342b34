"""Bare-key notation: one object with unquoted keys and quotes of its own, `{key:<quote>text<quote>,n:1}`.

The quotes say what is a string. Models leave them out: then a value is a string if the tool's schema says so, or if it
is no number and no word. Or they put them around a number or an array, where the schema has no strings: it is one all
the same, as to the families' engines. The quotes of JSON and Python are read as well. Where the object breaks, its
text is passed on as it is, and any marker ends it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar

from ...errors import UnbraidError
from ...schema.kinds import ANY_KIND, STRING
from .. import diagnostics
from ..events import Event
from ..fast_import import frozen, lazily
from ..json_text import Number, decode, escape, is_number, may_become_number, quote
from ..machine.calls import CallsFrame, Step
from ..machine.machine import FastPath, Frame, Machine, State
from ..machine.markers import NOT_YET, Answers, Marker, Markers, run_of, space_end
from ..machine.output import ARGUMENTS, MARKUP, PENDING
from ..machine.steps import ReadObject
from ..machine.whole_calls import WholeArguments
from ..message import ToolCall
from .base import CallNotation, NotationPlace, ObjectWriter, string_path
from .json_scanner import JsonScanner, may_unquote, unquoted
from .python_values import WORDS, string_as_json, string_run

# What comes next: an item or the end of what is open, a value, a comma or that end; more of a string, more of one
# between other quotes, more of bare text that is one, more of what may be none; anything, since it broke.
_ITEM, _VALUE, _NEXT, _STRING, _QUOTED, _TEXT, _HELD, _BROKEN = range(8)

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
OPENERS = ("{", "(")
"""The first character of the arguments. Models that have seen much Python write the brackets of a call."""
_COLONS, _OTHER_QUOTES = ":=", "\"'"
"""Likewise they write Python's sign after a name, and its quotes."""

_key = re.compile(r"[^:=,{}\[\]()<>\x00-\x1f\ud800-\udfff]*")
_text_end = {"{": run_of(r"[^,}\]]*"), "(": run_of(r"[^,})\]]*")}


def is_bare_key(key: str) -> bool:
    """Whether a key can stand bare."""
    return bool(_key.fullmatch(key)) and key == key.strip() and not any(quote in key for quote in _OTHER_QUOTES)


def _unquoted(key: str) -> str:
    """A key without the quotes that it should not have."""
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] and key[0] in _OTHER_QUOTES else key


@frozen
class BareArguments(CallNotation):
    """The arguments as one object whose keys stand bare, and whose strings stand raw between quotes of their own:
    `{key:<quote>text<quote>,n:1}`."""

    quote: str

    def step(self, place: NotationPlace) -> Step:
        return ReadBare(place.following, BareRule(place.key(self.quote)))

    def whole(self, place: NotationPlace) -> WholeArguments:
        return WholeArguments(lambda *_: None)  # what comes before them is read at once, and they are not

    def write(self, call: ToolCall, number: int) -> str:
        quote = self.quote

        def key(text: str) -> str:
            return text if is_bare_key(text) else quote + text + quote

        def entry(name: str, value: object) -> str:
            if not self.can_name(name):
                raise UnbraidError(f"a key {name[:40]!r} cannot be written in this format: it has {quote!r} in it")
            return f"{key(name)}:{spelled(value)}"

        def spelled(value: object) -> str:
            if isinstance(value, dict):
                return "{" + ",".join(entry(name, inner) for name, inner in value.items()) + "}"
            if isinstance(value, list):
                return "[" + ",".join(map(spelled, value)) + "]"
            if isinstance(value, str):
                if quote in value:
                    raise UnbraidError(f"a string with {quote!r} in it cannot be written in this format: it ends there")
                return str(value) if isinstance(value, Number) else quote + value + quote
            # The template writes true and false as JSON does, and None as Python.
            return "None" if value is None else json.dumps(value)

        return spelled({name: decode(value) for name, value in self.members(call).items()})

    def can_name(self, key: str) -> bool:
        return self.quote not in key


_plain_key = lazily(lambda: re.compile(r",?(?P<key>[\w.-]*)(?P<colon>(?<=[\w.-]):)?").fullmatch)


@dataclass(slots=True, eq=False, repr=False)
class ReadBare(ReadObject):
    """Begins the arguments."""

    opens: ClassVar = OPENERS
    rule: BareRule

    def begin(self, machine: Machine, frame: CallsFrame) -> None:
        bracket = machine.buffer[machine.position]
        machine.take(1, MARKUP)
        machine.push(BareArgumentsFrame(self.rule, frame.markers, bracket))

    def frame(self, markers: Markers) -> Frame:
        return BareArgumentsFrame(self.rule, markers)


class BareRule:
    """The quotes around strings, and the keys between them as templates write them."""

    def __init__(self, quote: str) -> None:
        self.quote = quote
        self.quotes = Markers([Marker("close", "", quote)])
        self.string = string_path(self.quotes)
        self.keys = Answers(_written_key)
        """The key that a text is, with the colon after it and the comma before; "" where it may become one."""


def _written_key(text: str) -> str | None:
    match = _plain_key(text)
    if match is None:
        return None
    return match["key"] if match["colon"] else ""


class BareArgumentsFrame(Frame):
    """`{key:value, …}`. Where that breaks, all is passed on as it is, and any marker ends it."""

    kind = "bare"
    opened_by = ("calls",)
    about = State(
        reads="an object with bare keys",
        ends="its closing bracket",
        malformed="passed on up to the nearest marker",
    )
    saved = ("inner", "keys", "lead", "no_text", "only_text", "open", "other_quote", "size", "state", "texts")
    __slots__ = (*saved, "markers", "rule")

    def __init__(self, rule: BareRule, markers: Markers, open: str = "{") -> None:
        self.rule = rule
        self.markers = markers
        self.keys = ObjectWriter()
        self.open = open
        """The brackets that are open."""
        self.state = _ITEM
        self.lead = ""
        """Text to write before the next item: the comma, which may also have come after the last."""
        self.only_text = False
        """Whether the schema says that the value is a string, however it looks."""
        self.no_text: list[str] = []
        """The kinds of the value, where the schema says that it is no string."""
        self.other_quote = ""
        """The other quote that a string is open with."""
        self.inner: JsonScanner | None = None
        """Checks what stands between quotes where the schema has no string."""
        self.texts: list[str] = []
        """It, as far as it has come."""
        self.size = 0

    @property
    def in_string(self) -> bool:
        return self.state in (_STRING, _QUOTED, _HELD)

    def step(self, machine: Machine) -> bool:
        if self.state >= _STRING:
            return self._go_on(machine)
        machine.skip_space()
        buffer, at = machine.buffer, machine.position
        if at == len(buffer):
            return machine.needs_more()
        quoted, marker = self.rule.quotes.matches_at(buffer, at), self.markers.matches_at(buffer, at)
        if NOT_YET in (quoted, marker) and not machine.at_end:
            return False
        if marker:
            return self._break(machine, "a marker in the middle of the arguments")
        char = buffer[at]
        if self.state != _VALUE and char == _CLOSERS[self.open[-1]]:
            self._close(machine, char)
        elif self.state == _NEXT and char == ",":
            machine.take(1, MARKUP)
            # Before the next argument, its key knows of the comma.
            self.state, self.lead = _ITEM, ", " if len(self.open) > 1 else ""
        elif self.state == _NEXT:
            return self._break(machine, f"'{char}' where ',' or '{_CLOSERS[self.open[-1]]}' should be")
        elif self.state == _ITEM and self.open[-1] != "[":
            return self._read_key(machine, bool(quoted))
        elif quoted or char in _OTHER_QUOTES:
            return self._open_string(machine, "" if quoted else char)
        elif char in "{[":
            return self._nest(machine, char)
        elif char in ",:}])":
            return self._break(machine, f"'{char}' where a value should be")
        else:
            return self._begin_text(machine)
        return True

    def _go_on(self, machine: Machine) -> bool:
        if self.state == _STRING:
            return self._string(machine)
        if self.state == _QUOTED:
            return self._quoted(machine)
        if self.state == _HELD:
            return self._held(machine)
        return self._more_text(machine) if self.state == _TEXT else machine.pass_to_marker(self.markers)

    def fast_path(self, machine: Machine) -> FastPath | None:
        return self._pass if self.state == _STRING and machine.call.accepted else None

    def _pass(self, machine: Machine, text: str) -> list[Event] | None:
        if text != self.rule.quote or machine.fast_path is None:
            return self.rule.string(machine, text)
        return self._pass_quote(machine, text, _NEXT)

    def held_path(self, machine: Machine) -> FastPath | None:
        waits = self.state in (_ITEM, _VALUE, _NEXT) and self.open == "{" and not self.markers.in_words
        return self._wait if waits and machine.call.accepted and machine.in_short else None

    def _wait(self, machine: Machine, text: str) -> list[Event] | None:
        """The fast path between strings, for what comes as templates write it."""
        rest = machine.buffer[machine.position :] + text
        if self.state == _VALUE:
            return self._pass_quote(machine, rest, _STRING) if rest == self.rule.quote and not self.no_text else None
        if rest == "}" and not self.keys.empty and self.state == _NEXT:
            machine.buffer, machine.position = rest, 0
            self._close(machine, rest)
            machine.run()
            return machine.go_on()
        if (rest[0] == ",") == self.keys.empty or len(rest) > machine.limits.name:
            return None
        key = self.rule.keys[rest]
        if key == "":
            return machine.hold(rest)
        if key is None or key in self.keys or (self.state == _ITEM) != self.keys.empty:
            return None
        comma = 0 if self.keys.empty else 1
        if comma:
            machine.pass_space(",")
        self._expect(machine, key)
        self.state, machine.fast_path = _VALUE, self._wait
        return machine.pass_markup(rest[comma:], self.keys.begin(machine, key), len(rest) - comma)

    def _pass_quote(self, machine: Machine, text: str, state: int) -> list[Event]:
        """Take the quote before a string, or after it."""
        self.state, self.other_quote = state, ""
        machine.fast_path = self.fast_path(machine) or self.held_path(machine)
        return machine.pass_markup(text, '"', len(text))

    def _write(self, machine: Machine, size: int, value: str) -> None:
        machine.take(size, ARGUMENTS, self.lead + value)
        self.lead = ""

    def _nest(self, machine: Machine, char: str) -> bool:
        if len(self.open) >= machine.limits.depth:
            return self._break(machine, f"arguments nest deeper than {machine.limits.depth}", diagnostics.TOO_DEEP)
        self._write(machine, 1, char)
        self.open, self.state, self.only_text, self.no_text = self.open + char, _ITEM, False, []
        return True

    def _close(self, machine: Machine, char: str) -> None:
        if len(self.open) == 1:
            machine.take(1, MARKUP)
            machine.pop()
            self.keys.end(machine)
            return
        machine.take(1, ARGUMENTS, char)
        self.open, self.state, self.lead = self.open[:-1], _NEXT, ""

    def _quote_size(self, machine: Machine) -> int:
        """The size of the quote that comes next."""
        match = self.rule.quotes.at(machine.buffer, machine.position)
        return match.end() - match.start()  # type: ignore[union-attr]  # the caller has seen it

    # --- Keys ------------------------------------------------------------------------------------------------------

    def _read_key(self, machine: Machine, quoted: bool) -> bool:
        """A key, bare or between quotes, and the colon after it. Nothing of it goes out before it is whole."""
        buffer, start, most = machine.buffer, machine.position, machine.limits.name
        if quoted:
            begin = start + self._quote_size(machine)
            match = self.rule.quotes.find(buffer, begin)
            stop = match.start() if match is not None else self.rule.quotes.safe_end(buffer, begin)
            end = match.end() if match is not None else len(buffer)
        else:
            begin = start
            stop = end = _key.match(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        colon = space_end(buffer, end)
        if stop - begin > most or colon - end > most:
            return self._break(machine, f"a name longer than {most} characters", diagnostics.TOO_LONG)
        if colon == len(buffer):
            return machine.needs_more()
        if buffer[colon] not in _COLONS:
            return self._break(machine, f"'{buffer[colon]}' where ':' should be")
        key = machine.spell(buffer[begin:stop]) if quoted else _unquoted(buffer[begin:stop].rstrip())
        self._expect(machine, key)
        before = self.keys.begin(machine, key) if len(self.open) == 1 else f"{quote(key)}: "
        self._write(machine, colon + 1 - start, before)
        self.state = _VALUE
        return True

    def _expect(self, machine: Machine, key: str) -> None:
        """The value of this key comes next."""
        kinds = machine.kinds(key) if len(self.open) == 1 else ANY_KIND
        self.only_text = kinds == {STRING}
        self.no_text = [] if STRING in kinds else sorted(kinds)

    # --- Values ----------------------------------------------------------------------------------------------------

    def _open_string(self, machine: Machine, other_quote: str) -> bool:
        """A string, or what should stand without quotes, where the schema has no strings."""
        size = 1 if other_quote else self._quote_size(machine)
        if self.no_text and self.state == _VALUE:
            if not other_quote:
                machine.take(size, PENDING)
                self.state, self.inner, self.texts, self.size = _HELD, JsonScanner(machine.limits), [], 0
                return True
            held = self._between_other_quotes(machine, other_quote)
            if held is not None:
                return held
        self._write(machine, size, '"')
        self.state, self.other_quote = (_QUOTED, other_quote) if other_quote else (_STRING, "")
        return True

    def _between_other_quotes(self, machine: Machine, other_quote: str) -> bool | None:
        """A number or a word. Returns as `step` does; None where it is a string."""
        buffer, begin = machine.buffer, machine.position + 1
        end = buffer.find(other_quote, begin)
        text = buffer[begin : len(buffer) if end < 0 else end].strip()
        inner = JsonScanner(machine.limits)
        if not may_unquote(inner, text, [kind for kind in self.no_text if kind not in ("array", "object")]):
            return None
        if end < 0:
            return None if machine.at_end or len(buffer) - begin > machine.limits.number else False
        value = self._unquoted(machine, inner, text)
        if not value:
            return None
        self._write(machine, end + 1 - machine.position, value)
        self.state = _NEXT
        return True

    def _unquoted(self, machine: Machine, inner: JsonScanner, text: str) -> str:
        """The value between quotes, or "" where it is a string."""
        value = unquoted(inner, text)
        if value:
            machine.report(diagnostics.REPAIRED, f"{text.strip():.40} between quotes, where the schema has no string")
        return value

    def _held(self, machine: Machine) -> bool:
        """What stands between the quotes, where the schema has no string: it waits as long as it can be no string."""
        inner, buffer, start = self.inner, machine.buffer, machine.position
        assert inner is not None
        match, end = machine.find(self.rule.quotes)
        if end > start:
            self.texts.append(machine.spell(buffer[start:end]))
            self.size += end - start
            machine.take(end - start, PENDING)
            if self.size > machine.limits.held or not may_unquote(inner, self.texts[-1], self.no_text):
                return self._is_string(machine)
        if match is None:
            return self._is_string(machine) if machine.at_end else False
        value = self._unquoted(machine, inner, "".join(self.texts))
        if not value:
            return self._is_string(machine)
        machine.take(match.end() - end, PENDING)
        machine.resolve_pending(lambda _: value)
        self.state, self.inner, self.texts = _NEXT, None, []
        return True

    def _is_string(self, machine: Machine) -> bool:
        machine.resolve_pending(lambda _: '"' + escape("".join(self.texts)))
        self.state, self.inner, self.texts = _STRING, None, []
        return True

    def _string(self, machine: Machine) -> bool:
        buffer, start = machine.buffer, machine.position
        match, end = machine.find(self.rule.quotes)
        if end > start:
            machine.take(end - start, ARGUMENTS, escape(machine.spell(buffer[start:end])))
        if match is None:
            return machine.needs_more()
        machine.take(match.end() - end, ARGUMENTS, '"')
        self.state = _NEXT
        return True

    def _quoted(self, machine: Machine) -> bool:
        """A string between quotes that the model should not write, as Python reads it. A marker in it shows that these
        were none."""
        buffer, start = machine.buffer, machine.position
        run = string_run[self.other_quote]
        end = run(buffer, start).end()  # type: ignore[union-attr]  # an empty match always exists
        match = self.markers.find(buffer, start, end)
        if match is not None:
            end = run(buffer, start, match.start()).end()  # type: ignore[union-attr]
        elif end == len(buffer) and not machine.at_end:
            end = run(buffer, start, self.markers.safe_end(buffer, start)).end()  # type: ignore[union-attr]
        if end > start:
            value = string_as_json(machine.spell(buffer[start:end]))
            machine.take(end - start, ARGUMENTS if value else MARKUP, value or None)
        if match is not None:
            return self._break(machine, f"a string without {self.other_quote} at its end")
        if not buffer.startswith(self.other_quote, end):
            return machine.needs_more()
        machine.take(1, ARGUMENTS, '"')
        self.state = _NEXT
        return True

    def _text_end(self, machine: Machine) -> tuple[int, bool]:
        """How far bare text goes, and whether it ends there."""
        buffer, start = machine.buffer, machine.position
        stop = _text_end["(" if self.open == "(" else "{"](buffer, start)
        sets = self.markers, self.rule.quotes
        stops = [one.start() for one in (some.find(buffer, start, stop) for some in sets) if one is not None]
        if stops or stop < len(buffer) or machine.at_end:
            return min(stops, default=stop), True
        return min(some.safe_end(buffer, start) for some in sets), False

    def _begin_text(self, machine: Machine) -> bool:
        """A number or a word is known when it ends; anything else is a string from where it cannot be one of these."""
        start = machine.position
        end, over = self._text_end(machine)
        text = machine.buffer[start:end]
        bare = text.rstrip()
        if not self.only_text and len(text) <= machine.limits.number:
            if over and (is_number(bare) or bare in WORDS):
                self._write(machine, end - start, WORDS.get(bare, bare))
                self.state = _NEXT
                return True
            whole = bare != text
            words = [word for word in WORDS if (word == bare if whole else word.startswith(bare))]
            if not over and (words or (is_number(bare) if whole else may_become_number(bare))):
                return False
        machine.add_arguments(f'{self.lead}"')
        self.state, self.lead = _TEXT, ""
        return True

    def _more_text(self, machine: Machine) -> bool:
        start = machine.position
        end, over = self._text_end(machine)
        text = machine.buffer[start:end]
        # Whitespace at the end is not the string's, and elsewhere it is; but no more of it is held back than this.
        space = (len(text) - len(text.rstrip())) % (machine.limits.name + 1)
        if size := len(text) - space:
            machine.take(size, ARGUMENTS, escape(machine.spell(text[:size])))
        if not over:
            return False
        if space:
            machine.take(space, MARKUP)
        machine.add_arguments('"')
        self.state = _NEXT
        return True

    # --- What breaks -----------------------------------------------------------------------------------------------

    def _break(self, machine: Machine, message: str, kind: str = diagnostics.MALFORMED_JSON) -> bool:
        machine.report(kind, message)
        if self.lead:
            machine.add_arguments(self.lead)
        machine.call.flawed = True
        self.state = _BROKEN
        return True
