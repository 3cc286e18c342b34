"""A language as one regular expression, where it is regular: no value nests in itself.

Only what every engine knows is used: groups, classes, counts. Tokens are spelled out. The other printers write their
regular parts with `regular`: patterns of exported schemas, lexemes of Lark, elements of structural tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from ...errors import UnbraidError
from ...metering import spend
from ...schema.regular import Chars, Node, OneOf, Repeat, Sequence, Verbatim, among, without
from ..automata import Automaton, TooManyStates, automaton, free_text
from ..language import (
    Json,
    Lexeme,
    OutputLanguage,
    Rule,
    TextExcept,
    TextOf,
    Token,
    Unenforced,
)
from ..schema_grammar import SPACE, SchemaGrammar
from . import Printed, first_that_fits

_LONGEST = 1 << 18


class NotRegular(UnbraidError):
    """The language is no regular one, or too large a one; the message says why."""


def to_regex(language: OutputLanguage) -> Printed[str]:
    return first_that_fits(language, _printed, NotRegular)


def _printed(language: OutputLanguage) -> Printed[str]:
    printer = _Printer(language.rules)
    printer.write(language.rules)
    expression = printer.expression(language.root)
    return Printed(expression, (*language.unenforced, *printer.unenforced, *printer.schemas.unenforced))


def regular(node: Node) -> str:
    """The expression for a node without JSON and rules."""
    return _Printer({}).expression(node)


class _Printer:
    def __init__(self, rules: Mapping[str, Node]) -> None:
        self.schemas = SchemaGrammar()
        self.unenforced: list[Unenforced] = []
        self._rules = rules
        self._written: dict[str, str | None] = {}  # rules; None for those that are being written

    def write(self, rules: Iterable[str]) -> None:
        """These rules, one after the other: each needs few but those before it, so that the stack stays low."""
        for name in rules:
            self._rule(name)

    def expression(self, node: Node) -> str:
        """It can stand in a sequence as it is: alternatives are in a group."""
        spend()
        match node:
            case Verbatim(text):
                return literal(text)
            case Chars():
                return char_class(node)
            case Token(_, text):
                return self.expression(text)
            case TextExcept():
                self.unenforced += node.length_unenforced()
                return text_except(node)
            case TextOf():
                return text_of(node)
            case Json():
                root = self.schemas.node(node)
                self.write(self.schemas.rules)
                return self.expression(SPACE) + self.expression(root)
            case Sequence(items):
                return "".join(self._each(items))
            case OneOf(items):
                options = dict.fromkeys(self._each(items))
                some = "|".join(filter(None, options))
                return f"(?:{some}){'?' if '' in options else ''}" if some else ""
            case Repeat(item, least, most):
                inner = self.expression(item)
                if not inner or most == 0:
                    return ""
                whole = isinstance(item, Chars | OneOf) and not inner.endswith("?")
                return f"{inner if whole else f'(?:{inner})'}{times(least, most)}"
            case Lexeme(item):
                return self.expression(item)
            case Rule(name):
                return self._rule(name)
        raise AssertionError(node)

    def _each(self, items: Iterable[Node]) -> list[str]:
        """The items one by one, no further than until they are too long together."""
        expressions: list[str] = []
        size = 0
        for item in items:
            expressions.append(self.expression(item))
            size += len(expressions[-1])
            if size > _LONGEST:
                raise NotRegular(
                    f"the regular expression is longer than {_LONGEST} characters: use a syntax with rules"
                )
        return expressions

    def _rule(self, name: str) -> str:
        if name not in self._written:
            self._written[name] = None
            node = self._rules[name] if name in self._rules else self.schemas.rules[name]
            self._written[name] = self.expression(node)
        expression = self._written[name]
        if expression is None:
            raise NotRegular(
                "this is no regular language, since a JSON value can nest in another without end: give every tool a "
                "strict schema without `additionalProperties` and references to itself, or use a syntax with rules"
            )
        return expression


@lru_cache(maxsize=64)
def text_except(node: TextExcept) -> str:
    """Text without forbidden words."""
    return _of_automaton(free_text(node.without, node.clean_end))


@lru_cache(maxsize=64)
def text_of(node: TextOf) -> str:
    """The text of a regular node without forbidden words."""
    try:
        return _of_automaton(automaton(node.item, node.without))
    except TooManyStates:
        raise NotRegular("a grammar without what ends it is too large for a regular expression") from None


def _of_automaton(automaton: Automaton) -> str:
    edges, end = _Edges(), len(automaton.states)
    for at, state in enumerate(automaton.states):
        for ranges, target in state.moves:
            one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
            edges.add(at, target, literal(chr(ranges[0][0])) if one else char_class(among(ranges)))
        if state.ends:
            edges.add(at, end, "")
    return edges.expression(end)


class _Edges:
    """An automaton whose edges are expressions; its start is 0."""

    def __init__(self) -> None:
        self._from: dict[int, dict[int, str]] = {}

    def add(self, source: int, target: int, edge: str) -> None:
        before = self._from.setdefault(source, {}).get(target)
        self._from[source][target] = edge if before is None else f"{before}|{edge}"

    def expression(self, end: int) -> str:
        """The expression that leads from the start to the end, by eliminating one state after the other."""
        size = 0
        for gone in range(end - 1, 0, -1):
            after = self._from.pop(gone, {})
            loop = f"(?:{after.pop(gone)})*" if gone in after else ""
            for source, targets in self._from.items():
                before = targets.pop(gone, None)
                if before is None:
                    continue
                for target, edge in after.items():
                    through = f"{_grouped(before)}{loop}{_grouped(edge)}"
                    size += len(through)
                    spend(1 + len(through) // 1000)
                    if size > 16 * _LONGEST or len(through) > _LONGEST:
                        raise NotRegular(
                            f"the regular expression is longer than {_LONGEST} characters: use a syntax with rules"
                        )
                    self.add(source, target, through)
        edges = self._from.get(0, {})
        loop = f"(?:{edges[0]})*" if 0 in edges else ""
        return f"{loop}(?:{edges[end]})"


def _grouped(edge: str) -> str:
    """An expression as it can stand in a sequence. Groups nest no deeper than they must: engines have a limit."""
    return f"(?:{edge})" if "|" in edge else edge


def char_class(node: Chars) -> str:
    if not node.ranges:
        return r"[\s\S]" if node.excluded else r"[^\s\S]"
    # xgrammar takes an escaped `^` at the beginning for a negation, and a digit after a control character for a part of
    # that one's code: so these come last.
    caret = ((94, 94),)
    others = without(node.ranges, caret)
    if not others and not node.excluded:
        return r"\^"
    last = [ends for ends in others if _is_control(chr(ends[1]))] + [ends for ends in caret if others != node.ranges]
    return bracketed(Chars((*(ends for ends in others if ends not in last), *last), node.excluded), escaped)


def bracketed(node: Chars, spelled: Callable[[str], str]) -> str:
    ranges = ((spelled(chr(low)), spelled(chr(high))) for low, high in node.ranges)
    inside = "".join(low if low == high else f"{low}-{high}" for low, high in ranges)
    return f"[{'^' if node.excluded else ''}{inside}]"


_SPELLED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def literal(text: str) -> str:
    return "".join(f"[{escaped(char)}]" if _is_control(char) else escaped(char) for char in text)


def escaped(char: str) -> str:
    """As it stands in a class. (xgrammar takes any number of digits after `\\x`.)"""
    if _is_control(char):
        return f"\\u{ord(char):04x}"
    return _SPELLED.get(char, f"\\{char}" if char in r"\.^$*+?()[]{}|-/" else char)


def _is_control(char: str) -> bool:
    return (char < " " and char not in _SPELLED) or "\x7f" <= char < "\xa0"


def times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case 1, 1:
            return ""
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
