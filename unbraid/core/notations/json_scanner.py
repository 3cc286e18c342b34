"""One JSON value, checked strictly while it passes by.

The scanner gets text as it arrives and says how far the value goes. It never holds text back, and never looks at a
character twice. Its state is a handful of plain values, however much has passed, and the keys of the outermost object,
up to a limit: a key that comes twice is reported.

`may_unquote` and `unquoted` are for a value that a model put between quotes where the schema has no string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Literal

from .. import diagnostics
from ..limits import Limits
from .python_values import WORDS

# What may come next.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT_ITEM, _NEXT_MEMBER = range(7)
# Inside something.
STRING, _ESCAPE, _HEX, _SCALAR, _DONE, _BROKEN, _NAME = range(7, 14)

_VALUE_STARTS = {'"': STRING, **dict.fromkeys("-0123456789tfn", _SCALAR)}
_MOVES = (
    _VALUE_STARTS,
    _VALUE_STARTS,
    {'"': _NAME},
    {'"': _NAME},
    {":": _VALUE},
    {",": _VALUE},
    {",": _KEY},
)
"""What a character does where something may come next: the state after it. Brackets do more (`_bracket`)."""
_SPACE = frozenset(" \t\n\r")
_whitespace = re.compile(r"[ \t\n\r]*").match
# Characters and short escapes inside a string. Written as ranges and possessively, which `re` runs fastest.
_CHARS = r"[ !#-\[\]-\U0010ffff]*+"


def _compile_in_string(text: str, position: int) -> re.Match[str] | None:
    """Puts the compiled pattern in its own place, with the first call. It is too hot for `lazily`."""
    global _in_string
    _in_string = re.compile(rf'{_CHARS}(?:\\["\\/bfnrt]{_CHARS})*+').match
    return _in_string(text, position)


signs = re.compile(r'["\\\x00-\x1f]').search
"""The nearest character that means something inside a string. Most text has none."""
_in_string: Callable[[str, int], re.Match[str] | None] = _compile_in_string
_scalar = re.compile(r"[-+.0-9A-Za-z]*").match
_is_scalar = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)\Z").match
_ESCAPES = frozenset('"\\/bfnrt')

Missing = Literal["", "value", "item"]
"""A value; or an item of what is open, which may also have been at its end."""
_VALUES = (_VALUE, _FIRST_ITEM)
_ENDS = {"]": (_FIRST_ITEM, _NEXT_ITEM), "}": (_FIRST_KEY, _NEXT_MEMBER)}
"""Where a bracket closes what is open."""
_EXPECTED = ("a value", "a value", "a key", "a key", "':'", "',' or the end of '['", "',' or the end of '{'")
_MISSING: dict[int, Missing] = {_VALUE: "value", _FIRST_ITEM: "item", _FIRST_KEY: "item", _KEY: "item"}


class JsonScanner:
    """Scans one value. `error` is set where the value breaks; `flaw` where it is not quite JSON, but its end can still
    be told (a raw line break in a string, an escape that JSON does not know), and the scan goes on."""

    saved = (
        *("_hex", "_in_key", "_key", "_scalar", "_wary", "open", "state"),
        *("done", "duplicate", "keys", "error", "flaw", "is_object", "member", "message", "missing", "paused", "stops"),
    )
    """All of its state but the limits."""
    __slots__ = ("_limits", *saved)

    def __init__(self, limits: Limits, wary: str = "") -> None:
        self._limits = limits
        self._wary = wary
        """Brackets to pause at: they may begin a marker as well as a value. To scan on from there means: a value."""
        self.paused = False
        self.state = _VALUE
        self.open = ""
        """The brackets that are open."""
        self._in_key = False
        self._key = ""
        """The beginning of a key of the outermost object, so far."""
        self.keys: list[str] = []
        """The keys before it, as they are spelled."""
        self.duplicate = ""
        """The first key that came twice."""
        self.stops = False
        """Whether to stop after each key of the outermost object: whoever scans looks at its value first."""
        self.member = ""
        """The key that it has stopped after."""
        self._hex = 0
        self._scalar = ""
        self.done = False
        self.is_object = False
        self.flaw = ""
        self.error = ""
        self.message = ""
        self.missing: Missing = ""
        """What should have come, where it broke."""

    @property
    def in_string(self) -> bool:
        return self.state in (STRING, _NAME, _ESCAPE, _HEX)

    def scan(self, text: str, position: int) -> int:
        """Go through `text` from `position`; the position after the value, after the text, of the error, or of a
        bracket at which it is `paused`."""
        size = len(text)
        while position < size:
            state = self.state
            if state == STRING:
                position = _in_string(text, position).end()  # type: ignore[union-attr]  # an empty match always exists
                if position == size:
                    break
                char = text[position]
                position += 1
                if char == '"':
                    self.state = self._after_value()
                elif char == "\\":
                    self.state, self._in_key = _ESCAPE, False
                else:
                    self.flaw = "a control character stands unescaped in a string"
            elif state <= _NEXT_MEMBER:
                char = text[position]
                following = _MOVES[state].get(char)
                if following is not None:
                    self.state = following
                    position += 1
                    if following == _SCALAR:
                        self._scalar = char
                elif char in _SPACE:
                    position = _whitespace(text, position).end()  # type: ignore[union-attr]
                elif char in self._wary and state in _VALUES and not self.paused:
                    self.paused = True
                    return position
                else:
                    self.paused = False
                    if not self._bracket(char):
                        return position
                    position += 1
            elif state == _NAME:
                stop = _in_string(text, position).end()  # type: ignore[union-attr]  # an empty match always exists
                outermost = self.open == "{"
                if outermost:
                    self._more_of_key(text[position:stop])
                if stop == size:
                    return stop
                position = stop + 1
                if text[stop] == '"':
                    self.state = _COLON
                    if outermost:
                        self._remember()
                        if self.member:
                            return position
                    continue
                self._more_of_key(text[stop])
                if text[stop] == "\\":
                    self.state, self._in_key = _ESCAPE, True
                else:
                    self.flaw = "a control character stands unescaped in a string"
            elif state == _SCALAR:
                stop = _scalar(text, position).end()  # type: ignore[union-attr]
                if stop > position:
                    room = self._limits.number - len(self._scalar)
                    if stop - position > room:
                        self._break(diagnostics.TOO_LONG, f"a number has more than {self._limits.number} characters")
                        return position + room
                    self._scalar += text[position:stop]
                if stop == size or not self._end_scalar():
                    return stop
                position = stop
            elif state == _ESCAPE:
                char = text[position]
                position += 1
                if self._in_key:
                    self._more_of_key(char)
                if char == "u":
                    self.state, self._hex = _HEX, 4
                else:
                    self.state = _NAME if self._in_key else STRING
                    if char not in _ESCAPES:
                        self.flaw = f"'\\{char}' is no escape in JSON"
            elif state == _HEX:
                if text[position] in "0123456789abcdefABCDEF":
                    if self._in_key:
                        self._more_of_key(text[position])
                    position += 1
                    self._hex -= 1
                    if not self._hex:
                        self.state = _NAME if self._in_key else STRING
                else:
                    self.state = _NAME if self._in_key else STRING
                    self.flaw = "'\\u' is not followed by four hexadecimal digits"
            else:
                break
        return position

    def finish(self) -> bool:
        """No more text comes. Returns whether the value is whole: only the end of the text ends a bare number."""
        if self.state == _SCALAR:
            self._end_scalar()
        return self.done

    @property
    def needs_item(self) -> bool:
        """Whether a value or a key must come next, or should have."""
        return self.state in (_VALUE, _KEY) or bool(self.missing)

    @property
    def expects_value(self) -> bool:
        return self.state == _VALUE

    def forgive_comma(self) -> None:
        """It broke where a closing bracket came after a comma: go on as if there were no comma."""
        self.state, self.error, self.message, self.missing = self._after_value(), "", "", ""

    def fail(self, message: str) -> None:
        """The value cannot go on here, for a reason that is not in the text of it."""
        self.paused = False
        self._break(diagnostics.MALFORMED_JSON, message)

    def _more_of_key(self, text: str) -> None:
        if self.open == "{":
            self._key = (self._key + text)[: self._limits.name + 1]

    def _remember(self) -> None:
        """A key of the outermost object is whole."""
        key, self._key = self._key, ""
        if self.stops:
            self.member = key
        if key in self.keys:
            self.duplicate = self.duplicate or f"'{key}'"
        elif len(key) <= self._limits.name and len(self.keys) < self._limits.arguments:
            self.keys.append(key)

    def _bracket(self, char: str) -> bool:
        """Take a bracket outside strings. False if it does not belong there, or is none."""
        state = self.state
        if char == "{" or char == "[":
            if state not in _VALUES:
                return self._unexpected(char)
            if len(self.open) >= self._limits.depth:
                return self._break(diagnostics.TOO_DEEP, f"arguments nest deeper than {self._limits.depth}")
            if not self.open:
                self.is_object = char == "{"
            self.open += char
            self.state = _FIRST_KEY if char == "{" else _FIRST_ITEM
        elif state in _ENDS.get(char, ()):
            self.open = self.open[:-1]
            self.state = self._after_value()
        else:
            return self._unexpected(char)
        return True

    def _unexpected(self, char: str) -> bool:
        return self._break(diagnostics.MALFORMED_JSON, f"'{char}' where {_EXPECTED[self.state]} should be")

    def _after_value(self) -> int:
        self.done = not self.open
        return _DONE if self.done else _NEXT_MEMBER if self.open[-1] == "{" else _NEXT_ITEM

    def _end_scalar(self) -> bool:
        if not _is_scalar(self._scalar):
            return self._break(diagnostics.MALFORMED_JSON, f"'{self._scalar[:40]}' is no JSON value")
        self._scalar = ""
        self.state = self._after_value()
        return True

    def _break(self, kind: str, message: str) -> bool:
        self.missing = _MISSING.get(self.state, "")
        self.state, self.error, self.message, self._scalar = _BROKEN, kind, message, ""
        return False


_KINDS = {"{": "object", "[": "array", **dict.fromkeys("-0123456789", "number")}
_KINDS |= {**dict.fromkeys("tfTF", "boolean"), **dict.fromkeys("nN", "null")}


def may_unquote(scanner: JsonScanner, text: str, kinds: Collection[str]) -> bool:
    """Whether what stands between quotes can still be a value of these kinds, now that `text` has come too."""
    if scanner.state == _VALUE and not scanner.open:
        text = text.lstrip()
        if text and _KINDS.get(text[0]) not in kinds:
            return False
        text = text[:1].lower() + text[1:]  # a word of Python's
    end = scanner.scan(text, 0)
    return not (scanner.error or scanner.flaw or text[end:].strip())


def unquoted(scanner: JsonScanner, text: str) -> str:
    """The JSON that stands between quotes, if `scanner` went through all of it; "" where it is none."""
    text = text.strip()
    word = WORDS.get(text.lower()) or WORDS.get(text, "")
    return word or (text if scanner.finish() and not text[0].isalpha() else "")
