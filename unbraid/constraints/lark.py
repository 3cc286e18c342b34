"""A language as a Lark grammar for llguidance.

llguidance cuts the text into lexemes and takes the longest: free text would swallow the beginning of the marker that
ends it. So whatever is regular and stands together is printed as one terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .language import (
    SPACE,
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
)
from .regex import char_class, free, literal, regular, times
from .schema_nodes import SPACE as JSON_SPACE
from .schema_nodes import SchemaNodes
from .schemas import fit

_ANY = "(?s:.*)"
_LONGEST_TEXT = 20_000


def to_lark(language: Language, *, all_escapes: bool = False) -> tuple[str, list[Loosened]]:
    """`all_escapes` lets a JSON string have any character as `\\uXXXX`, which llguidance knows from 1.9 on."""
    printer = _Printer(language, all_escapes)
    printer.define("start", language.root)
    for name, node in language.rules.items():
        printer.define(name, node)
    for name, node in printer.schemas.rules.items():
        printer.define(name, node)
    return "\n".join(printer.lines) + "\n", printer.loosened + printer.schemas.loosened


class _Printer:
    def __init__(self, language: Language, all_escapes: bool) -> None:
        self._options: dict[str, Any] = {"whitespace_pattern": regular(JSON_SPACE)}
        if all_escapes:
            self._options["json_allow_general_unicode_escapes"] = True
        self.rules = language.rules
        self.lines: list[str] = []
        self.schemas = SchemaNodes()
        self.loosened: list[Loosened] = []
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
        if _is_regular(node):
            return self._terminal(node)
        match node:
            case Token(ranges):
                return "<[" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges) + "]>"
            case Json() | Choice():
                if id(node) not in self._printed:
                    self._printed[id(node)] = self._json(node) if isinstance(node, Json) else self._choice(node)
                return self._printed[id(node)]
            case Sequence(items):
                return " ".join(self._together(items))
            case Repeat(item, least, most):
                return f"({self._rule(item)}){times(least, most)}"
            case Rule(name):
                return name
        raise AssertionError(node)

    def _together(self, items: tuple[Node, ...]) -> list[str]:
        """What is regular and stands side by side becomes one terminal."""
        parts: list[str] = []
        run: list[Node] = []
        for item in (*items, None):
            if item is not None and _is_regular(item):
                run.append(item)
                continue
            if run:
                parts.append(self._terminal(Sequence(tuple(run))))
                run.clear()
            if item is not None:
                parts.append(self._rule(item))
        return parts

    def _choice(self, node: Choice) -> str:
        return self._named("any", " | ".join(map(self._rule, node.items)))

    def _json(self, node: Json) -> str:
        if not node.plain:
            return self._rule(self.schemas.node(node))
        fitting, loosened = fit(node.schema, "llguidance", node.where)
        self.loosened += loosened
        options = {"x-guidance": self._options}
        whole = fitting if isinstance(fitting, bool) else {**fitting, **options}
        return self._named("json", f"%json {json.dumps(whole if whole is not True else options, ensure_ascii=False)}")

    # --- Terminals -------------------------------------------------------------------------------------------------

    def _terminal(self, node: Node) -> str:
        return self._named("T", self._expression(node))

    def _expression(self, node: Node) -> str:
        if node is SPACE:
            return self._named("SPACE", self._repeated(SPACE))
        match node:
            case Text(text):
                return json.dumps(text, ensure_ascii=False)
            case Chars():
                return f"/{char_class(node)}/"
            case Free():
                return self._named("TEXT", _free(node))
            case Sequence(items):
                return " ".join(map(self._expression, items)) or '""'
            case Choice(items):
                return f"({' | '.join(map(self._expression, items))})"
            case Repeat():
                return self._repeated(node)
        raise AssertionError(node)

    def _repeated(self, node: Repeat) -> str:
        return f"({self._expression(node.item)}){times(node.least, node.most)}"


def _is_regular(node: Node) -> bool:
    match node:
        case Token() | Json() | Rule():
            return False
        case Sequence(items) | Choice(items):
            return all(map(_is_regular, items))
        case Repeat(item):
            return _is_regular(item)
    return True


def _free(node: Free) -> str:
    if not node.least and node.most is None and node.without:
        # Without a complement llguidance sees at once that most tokens can come.
        positive = free(node)
        if len(positive) < _LONGEST_TEXT:
            return f"/{positive}/"
    size = "*" if not node.least and node.most is None else times(node.least, node.most)
    parts = [f"/(?s:.{size})/"]
    if node.without:
        parts.append(f"~/{_ANY}{_any_of(node.without)}{_ANY}/")
    if node.clean_end:
        begins = sorted({word[:size] for word in node.without for size in range(1, len(word))})
        parts.append(f"~/{_ANY}{_any_of(begins)}/")
    return " & ".join(parts)


def _any_of(words: Iterable[str]) -> str:
    return f"({'|'.join(map(literal, words))})"
