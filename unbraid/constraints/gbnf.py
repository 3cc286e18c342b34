"""A language as rules over characters: GBNF for llama.cpp, and EBNF as xgrammar reads it.

The two differ in how they name tokens and free text. All else is printed in what both understand alike: names of
letters, digits and dashes; no `\\x` (two digits to one, any number to the other); never an empty alternative.
"""

from __future__ import annotations

from typing import Literal

from .avoid import machine
from .language import Chars, Choice, Free, Json, Language, Node, Repeat, Rule, Sequence, Text, Token, unbounded
from .regex import times
from .schema_nodes import SchemaNodes
from .schemas import Loosened

Kind = Literal["gbnf", "ebnf"]
# llama.cpp tries each token of a set in turn.
_MOST_TOKENS = 16


def to_gbnf(language: Language) -> tuple[str, list[Loosened]]:
    return _print(language, "gbnf")


def to_ebnf(language: Language) -> tuple[str, list[Loosened]]:
    return _print(language, "ebnf")


def _print(language: Language, kind: Kind) -> tuple[str, list[Loosened]]:
    printer = _Printer(kind)
    lines = {"root": printer.expression(language.root)}
    for name, node in language.rules.items():
        lines[name] = printer.expression(node)
    for name, node in printer.schemas.rules.items():
        lines[name] = printer.expression(node)
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

    def expression(self, node: Node) -> str:
        match node:
            case Text(text):
                return quoted(text)
            case Chars(ranges, excluded):
                return char_class(ranges, excluded)
            case Token(ranges, text):
                return self._token(ranges, text)
            case Free():
                return self._text(node)
            case Json():
                return self._part(self.schemas.node(node))
            case Sequence(items):
                return " ".join(self._part(item) for item in items) or '""'
            case Choice(items):
                return self._named("any", " | ".join(map(self.expression, items)))
            case Repeat(item, least, most):
                return f"{self._part(item, repeated=True)}{times(least, most)}"
            case Rule(name):
                return name
        raise AssertionError(node)

    def _part(self, node: Node, *, repeated: bool = False) -> str:
        written = self.expression(node)
        return f"({written})" if repeated and isinstance(node, Sequence | Repeat | Text) else written

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
                others = char_class(tuple(sorted({*state.moves, *state.barred})), excluded=True)
                ways = [f"{others} {name}-0"] + [f"{quoted(c)} {name}-{to}" for c, to in sorted(state.moves.items())]
                if not (node.clean_end and state.pending):
                    ways.append('""')
                self.rules[f"{name}-{at}"] = " | ".join(ways)
        return f"{self._free[key]}-0"


def quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(ranges: tuple[str, ...], excluded: bool) -> str:
    if not ranges and excluded:
        return "[\\u0000-\\U0010ffff]"
    inside = "".join("-".join(map(_in_class, range)) for range in ranges)
    return f"[{'^' if excluded else ''}{inside}]"


def _in_class(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in "^-[]" else _escaped(char)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char < "\x7f" or (char.isprintable() and ord(char) > 0xA0):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
