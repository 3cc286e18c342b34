"""A language as rules over characters: GBNF for llama.cpp, and EBNF as xgrammar reads it.

The two differ in how they name tokens and free text. All else is printed in what both understand alike: names of
letters, digits and dashes; no `\\x` (two digits to one, any number to the other); never an empty alternative. llama.cpp
refuses what it would unroll into more than 2000 rules: so no count is larger than a thousand, and what holds counts and
is counted itself has a name.
"""

from __future__ import annotations

from typing import Literal

from .avoid import machine
from .language import (
    Chars,
    Choice,
    Free,
    Json,
    Language,
    Loosened,
    Node,
    Repeat,
    Rule,
    Sequence,
    Text,
    Token,
    Whole,
    all_but,
    choice,
    sequence,
    unbounded,
)
from .regex import bracketed, times
from .schema_nodes import SPACE as JSON_SPACE
from .schema_nodes import SchemaNodes

Kind = Literal["gbnf", "ebnf"]
# llama.cpp tries each token of a set in turn.
_MOST_TOKENS = 16
_MOST_TIMES = 1_000


def to_gbnf(language: Language) -> tuple[str, list[Loosened]]:
    return _print(language, "gbnf")


def to_ebnf(language: Language) -> tuple[str, list[Loosened]]:
    return _print(language, "ebnf")


def _print(language: Language, kind: Kind) -> tuple[str, list[Loosened]]:
    printer = _Printer(kind)
    lines = {"root": printer.body(language.root)}
    for rules in (language.rules, printer.schemas.rules):  # the second grows by the first
        lines.update((name, printer.body(node)) for name, node in rules.items())
    lines |= printer.rules
    return "".join(f"{name} ::= {body}\n" for name, body in lines.items()), printer.loosened + printer.schemas.loosened


class _Printer:
    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.schemas = SchemaNodes()
        self.rules: dict[str, str] = {}
        self.loosened: list[Loosened] = []
        self._names: dict[str, str] = {}
        self._free: dict[tuple[tuple[str, ...], bool], str] = {}

    def body(self, node: Node) -> str:
        return " | ".join(map(self.expression, node.items)) if isinstance(node, Choice) else self.expression(node)

    def expression(self, node: Node) -> str:
        match node:
            case Text(text):
                return quoted(text)
            case Chars():
                return char_class(node)
            case Token(ranges, text):
                return self._token(ranges, text)
            case Free():
                return self._text(node)
            case Json():
                # The converters of the other dialects let whitespace stand before a value.
                return self.expression(sequence(JSON_SPACE, self.schemas.node(node)))
            case Sequence(items):
                return " ".join(map(self.expression, items)) or '""'
            case Choice():
                return self._named("any", self.body(node))
            case Repeat(item, least, most):
                return self._repeated(item, least, most)
            case Whole(item):
                return self.expression(item)
            case Rule(name):
                return name
        raise AssertionError(node)

    def _repeated(self, item: Node, least: int, most: int | None) -> str:
        if most == 0:
            return '""'
        if max(least, most or 0) > _MOST_TIMES:
            return self.expression(_by_thousands(item, least, most))
        part = self.expression(item)
        if not isinstance(item, Chars | Choice | Rule | Free):  # the others are one name or one class
            part = self._named("part", part) if any(char in part for char in "*+?{") else f"({part})"
        return f"{part}{times(least, most)}"

    def _named(self, kind: str, body: str) -> str:
        """A rule for this body; the same body has one rule."""
        if body not in self._names:
            self._names[body] = name = f"{kind}-{len(self._names)}"
            self.rules[name] = body
        return self._names[body]

    def _token(self, ranges: tuple[tuple[int, int], ...], text: Node) -> str:
        ids = [id for first, last in ranges for id in range(first, last + 1)]
        if self.kind == "ebnf":
            return f"Token({', '.join(map(str, ids))})"
        if len(ids) > _MOST_TOKENS:
            # Its character rules take a token for the text that it stands for.
            return self.expression(text)
        return self._named("token", " | ".join(f"<[{id}]>" for id in ids))

    def _text(self, node: Free) -> str:
        self.loosened += unbounded(node)
        if self.kind == "ebnf" and node.without:
            # It may end with the beginning of a word; xgrammar has no name for one that does not.
            return self._named("text", f"TagDispatch(excludes=({''.join(f'{quoted(w)}, ' for w in node.without)}))")
        key = node.without, node.clean_end
        if key not in self._free:
            self._free[key] = name = f"text-{len(self._free)}"
            for at, state in enumerate(machine(node.without)):
                others = char_class(all_but(*state.moves, *state.barred))
                ways = [f"{others} {name}-0"] + [f"{quoted(c)} {name}-{to}" for c, to in sorted(state.moves.items())]
                if not (node.clean_end and state.pending):
                    ways.append('""')
                self.rules[f"{name}-{at}"] = " | ".join(ways)
        return f"{self._free[key]}-0"


def _by_thousands(item: Node, least: int, most: int | None) -> Node:
    """As many of it, with smaller counts."""
    thousand = Repeat(item, _MOST_TIMES, _MOST_TIMES)
    thousands, ones = divmod(least, _MOST_TIMES)
    needed = sequence(Repeat(thousand, thousands, thousands), Repeat(item, ones, ones))
    if most is None:
        return sequence(needed, Repeat(item))
    thousands, ones = divmod(most - least, _MOST_TIMES)
    all_of_them = sequence(Repeat(thousand, thousands, thousands), Repeat(item, 0, ones))
    if not thousands:
        return sequence(needed, all_of_them)
    fewer = sequence(Repeat(thousand, 0, thousands - 1), Repeat(item, 0, _MOST_TIMES - 1))
    return sequence(needed, choice(fewer, all_of_them))


def quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(node: Chars) -> str:
    # To one of them `[^]` is any character, and to the other none. And llama.cpp refuses a token that is only the first
    # byte of a character if that could become one that is excluded.
    by_members = node.excluded and (not node.ranges or node.ranges[-1][1] > 0x7F)
    return bracketed(Chars(node.members) if by_members else node, _in_class)


def _in_class(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in "^-[]" else _escaped(char)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char < "\x7f" or (char.isprintable() and ord(char) > 0xA0):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
