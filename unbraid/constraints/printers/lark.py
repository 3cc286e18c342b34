"""A language as a Lark grammar for llguidance.

llguidance cuts the text into lexemes, takes the longest that it can begin, and never goes back. So lexemes are small,
and what can stand in the same place is cut alike: each text is a lexeme, whitespace is one, and so is each `Lexeme` of
the language. Only free text reaches further, up to and with the marker that ends it: alone it would swallow the
beginning of the marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ...metering import spend
from ...schema.regular import Chars, Node, OneOf, Repeat, Sequence, Verbatim, may_hold
from ..language import SPACE, Json, Lexeme, OutputLanguage, Rule, TextExcept, TextOf, Token, Unenforced, restricted
from ..schema_export import export
from ..schema_grammar import SPACE as JSON_SPACE
from ..schema_grammar import SchemaGrammar
from . import Printed
from .regex import char_class, literal, regular, text_except, times

_ANY = "(?s:.*)"
_signs = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[()]", re.DOTALL).findall
"""What opens and closes groups; and classes and escapes, which may hold such signs."""
_LONGEST_TEXT = 20_000
_DEEPEST = 240
"""How deep groups may nest in a regular expression of llguidance's: 250."""


def to_lark(language: OutputLanguage, *, all_escapes: bool = False) -> Printed[str]:
    """`all_escapes` lets a JSON string have any character as `\\uXXXX`, which llguidance knows from 1.9 on."""
    language = restricted(language, left_recursion=True)
    printer = _Printer(language, all_escapes)
    printer.define("start", language.root)
    for name, node in language.rules.items():
        printer.define(name, node)
    for name, node in printer.schemas.rules.items():
        printer.define(name, node)
    unenforced = (*language.unenforced, *printer.unenforced, *printer.schemas.unenforced)
    return Printed("\n".join(printer.lines) + "\n", unenforced)


class _Printer:
    def __init__(self, language: OutputLanguage, all_escapes: bool) -> None:
        self._options: dict[str, Any] = {"whitespace_pattern": regular(JSON_SPACE)}
        if all_escapes:
            self._options["json_allow_general_unicode_escapes"] = True
        self.rules = language.rules
        self.lines: list[str] = []
        self.schemas = SchemaGrammar()
        self.unenforced: list[Unenforced] = []
        self._names: dict[str, str] = {}
        self._printed: dict[int, str] = {}
        """What stands for a node that was printed before, by its id: calls stand in several places."""

    def define(self, name: str, node: Node) -> None:
        self.lines.append(f"{name}: {self._rule(node)}")

    def _named(self, kind: str, text: str) -> str:
        """A name for this text; the same text has one name."""
        if text not in self._names:
            self._names[text] = name = f"{kind}_{len(self._names)}"
            self.lines.append(f"{name}: {text}")
        return self._names[text]

    # --- Rules -----------------------------------------------------------------------------------------------------

    def _rule(self, node: Node) -> str:
        spend()
        match node:
            case Token(ranges):
                return "<[" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges) + "]>"
            case Json() | OneOf():
                if id(node) not in self._printed:
                    self._printed[id(node)] = self._json(node) if isinstance(node, Json) else self._choice(node)
                return self._printed[id(node)]
            case Sequence(items):
                return " ".join(self._together(items))
            case Repeat(item, least, most) if not isinstance(item, Chars):
                return f"({self._rule(item)}){times(least, most)}"
            case Rule(name):
                return name
        return self._terminal(node)

    def _together(self, items: tuple[Node, ...]) -> list[str]:
        """The items one by one; free text together with what follows, up to the word that ends it."""
        parts: list[str] = []
        at = 0
        while at < len(items):
            begin, words = at, _avoided(items[at])
            at += 1
            if not words or not _is_regular(items[begin]):
                parts.append(self._rule(items[begin]))
                continue
            while at < len(items) and _is_regular(items[at]) and not _ends(items[at - 1], words):
                words |= _avoided(items[at])
                at += 1
            parts.append(self._terminal(Sequence(items[begin:at])))
        return parts

    def _choice(self, node: OneOf) -> str:
        return self._named("any", " | ".join(map(self._rule, node.items)))

    def _json(self, node: Json) -> str:
        if not node.plain:
            return self._rule(self.schemas.node(node))
        exported, unenforced = export(node.schema, "llguidance", node.where)
        self.unenforced += unenforced
        options = {"x-guidance": self._options}
        whole = exported if isinstance(exported, bool) else {**exported, **options}
        return self._named("json", f"%json {json.dumps(whole if whole is not True else options, ensure_ascii=False)}")

    # --- Terminals -------------------------------------------------------------------------------------------------

    def _terminal(self, node: Node) -> str:
        return self._named("T", self._expression(node))

    def _expression(self, node: Node) -> str:
        spend()
        if node == SPACE:
            return self._named("SPACE", self._repeated(SPACE))
        match node:
            case Verbatim(text):
                return json.dumps(text, ensure_ascii=False)
            case Chars():
                return f"/{char_class(node)}/"
            case TextExcept():
                return self._named("TEXT", _free(node))
            case TextOf(item, without):
                words = [word for word in without if all(may_hold(item, char) for char in word)]
                return self._named("TEXT", f"({self._expression(item)})" + (f" & {_no(words)}" if words else ""))
            case Sequence(items):
                return " ".join(map(self._expression, items)) or '""'
            case OneOf(items):
                return f"({' | '.join(map(self._expression, items))})"
            case Repeat():
                return self._repeated(node)
            case Lexeme(item):
                return self._expression(item)
        raise AssertionError(node)

    def _repeated(self, node: Repeat) -> str:
        return f"({self._expression(node.item)}){times(node.least, node.most)}"


