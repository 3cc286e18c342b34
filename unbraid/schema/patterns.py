"""A parser for regular expressions: those of JSON Schema (ECMA-262: `pattern`, `patternProperties` and `format`), and
those of grammars, which a whole text must match and which have flags.

Engines disagree about patterns: whether they are anchored, whether they see the string or its JSON text, and what a
`.`, a `\\d` or an escape means. So a pattern is parsed here, as ECMA-262 has it, into the nodes of `regular`, and the
printers write these as groups, classes and counts alone. What is no regular language (lookaround, back references) is
an `UnsupportedPattern`: it is not enforced, but is no mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..metering import spend
from .regular import (
    ANY,
    EVERY,
    NOTHING,
    Chars,
    Node,
    OneOf,
    Ranges,
    Repeat,
    Sequence,
    Verbatim,
    all_but,
    among,
    chars,
    choice,
    sequence,
    union,
    without,
)

_MOST_DEPTH = 50
_MOST_LENGTH = 10_000
_MOST_REPEATS = 100_000  # of nested quantifiers, multiplied: what a pattern costs when it is unrolled


class UnsupportedPattern(ValueError):
    """A pattern that is no plain regular expression (it looks around, refers back…), or that is too large."""


class BadPattern(ValueError):
    """A pattern that is no regular expression at all."""


_SURROGATES: Ranges = ((0xD800, 0xDFFF),)
_SPACE = chars("\t\r", " ", "\u00a0", "\u1680", "\u2000\u200a", "\u2028\u2029", "\u202f", "\u205f", "\u3000", "\ufeff")
_CLASSES = {"d": chars("09"), "w": chars("az", "AZ", "09", "_"), "s": _SPACE}
_CLASSES |= {name.upper(): Chars(some.ranges, excluded=True) for name, some in _CLASSES.items()}
_DOT = all_but("\n", "\r", "\u2028\u2029")
_NOT_A_LINE_BREAK = all_but("\n")
_FLAGS = "imsu"
_LAST_FOLDED = 0x587
"""The last letter of the scripts next to each other that have cases; few letters after it have."""
_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class _Anchor(Node):
    """An anchor, while a pattern is read: those at the ends are taken away, and no others are allowed."""

    sign: str


_START, _END = _Anchor("^"), _Anchor("$")


def parse(pattern: str) -> Node:
    """The whole strings in which `pattern` is found: JSON schema searches, so what is not anchored may be anywhere."""
    return _checked(choice(*map(_unanchored, _options(_read(_Parser(pattern))))))


def parse_whole(pattern: str, flags: str = "") -> Node:
    """The strings that `pattern` matches from beginning to end, as Python and Rust read it: `.` is all but a line
    break, and all with the flag `s`; `i` takes letters of either case. Classes like `\\w` are those of ASCII."""
    node = _read(_Parser(pattern, _NOT_A_LINE_BREAK, flags))
    return _checked(choice(*(sequence(*_without_anchors(items)) for items in _options(node))))


def either_case(text: str) -> Node:
    """A text whose letters may be of either case."""
    cases = [(char, _folded(chars(char).ranges)) for char in text]
    return sequence(*(Verbatim(char) if char.lower() == char.upper() else among(both) for char, both in cases))


def _read(parser: _Parser) -> Node:
    if len(parser.text) > _MOST_LENGTH:
        raise UnsupportedPattern(f"it is longer than {_MOST_LENGTH} characters")
    node = parser.choice(0)
    if parser.at < len(parser.text):
        raise BadPattern(f"unbalanced `)` at {parser.at}")
    return node


def _checked(whole: Node) -> Node:
    if _cost(whole) > _MOST_REPEATS:
        raise UnsupportedPattern("it repeats too often")
    return whole


def _options(node: Node) -> Iterator[tuple[Node, ...]]:
    """The alternatives at the top, so that anchors can be seen in each: `^(a|b)$`, `^a|b$`, `(^a$|^b$)`."""
    if isinstance(node, OneOf):
        for option in node.items:
            yield from _options(option)
    else:
        yield node.items if isinstance(node, Sequence) else (node,)


def _without_anchors(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """Without an anchor at the beginning and one at the end."""
    return items[items[:1] == (_START,) : len(items) - (items[-1:] == (_END,))]


def _unanchored(items: tuple[Node, ...]) -> Node:
    starts, ends = items[:1] == (_START,), items[-1:] == (_END,)
    items = _without_anchors(items)
    if not items and not (starts and ends):
        return Repeat(ANY)
    return sequence(*([] if starts else [Repeat(ANY)]), *items, *([] if ends else [Repeat(ANY)]))


def _cost(node: Node) -> int:
    match node:
        case Verbatim(text):
            return len(text)
        case Sequence(items) | OneOf(items):
            return sum(map(_cost, items))
        case Repeat(item, least, most):
            return max(least, most or 0, 1) * _cost(item)
        case _Anchor():
            raise UnsupportedPattern("it has an anchor in the middle")
        case Chars() if not node.members:
            raise UnsupportedPattern("it has a class that no character is in")
    return 1


def _folded(ranges: Ranges) -> Ranges:
    """The same characters, and those of the other case."""
    folded = list(ranges)
    for low, high in ranges:
        spend(1 + max(0, min(high, _LAST_FOLDED) - low) // 10)
        for code in range(low, min(high, _LAST_FOLDED) + 1):
            char = chr(code)
            folded += [(ord(other), ord(other)) for other in (char.lower(), char.upper()) if len(other) == 1]
    return union(folded)


class _Parser:
    def __init__(self, text: str, dot: Chars = _DOT, flags: str = "") -> None:
        self.text, self.at = text, 0
        self._dot, self.flags = dot, ""
        self.set_flags(flags)
        if dot is not _DOT and text.startswith("(?") and (end := text.find(")")) > 2 and text[2:end].isalpha():
            self.set_flags(text[2:end])
            self.at = end + 1

    def set_flags(self, flags: str) -> None:
        for flag in flags:
            if flag not in _FLAGS:
                raise UnsupportedPattern(f"the flag `{flag}` is not known here")
            self.flags += flag

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def choice(self, depth: int) -> Node:
        if depth > _MOST_DEPTH:
            raise UnsupportedPattern(f"its groups nest deeper than {_MOST_DEPTH}")
        options = [self.sequence(depth)]
        while self.take("|"):
            options.append(self.sequence(depth))
        return choice(*options)

    def sequence(self, depth: int) -> Node:
        items: list[Node] = [NOTHING]
        while self.at < len(self.text) and self.peek() not in "|)":
            item = self.quantified(self.atom(depth))
            if isinstance(item, Verbatim) and isinstance(items[-1], Verbatim):
                items[-1] = Verbatim(items[-1].text + item.text)
            else:
                items.append(item)
        return sequence(*items)

    def quantified(self, node: Node) -> Node:
        start = self.at
        least: int = 1
        most: int | None = None
        if self.take("*"):
            least = 0
        elif self.take("?"):
            least, most = 0, 1
        elif self.take("{"):
            bounds, brace, _ = self.text[self.at :].partition("}")
            low, comma, high = bounds.partition(",")
            if not brace or not (low or high).isdecimal() or (high and not high.isdecimal()):
                raise BadPattern(f"`{{` at {start} has no repetition counts")
            if len(bounds) > 20:
                raise UnsupportedPattern("it repeats too often")
            self.at += len(bounds) + 1
            least = int(low or 0)
            most = int(high) if high else (None if comma else least)
        elif not self.take("+"):
            return node
        if isinstance(node, _Anchor):
            raise UnsupportedPattern("it repeats an anchor")
        if most is not None and most < least:
            raise BadPattern(f"the repetition counts at {start} are the wrong way round")
        self.take("?")  # lazy: which match is found first makes no difference
        if self.peek() and self.peek() in "*+?{":
            raise BadPattern(f"nothing to repeat at {self.at}")
        return Repeat(node, least, most)

    def atom(self, depth: int) -> Node:
        spend()
        start, char = self.at, self.peek()
        self.at += 1
        if char == "^" or char == "$":
            return _START if char == "^" else _END
        if char == ".":
            return ANY if "s" in self.flags else self._dot
        if char == "[":
            return self.char_class()
        if char == "\\":
            escaped = self.escape(in_class=False)
            return self.cased(escaped.text) if isinstance(escaped, Verbatim) else escaped
        if char in "*+?{":
            raise BadPattern(f"nothing to repeat at {start}")
        if char != "(":
            return self.cased(char)
        before = self.flags
        if self.take("?"):
            name = self.take("P<") or (self.peek() == "<" and self.peek(2) not in ("<=", "<!") and self.take("<"))
            if name:
                self.at = self.text.find(">", self.at) + 1 or len(self.text)
            elif self._dot is not _DOT and self.peek().isalpha():
                flags = self.text[self.at :].partition(":")[0]
                self.set_flags(flags[:10])
                self.at += len(flags) + 1
            elif not self.take(":"):
                raise UnsupportedPattern(f"`(?{self.peek()}` at {start} is no plain group")
        node = self.choice(depth + 1)
        if not self.take(")"):
            raise BadPattern(f"`(` at {start} is never closed")
        self.flags = before
        return node

    def cased(self, char: str) -> Node:
        return either_case(char) if "i" in self.flags else Verbatim(char)

    def char_class(self) -> Node:
        start, ranges = self.at - 1, list[tuple[int, int]]()
        negated = self.take("^")
        if self.peek() == "]":
            raise UnsupportedPattern("`[]` means different things to different engines")
        while not self.take("]"):
            if self.at >= len(self.text):
                raise BadPattern(f"`[` at {start} is never closed")
            low = self.member()
            if self.peek() == "-" and self.peek(2) not in ("-]", "-") and isinstance(low, Verbatim):
                self.at += 1
                high = self.member()
                if not isinstance(high, Verbatim) or high.text < low.text:
                    raise BadPattern(f"bad range before {self.at}")
                ranges.append((ord(low.text), ord(high.text)))
            else:
                ranges += chars(low.text).ranges if isinstance(low, Verbatim) else low.members
        members = _folded(union(ranges)) if "i" in self.flags else union(ranges)
        return among(without(EVERY, members) if negated else without(members, _SURROGATES))

    def member(self) -> Verbatim | Chars:
        spend()
        if self.take("\\"):
            return self.escape(in_class=True)
        self.at += 1
        return Verbatim(self.text[self.at - 1])

    def escape(self, *, in_class: bool) -> Verbatim | Chars:
        char = self.peek()
        self.at += 1
        if not char:
            raise BadPattern("it ends in a backslash")
        if char in _CLASSES:
            return _CLASSES[char]
        if char == "b" and in_class:
            return Verbatim("\b")
        if char in "xu":
            braced = char == "u" and self.take("{")
            digits = self.text[self.at :].partition("}")[0] if braced else self.peek(2 if char == "x" else 4)
            try:
                letter = chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise BadPattern(f"bad escape `\\{char}` before {self.at}") from None
            self.at += len(digits) + braced
            if not Chars(EVERY).holds(letter):
                raise UnsupportedPattern("it escapes half a character")
            return Verbatim(letter)
        if char in _ESCAPES:
            return Verbatim(_ESCAPES[char])
        if char.isascii() and char.isalnum():
            raise UnsupportedPattern(f"`\\{char}` is no plain escape")
        return Verbatim(char)


_OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LEAP_YEAR = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DAY = r"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_DATE = rf"(\d{{4}}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_CLOCK = r"T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"({_H16}:{_H16}|{_OCTET}(\.{_OCTET}){{3}})"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": rf"P((\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)({_CLOCK})?|{_CLOCK}|\d+W)",
    "email": rf'({_ATOM}(\.{_ATOM})*|"([ !#-\[\]-~]|\\[ -~])*")@({_LABEL}(\.{_LABEL})*|\[[!-Z^-~]+\])',
    "hostname": rf"{_LABEL}(\.{_LABEL})*",
    "ipv4": rf"{_OCTET}(\.{_OCTET}){{3}}",
    "ipv6": "|".join(
        [rf"({_H16}:){{6}}{_LS32}", rf"::({_H16}:){{5}}{_LS32}"]
        + [rf"({_H16}(:{_H16}){{0,{4 - n}}})?::({_H16}:){{{n}}}{_LS32}" for n in (4, 3, 2, 1, 0)]
        + [rf"({_H16}(:{_H16}){{0,5}})?::{_H16}", rf"({_H16}(:{_H16}){{0,6}})?::"]
    ),
    "uuid": "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:([A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*",
}
"""The values of `format` that are regular languages. They take everything that the RFCs take, and little more."""
