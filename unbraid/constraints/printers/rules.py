"""Printing rules over characters: what GBNF (llama.cpp) and EBNF (xgrammar) have in common.

The two differ in how they name tokens and free text; each subclass says that. All else is printed in what both
understand alike: names of letters, digits and dashes; no `\\x` (two digits to one, any number to the other); never an
empty alternative. llama.cpp refuses what it would unroll into more than 2000 rules: so no count is larger than a
thousand, and what holds counts and is counted itself has a name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from ...errors import InvalidSchema
from ...metering import spend
from ...schema.regular import Chars, Choice, Node, Repeat, Sequence, Text, all_but, among, sequence
from ..determinize.items import MOST_TIMES
from ..forbidden_words import automaton
from ..grammars.automaton import Automaton
from ..grammars.automaton import automaton as automaton_of
from ..grammars.restriction import restricted
from ..language import Json, Language, Lexeme, Rule, TextExcept, TextOf, Token, Unenforced
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
        self._free: dict[tuple[tuple[str, ...], bool], str] = {}
        self._driven: dict[Automaton, str] = {}

    def print(self, language: Language) -> Printed[str]:
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
        return " | ".join(map(self.expression, node.items)) if isinstance(node, Choice) else self.expression(node)

    def expression(self, node: Node) -> str:
        spend()
        match node:
            case Text(characters):
                return quoted(characters)
            case Chars():
                return char_class(node)
            case Token():
                return self.token(node)
            case TextExcept():
                return self.free_text(node)
            case TextOf(item, without):
                return self.states(automaton_of(item, without), 0)
            case Json():
                # The converters of the other syntaxes let whitespace stand before a value.
                return self.expression(sequence(JSON_SPACE, self.schemas.node(node)))
            case Sequence(items):
                return " ".join(map(self.expression, items)) or '""'
            case Choice():
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
        if not isinstance(item, Chars | Choice | Rule | TextExcept | TextOf):  # the others are one name or one class
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
        return self.automaton(node.without, node.clean_end, 0)

    def states(self, found: Automaton, at: int) -> str:
        """An automaton, from a state on."""
        if found not in self._driven:
            self._driven[found] = name = f"states-{len(self._driven)}"
            for number, state in enumerate(found.states):
                spend(1 + len(state.moves))
                options = [f"{char_class(among(ranges))} {name}-{to}" for ranges, to in state.moves]
                self.rules[f"{name}-{number}"] = " | ".join([*options, *(['""'] if state.ends else [])])
        return f"{self._driven[found]}-{at}"

    def automaton(self, words: tuple[str, ...], clean_end: bool, at: int) -> str:
        """The automaton that reads text without these words, from a state on."""
        key = words, clean_end
        if key not in self._free:
            self._free[key] = name = f"text-{len(self._free)}"
            for number, state in enumerate(automaton(words)):
                others = char_class(all_but(*state.moves, *state.forbidden))
                options = [f"{others} {name}-0"] + [f"{quoted(c)} {name}-{to}" for c, to in sorted(state.moves.items())]
                if not (clean_end and state.pending):
                    options.append('""')
                self.rules[f"{name}-{number}"] = " | ".join(options)
        return f"{self._free[key]}-{at}"


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


def _in_class(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in '^-[]"' else _escaped(char)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char < "\x7f" or (char.isprintable() and ord(char) > 0xA0):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
