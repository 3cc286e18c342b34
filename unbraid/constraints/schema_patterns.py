"""Regular expressions of JSON schemas: read once, and written so that every converter understands them alike.

Converters disagree about patterns: whether they are anchored, whether they see the string or its JSON text, and what
a `.`, a `\\d` or a quantifier after an escape means (llama.cpp reads `a\\.+` as `(a\\.)+`). So a pattern is parsed
here, as ECMA-262 has it, and written again with nothing but groups, classes and quantifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TOP = 0x10FFFF
_MOST_DEPTH = 50
_MOST_LENGTH = 10_000
_MOST_REPEATS = 100_000  # of nested quantifiers, multiplied: what a pattern costs when it is unrolled

Ranges = tuple[tuple[int, int], ...]


class UnsupportedPattern(ValueError):
    """A pattern that is no plain regular expression (it looks around, refers back…), or that is too large."""


class BadPattern(ValueError):
    """A pattern that is no regular expression at all."""


@dataclass(frozen=True, slots=True)
class Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Anchor:
    end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    least: int
    most: int | None


Node = Chars | Anchor | Sequence | Choice | Repeat


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    left: list[tuple[int, int]] = []
    for low, high in ranges:
        for start, end in taken:
            if start <= high and end >= low:
                if start > low:
                    left.append((low, start - 1))
                low = end + 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


def _of(text: str) -> Ranges:
    return union((ord(c), ord(c)) for c in text)


_SURROGATES: Ranges = ((0xD800, 0xDFFF),)
EVERY: Ranges = without(((0, _TOP),), _SURROGATES)
_DIGITS: Ranges = ((48, 57),)
_WORD = union([(48, 57), (65, 90), (95, 95), (97, 122)])
_SPACE = union([(9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
                (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)])  # fmt: skip
_DOT = without(EVERY, _of("\n\r\u2028\u2029"))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CLASSES |= {name.upper(): without(EVERY, ranges) for name, ranges in _CLASSES.items()}
_ESCAPES = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
ANY = Chars(EVERY)


def parse(pattern: str) -> Node:
    """The whole strings in which `pattern` is found: JSON schema searches, so what is not anchored may be anywhere."""
    if len(pattern) > _MOST_LENGTH:
        raise UnsupportedPattern(f"it is longer than {_MOST_LENGTH} characters")
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.at < len(pattern):
        raise BadPattern(f"unbalanced `)` at {parser.at}")
    whole = Choice(tuple(_unanchored(option) for option in _options(node)))
    if _cost(whole) > _MOST_REPEATS:
        raise UnsupportedPattern("it repeats too often")
    return whole.options[0] if len(whole.options) == 1 else whole


def _options(node: Node) -> Iterator[tuple[Node, ...]]:
    """The alternatives at the top, so that anchors can be seen in each: `^(a|b)$`, `^a|b$`, `(^a$|^b$)`."""
    while isinstance(node, Sequence) and len(node.parts) == 1:
        node = node.parts[0]
    if isinstance(node, Choice):
        for option in node.options:
            yield from _options(option)
    else:
        yield node.parts if isinstance(node, Sequence) else (node,)


def _unanchored(parts: tuple[Node, ...]) -> Node:
    anywhere = Repeat(ANY, 0, None)
    starts = bool(parts) and parts[0] == Anchor(end=False)
    parts = parts[1:] if starts else parts
    ends = bool(parts) and parts[-1] == Anchor(end=True)
    parts = parts[:-1] if ends else parts
    if not parts and not (starts and ends):
        return anywhere
    return Sequence((() if starts else (anywhere,)) + parts + (() if ends else (anywhere,)))


def _cost(node: Node) -> int:
    match node:
        case Sequence(nodes) | Choice(nodes):
            return sum(map(_cost, nodes))
        case Repeat(inner, least, most):
            return max(least, most or 0, 1) * _cost(inner)
        case Anchor():
            raise UnsupportedPattern("it has an anchor in the middle")
        case Chars(ranges):
            if not ranges:
                raise UnsupportedPattern("it has a class that no character is in")
            return 1


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

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
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            parts.append(self.quantified(self.atom(depth)))
        return Sequence(tuple(parts))

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
        if isinstance(node, Anchor):
            raise UnsupportedPattern("it repeats an anchor")
        if most is not None and most < least:
            raise BadPattern(f"the repetition counts at {start} are the wrong way round")
        self.take("?")  # lazy: which match is found first makes no difference
        if self.peek() and self.peek() in "*+?{":
            raise BadPattern(f"nothing to repeat at {self.at}")
        return Repeat(node, least, most)

    def atom(self, depth: int) -> Node:
        start, char = self.at, self.peek()
        self.at += 1
        if char == "^" or char == "$":
            return Anchor(end=char == "$")
        if char == ".":
            return Chars(_DOT)
        if char == "[":
            return self.char_class()
        if char == "\\":
            return Chars(self.escape(in_class=False))
        if char in "*+?{":
            raise BadPattern(f"nothing to repeat at {start}")
        if char != "(":
            return Chars(_of(char))
        if self.take("?"):
            name = self.take("P<") or (self.peek() == "<" and self.peek(2) not in ("<=", "<!") and self.take("<"))
            if name:
                self.at = self.text.find(">", self.at) + 1 or len(self.text)
            elif not self.take(":"):
                raise UnsupportedPattern(f"`(?{self.peek()}` at {start} is no plain group")
        node = self.choice(depth + 1)
        if not self.take(")"):
            raise BadPattern(f"`(` at {start} is never closed")
        return node

    def char_class(self) -> Node:
        start, ranges = self.at - 1, list[tuple[int, int]]()
        negated = self.take("^")
        if self.peek() == "]":
            raise UnsupportedPattern("`[]` means different things to different engines")
        while not self.take("]"):
            if self.at >= len(self.text):
                raise BadPattern(f"`[` at {start} is never closed")
            low = self.member()
            if self.peek() == "-" and self.peek(2) not in ("-]", "-") and len(low) == 1 and low[0][0] == low[0][1]:
                self.at += 1
                high = self.member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise BadPattern(f"bad range before {self.at}")
                low = ((low[0][0], high[0][0]),)
            ranges.extend(low)
        return Chars(without(EVERY, union(ranges)) if negated else without(union(ranges), _SURROGATES))

    def member(self) -> Ranges:
        if self.take("\\"):
            return self.escape(in_class=True)
        self.at += 1
        return _of(self.text[self.at - 1])

    def escape(self, *, in_class: bool) -> Ranges:
        char = self.peek()
        self.at += 1
        if not char:
            raise BadPattern("it ends in a backslash")
        if char in _CLASSES:
            return _CLASSES[char]
        if char == "b" and in_class:
            return _of("\b")
        if char in "xu":
            braced = char == "u" and self.take("{")
            digits = self.text[self.at :].partition("}")[0] if braced else self.peek(2 if char == "x" else 4)
            try:
                code = int(digits, 16)
            except ValueError:
                raise BadPattern(f"bad escape `\\{char}` before {self.at}") from None
            self.at += len(digits) + braced
            if code > _TOP or _SURROGATES[0][0] <= code <= _SURROGATES[0][1]:
                raise UnsupportedPattern("it escapes half a character")
            return ((code, code),)
        if char in _ESCAPES:
            return ((_ESCAPES[char], _ESCAPES[char]),)
        if char.isascii() and char.isalnum():
            raise UnsupportedPattern(f"`\\{char}` is no plain escape")
        return _of(char)


def matches(node: Node, text: str) -> bool:
    return len(text) in _ends(node, text, {0})


def _ends(node: Node, text: str, starts: set[int]) -> set[int]:
    """Where a match can end: all of them at once, so that no pattern takes exponential time."""
    match node:
        case Chars(ranges):
            return {at + 1 for at in starts if at < len(text) and _holds(ranges, ord(text[at]))}
        case Sequence(parts):
            for part in parts:
                starts = _ends(part, text, starts)
            return starts
        case Choice(options):
            return set[int]().union(*(_ends(option, text, starts) for option in options))
        case Repeat(inner, least, most):
            for _ in range(least):
                starts = _ends(inner, text, starts)
                if not starts:
                    return starts
            found, new, count = set(starts), starts, least
            while new and (most is None or count < most):
                new = _ends(inner, text, new) - found
                found |= new
                count += 1
            return found
        case Anchor():
            return starts


def _holds(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


def may_hold(node: Node, codes: Iterable[int]) -> bool:
    """Whether a match can have one of these characters in it."""
    match node:
        case Chars(ranges):
            return any(_holds(ranges, code) for code in codes)
        case Sequence(parts) | Choice(parts):
            return any(may_hold(part, codes) for part in parts)
        case Repeat(inner):
            return may_hold(inner, codes)
        case Anchor():
            return False


def lengths(node: Node) -> tuple[int, int | None]:
    """The fewest and the most characters that a match has."""
    match node:
        case Sequence(parts):
            bounds = [lengths(part) for part in parts]
            tops = [high for _, high in bounds if high is not None]
            return sum(low for low, _ in bounds), sum(tops) if len(tops) == len(bounds) else None
        case Choice(options):
            bounds = [lengths(option) for option in options]
            tops = [high for _, high in bounds if high is not None]
            return min(low for low, _ in bounds), max(tops) if len(tops) == len(bounds) else None
        case Repeat(inner, least, most):
            low, high = lengths(inner)
            return least * low, None if high is None or most is None else most * high
        case _:
            return 1, 1


def within(node: Node, least: int, most: int | None) -> Node | None:
    """`node`, held to a length, where that can be written: one class repeated, or a length it has anyway."""
    low, high = lengths(node)
    if least <= low and (most is None or (high is not None and high <= most)):
        return node
    if isinstance(node, Sequence) and len(node.parts) == 1:
        node = node.parts[0]
    match node:
        case Repeat(Chars(), low, high):
            least, most = max(low, least), high if most is None else most if high is None else min(high, most)
            return Repeat(node.node, least, most) if most is None or least <= most else None
        case _:
            return None


def first(node: Node) -> Ranges | None:
    """The characters that a match can begin with; None if it may be empty."""
    match node:
        case Chars(ranges):
            return ranges
        case Sequence(parts):
            seen: list[tuple[int, int]] = []
            for part in parts:
                inner = first(part)
                if inner is not None:
                    return union([*seen, *inner])
                seen.extend(_begins(part))
            return None
        case Choice(options):
            inners = [first(option) for option in options]
            return None if None in inners else union(r for inner in inners for r in inner or ())
        case Repeat(inner, least, _):
            return first(inner) if least else None
        case Anchor():
            return None


def _begins(node: Node) -> Iterator[tuple[int, int]]:
    match node:
        case Chars(ranges):
            yield from ranges
        case Sequence(nodes) | Choice(nodes):
            for inner in nodes:
                yield from _begins(inner)  # more than it can begin with, which is on the safe side
        case Repeat(inner):
            yield from _begins(inner)
        case Anchor():
            pass


def disjoint(one: Node, other: Node) -> bool:
    """Whether the first character tells them apart. (False says nothing.)"""
    left, right = first(one), first(other)
    return left is not None and right is not None and without(left, right) == left


def repeats(node: Node) -> int:
    """The largest count in it."""
    match node:
        case Sequence(nodes) | Choice(nodes):
            return max(map(repeats, nodes), default=0)
        case Repeat(inner, least, most):
            return max(least, most or 0, repeats(inner))
        case _:
            return 0


def literal(text: str) -> Node:
    return Sequence(tuple(Chars(_of(char)) for char in text))


# JSON text spells some characters with a backslash. `\/` and `\u0041` are left to where any string will do: the same
# string has a plainer spelling.
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_ESCAPED = union([(0, 31), *_of('"\\')])
_CARET = ord("^")


def write(node: Node, *, json_text: bool) -> str:
    """An anchored pattern for `node`, either for the string or for the JSON text between its quotes."""
    body = _write(node, json_text)
    # xgrammar lets no backslash match, not even one that is asked for, unless the pattern holds some letter beyond
    # ASCII; one that is repeated zero times is enough, and changes nothing for the others.
    return f"^{body}(?:é){{0}}$" if json_text and "\\\\" in body and body.isascii() else f"^{body}$"


def _write(node: Node, json_text: bool) -> str:
    match node:
        case Chars(ranges):
            return _json_chars(ranges) if json_text else _class(ranges)
        case Sequence(parts):
            return "".join(_letter(part) or _write(part, json_text) for part in parts)
        case Choice(options):
            written = list(dict.fromkeys(_write(option, json_text) for option in options))
            some = "|".join(option for option in written if option)
            return f"(?:{some}){'?' if '' in written else ''}" if some else ""
        case Repeat(inner, least, most):
            body = _write(inner, json_text)
            if not body or most == 0:
                return ""
            # A class or a group can be repeated as it is; llama.cpp must not see anything else repeated.
            body = body if isinstance(inner, Chars | Choice) and not body.endswith("?") else f"(?:{body})"
            counts = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}
            plain = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            return body + counts.get((least, most), plain)
        case Anchor():
            return ""


def _letter(node: Node) -> str | None:
    if isinstance(node, Chars) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        letter = chr(node.ranges[0][0])
        return letter if letter.isascii() and letter.isalnum() else None
    return None


def _json_chars(ranges: Ranges) -> str:
    plain = without(ranges, _ESCAPED)
    if ranges == EVERY:
        letters = _class(_of("/" + "".join(_SHORT.values())))
        return rf"(?:{_class(plain)}|\\{letters}|\\u[0-9A-Fa-f]{{4}})"
    spellings = [_class(plain)] if plain else []
    short = [spelling for char, spelling in _SHORT.items() if _holds(ranges, ord(char))]
    if short:
        spellings.append("\\\\" + _class(_of("".join(short))))
    for high in (0, 1):
        codes = [code for code in range(16 * high, 16 * high + 16) if _holds(ranges, code) and chr(code) not in _SHORT]
        if codes:
            digits = "".join(f"{code % 16:x}{code % 16:X}" for code in codes)
            spellings.append(f"\\\\u00{high}{_class(_of(digits))}")
    return spellings[0] if len(spellings) == 1 and plain else f"(?:{'|'.join(spellings)})"


def _class(ranges: Ranges) -> str:
    # Letters and digits stand for themselves everywhere; other ASCII is written in hex, and with four digits: xgrammar
    # reads `\x5Fa` as one character. It also takes an escaped `^` for a negation, if that comes first.
    def char(code: int) -> str:
        letter = chr(code)
        return letter if code >= 0xA0 or (letter.isascii() and letter.isalnum()) else f"\\u{code:04X}"

    if ranges and ranges[0][0] == _CARET:
        if ranges == ((_CARET, _CARET),):
            return r"(?:\^)"
        ranges = (*without(ranges, ((_CARET, _CARET),)), (_CARET, _CARET))
    return "[" + "".join(char(a) if a == b else f"{char(a)}-{char(b)}" for a, b in ranges) + "]"


_OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_CLOCK = r"T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"({_H16}:{_H16}|{_OCTET}(\.{_OCTET}){{3}})"
# The formats of JSON schema that are regular. They take everything that the RFCs take, and little more (30 February).
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
