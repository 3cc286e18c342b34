"""A language as one regular expression, where it is regular: no value nests in itself.

Only what every engine knows is used: groups, classes, counts. Tokens are spelled out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import UnbraidError
from .avoid import machine
from .language import Chars, Choice, Free, Json, Language, Node, Repeat, Rule, Sequence, Text, Token, unbounded
from .schema_nodes import SchemaNodes
from .schemas import Loosened

_LONGEST = 1 << 18


class NotRegular(UnbraidError):
    """The language is no regular one, or too large a one; the message says why."""


def to_regex(language: Language) -> tuple[str, list[Loosened]]:
    printer = _Printer(language.rules)
    return printer.expression(language.root), printer.loosened + printer.schemas.loosened


def regular(node: Node) -> str:
    """The expression for a node without JSON and rules."""
    return _Printer({}).expression(node)


class _Printer:
    def __init__(self, rules: Mapping[str, Node]) -> None:
        self.schemas = SchemaNodes()
        self.loosened: list[Loosened] = []
        self._rules = rules
        self._inside: list[str] = []

    def expression(self, node: Node) -> str:
        written = self._expression(node)
        if len(written) > _LONGEST:
            raise NotRegular(f"the regular expression is longer than {_LONGEST} characters: use a dialect with rules")
        return written

    def _expression(self, node: Node) -> str:
        match node:
            case Text(text):
                return "".join(map(escaped, text))
            case Chars(ranges, excluded):
                return char_class(ranges, excluded)
            case Token(_, text):
                return self.expression(text)
            case Free():
                self.loosened += unbounded(node)
                return free(node)
            case Json():
                return self.expression(self.schemas.node(node))
            case Sequence(items):
                return "".join(self._part(item) for item in items)
            case Choice(items):
                return "|".join(dict.fromkeys(map(self.expression, items)))
            case Repeat(item, least, most):
                written = self.expression(item)
                return f"{written if isinstance(item, Chars) else f'(?:{written})'}{times(least, most)}"
            case Rule(name):
                return self._rule(name)
        raise AssertionError(node)

    def _part(self, node: Node) -> str:
        """As a part of a sequence: alternatives need a group."""
        written = self.expression(node)
        return f"(?:{written})" if isinstance(node, Choice | Rule | Json | Token | Free) else written

    def _rule(self, name: str) -> str:
        if name in self._inside:
            raise NotRegular(
                "this is no regular language, since a JSON value can nest in another without end: give every tool a "
                "strict schema without `additionalProperties` and references to itself, or use a dialect with rules"
            )
        self._inside.append(name)
        written = self.expression(self._rules[name] if name in self._rules else self.schemas.rules[name])
        self._inside.pop()
        return written


def free(node: Free) -> str:
    """Text without certain words: the machine that reads it, with its states taken out one by one."""
    states = machine(node.without)
    end = len(states)
    ways: dict[tuple[int, int], str] = {}

    def add(source: int, target: int, way: str) -> None:
        known = ways.get((source, target))
        ways[source, target] = way if known is None else f"{known}|{way}"

    for at, state in enumerate(states):
        add(at, 0, char_class(tuple(sorted({*state.moves, *state.barred})), excluded=True))
        for char, target in sorted(state.moves.items()):
            add(at, target, escaped(char))
        if not (node.clean_end and state.pending):
            add(at, end, "")
    for gone in range(len(states) - 1, 0, -1):
        loop = f"(?:{ways[gone, gone]})*" if (gone, gone) in ways else ""
        sources = [(source, way) for (source, target), way in ways.items() if target == gone != source]
        targets = [(target, way) for (source, target), way in ways.items() if source == gone != target]
        ways = {pair: way for pair, way in ways.items() if gone not in pair}
        for source, before in sources:
            for target, after in targets:
                add(source, target, f"(?:{before}){loop}(?:{after})")
    return f"(?:{ways[0, 0]})*(?:{ways[0, end]})"


def char_class(ranges: tuple[str, ...], excluded: bool = False) -> str:
    inside = "".join("-".join(map(escaped, range)) for range in ranges)
    if not inside:
        return r"[\s\S]"
    return f"[{'^' if excluded else ''}{inside}]"


_SPELLED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escaped(char: str) -> str:
    if char in _SPELLED:
        return _SPELLED[char]
    if not char.isprintable():
        return f"\\u{ord(char):04x}"
    return f"\\{char}" if char in r"\.^$*+?()[]{}|-/" else char


def times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