def _is_regular(node: Node) -> bool:
    spend()
    match node:
        case Token() | Json() | Rule():
            return False
        case Sequence(items) | OneOf(items):
            return all(map(_is_regular, items))
        case Repeat(item) | Lexeme(item):
            return _is_regular(item)
    return True


def _avoided(node: Node) -> set[str]:
    """The words that end the free text in a node, if that has not ended in it."""
    match node:
        case Sequence(items):
            words: set[str] = set()
            for item in items:
                words = set() if _ends(item, words) else words | _avoided(item)
            return words
        case OneOf(items):
            return set[str]().union(*map(_avoided, items))
        case Repeat(item):
            return _avoided(item)
        case TextExcept(without) | TextOf(_, without):
            return set(without) or {""}
    return set()


def _ends(node: Node, words: set[str]) -> bool:
    return isinstance(node, Verbatim) and node.text.startswith(tuple(filter(None, words)))


def _free(node: TextExcept) -> str:
    if node.unbounded and node.without:
        # Without a complement llguidance sees at once that most tokens can come.
        positive = text_except(node)
        if len(positive) < _LONGEST_TEXT and _depth(positive) < _DEEPEST:
            return f"/{positive}/"
    size = "*" if node.unbounded else times(node.least, node.most)
    parts = [f"/(?s:.{size})/"]
    if node.without:
        parts.append(_no(node.without))
    if node.clean_end:
        begins = sorted({word[:size] for word in node.without for size in range(1, len(word))})
        parts.append(f"~/{_ANY}{_any_of(begins)}/")
    return " & ".join(parts)


def _depth(expression: str) -> int:
    """How deep the groups of an expression nest."""
    deepest = depth = 0
    for sign in _signs(expression):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        deepest = max(deepest, depth)
    return deepest


def _no(words: Iterable[str]) -> str:
    """Any text without these words."""
    return f"~/{_ANY}{_any_of(words)}{_ANY}/"


def _any_of(words: Iterable[str]) -> str:
    return f"({'|'.join(map(literal, words))})"
