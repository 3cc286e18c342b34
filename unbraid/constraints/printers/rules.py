"""Printing rules over characters: what GBNF (llama.cpp) and EBNF (xgrammar) have in common.

The two differ in how they name tokens and free text; each subclass says that. All else is printed in what both
understand alike: names of letters, digits and dashes; no `\\x` (two digits to one, any number to the other); never an
empty alternative. llama.cpp refuses what it would unroll into more than 2000 rules: so no count is larger than a
thousand, and what holds counts and is counted itself has a name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import ClassVar

from ...errors import InvalidSchema
from ...metering import spend, working_on
from ...schema.regular import Chars, Node, OneOf, Ranges, Repeat, Sequence, Verbatim, among, sequence
from ..automata import Automaton, automaton, free_text
from ..determinize.items import MOST_TIMES, Items, TooAmbiguous
from ..determinize.states import MOST_WORK, States
from ..language import Json, Lexeme, OutputLanguage, Rule, TextExcept, TextOf, Token, Unenforced, restricted
from ..schema_grammar import SPACE as JSON_SPACE
from ..schema_grammar import SchemaGrammar
from . import Printed
from .regex import bracketed, times


class RulePrinter(ABC):
    """Prints a language rule by rule. Subclasses print tokens, and may print free text in another way."""

    def __init__(self) -> None:
        self.schemas = SchemaGrammar()
        self.begin()

    def begin(self) -> None:
        """Nothing is printed yet."""
        self.rules: dict[str, str] = {}
        self.unenforced: list[Unenforced] = []
        self._names: dict[str, str] = {}
        self._automata: dict[Automaton, str] = {}

    def print(self, language: OutputLanguage) -> Printed[str]:
        try:
            language = restricted(language)
            lines = {"root": self.body(language.root)}
            for rules in (language.rules, self.schemas.rules):  # the second grows by the first
                lines.update((name, self.body(node)) for name, node in rules.items())
        except RecursionError:
            raise InvalidSchema("the constraint nests too deep for a grammar; put what is deep into `$defs`") from None
        return Printed(text(lines | self.rules), (*language.unenforced, *self.all_unenforced()))

    def all_unenforced(self) -> tuple[Unenforced, ...]:
        return (*self.unenforced, *self.schemas.unenforced)

    def body(self, node: Node) -> str:
        return " | ".join(map(self.expression, node.items)) if isinstance(node, OneOf) else self.expression(node)

    def expression(self, node: Node) -> str:
        spend()
        match node:
            case Verbatim(characters):
                return quoted(characters)
            case Chars():
                return char_class(node)
            case Token():
                return self.token(node)
            case TextExcept():
                return self.free_text(node)
            case TextOf(item, without):
                return self.states(automaton(item, without), 0)
            case Json():
                # The converters of the other syntaxes let whitespace stand before a value.
                return self.expression(sequence(JSON_SPACE, self.schemas.node(node)))
            case Sequence(items):
                return " ".join(map(self.expression, items)) or '""'
            case OneOf():
                return self.named("any", self.body(node))
            case Repeat(item, least, most):
                return self._repeated(item, least, most)
            case Lexeme(item):
                return self.expression(item)
            case Rule(name):
                return name
        raise AssertionError(node)

    def _repeated(self, item: Node, least: int, most: int | None) -> str:
        part = self.expression(item)
        if not isinstance(item, Chars | OneOf | Rule | TextExcept | TextOf):  # the others are one name or one class
            part = self.named("part", part) if any(char in part for char in "*+?{") else f"({part})"
        return counted(part, least, most, self.named)

    def named(self, kind: str, body: str) -> str:
        """A rule for this body; the same body has one rule."""
        if body not in self._names:
            self._names[body] = name = f"{kind}-{len(self._names)}"
            self.rules[name] = body
        return self._names[body]

    @abstractmethod
    def token(self, node: Token) -> str: ...

    def free_text(self, node: TextExcept) -> str:
        self.unenforced += node.length_unenforced()
        return self.states(free_text(node.without, node.clean_end), 0)

    def states(self, automaton: Automaton, at: int) -> str:
        """An automaton, from a state on."""
        if automaton not in self._automata:
            self._automata[automaton] = name = f"{automaton.name}-{len(self._automata)}"
            for number, state in enumerate(automaton.states):
                spend(1 + len(state.moves))
                options = [f"{characters(ranges)} {name}-{to}" for ranges, to in state.moves]
                self.rules[f"{name}-{number}"] = " | ".join([*options, *(['""'] if state.ends else [])])
        return f"{self._automata[automaton]}-{at}"


class ItemPrinter(RulePrinter):
    """Prints from the items and states of a language (`determinize`), not from its nodes: these can be followed through
    the beginning of an output. JSON values are rules among them."""

    most_tokens: ClassVar[int | None] = None
    """Larger sets of tokens are printed as text."""

    def __init__(self, language: OutputLanguage, most_work: int = MOST_WORK) -> None:
        super().__init__()
        self.language = language
        value = next((node for node in language.nodes() if isinstance(node, Json)), None)
        anything = _anything(value.without, value.python) if value is not None else None
        if anything is None:
            self.items = Items(self._rule, self._replacement)
            self.states_of = States(self.items, most_work)
        else:
            self.schemas = anything.schemas.copy()
            self.items = anything.items.copy(self._rule, self._replacement)
            self.states_of = anything.states.copy(self.items, most_work)

    def read(self, rules: Iterable[str]) -> None:
        """These rules, one after the other: each needs few but those before it, so that the stack stays low."""
        for name in list(rules):
            working_on(self.place(name))
            self.items.body(name)

    def place(self, rule: str) -> str:
        """The part of a schema that a rule says."""
        return self.schemas.places.get(rule, "")

    def _rule(self, name: str) -> Node:
        rules = self.language.rules
        return rules[name] if name in rules else self.schemas.rules[name]

    def _replacement(self, node: Json | Token, spaced: bool) -> Node | None:
        """The rules of a JSON value, with whitespace before it unless it is `spaced`; the text of a large set of
        tokens."""
        if isinstance(node, Json):
            value = self.schemas.node(node)
            self.read(self.schemas.rules)
            return value if spaced else sequence(JSON_SPACE, value)
        return node.text if self.most_tokens is not None and len(node.ids) > self.most_tokens else None


class _Anything:
    """The states of any JSON value, which nearly every schema has somewhere: all the others begin with a copy."""

    def __init__(self, without: tuple[str, ...], python: bool) -> None:
        self.schemas = SchemaGrammar()
        value = self.schemas.node(Json(True, "", without, python))
        self.items = Items(self.schemas.rules.__getitem__, lambda node, spaced: None)
        self.states = States(self.items)
        roots = [(self.items.named(name), "") for name in self.schemas.rules]
        item = self.items.of(value)
        self.states.check([*roots, (item, "")], self.states.start(item))


@lru_cache(64)
def _anything(without: tuple[str, ...], python: bool) -> _Anything | None:
    """None where it is too ambiguous."""
    try:
        return _Anything(without, python)
    except TooAmbiguous:
        return None


def text(lines: Mapping[str, str]) -> str:
    return "".join(f"{name} ::= {body}\n" for name, body in lines.items())


def counted(part: str, least: int, most: int | None, named: Callable[[str, str], str]) -> str:
    """So many of a part that has no counts in it. `named` gives a name to what is counted again."""
    if most == 0:
        return '""'
    if max(least, most or 0) <= MOST_TIMES:
        return f"{part}{times(least, most)}"
    thousand = named("part", counted(part, MOST_TIMES, MOST_TIMES, named))
    thousands, ones = divmod(least, MOST_TIMES)
    needed = [counted(thousand, thousands, thousands, named), counted(part, ones, ones, named)]
    if most is None:
        needed.append(f"{part}*")
    else:
        thousands, ones = divmod(most - least, MOST_TIMES)
        rest = f"{counted(thousand, thousands, thousands, named)} {counted(part, 0, ones, named)}"
        if thousands:
            fewer = counted(thousand, 0, thousands - 1, named), counted(part, 0, MOST_TIMES - 1, named)
            rest = named("any", f"{' '.join(fewer)} | {rest}")
        needed.append(rest)
    return " ".join(needed)


def quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(node: Chars) -> str:
    # To one of them `[^]` is any character, and to the other none. And llama.cpp refuses a token that is only the first
    # byte of a character if that could become one that is excluded.
    by_members = node.excluded and (not node.ranges or node.ranges[-1][1] > 0x7F)
    return bracketed(Chars(node.members) if by_members else node, _in_class)


def characters(ranges: Ranges) -> str:
    """One character of these ranges."""
    (low, high), *others = ranges
    return quoted(chr(low)) if low == high and not others else char_class(among(ranges))


def _in_class(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in '^-[]"' else _escaped(char)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char < "\x7f" or (char.isprintable() and ord(char) > 0xA0):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
