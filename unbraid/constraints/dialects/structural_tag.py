"""A language as a structural tag of xgrammar, as SGLang and vLLM take it."""

from __future__ import annotations

from typing import Any

from ..language import (
    NOTHING,
    Choice,
    Json,
    Language,
    Lexeme,
    Node,
    Repeat,
    Rule,
    Sequence,
    Text,
    TextExcept,
    Token,
    unbounded,
)
from ..schema_export import Unenforced, fit
from ..schema_grammar import SPACE as JSON_SPACE
from .gbnf import to_ebnf
from .regex import regular

Tag = dict[str, Any]


def to_structural_tag(language: Language) -> tuple[Tag, list[Unenforced]]:
    printer = _Printer(language)
    return {"type": "structural_tag", "format": printer.format(language.root)}, printer.unenforced


class _Printer:
    def __init__(self, language: Language) -> None:
        self._rules = language.rules
        self.unenforced: list[Unenforced] = []

    def format(self, node: Node) -> Tag:
        if _is_pattern(node):
            return {"type": "regex", "pattern": regular(node)}
        match node:
            case Text(text):
                return {"type": "const_string", "value": text}
            case Token(ranges):
                return _token(ranges)
            case TextExcept(without):
                self.unenforced += unbounded(node)
                # It may end with the beginning of a word; xgrammar has no name for one that does not.
                return {"type": "any_text", "excludes": list(without)}
            case Json():
                return self._json(node)
            case Sequence(items):
                return {"type": "sequence", "elements": self._elements(items)}
            case Choice(items):
                # Where several ways lead to the same rules, these are written once.
                return self._grammar(node) if any(map(_has_rule, items)) else self._choice(items)
            case Repeat(item, least, most):
                return _repeated(self.format(item), least, most)
            case Lexeme(item):
                return self.format(item)
            case Rule():
                return self._grammar(node)
        raise AssertionError(node)

    def _json(self, node: Json) -> Tag:
        if not node.plain:
            return self._grammar(node)
        fitting, unenforced = fit(node.schema, "xgrammar", node.where)
        self.unenforced += unenforced
        # As in the other dialects, whitespace may stand before a value.
        space = {"type": "regex", "pattern": regular(JSON_SPACE)}
        return {"type": "sequence", "elements": [space, {"type": "json_schema", "json_schema": fitting}]}

    def _grammar(self, node: Node) -> Tag:
        """What a tag has no words for: rules, and JSON that is not only JSON."""
        grammar, unenforced = to_ebnf(Language(node, self._rules).needed())
        self.unenforced += unenforced
        return {"type": "grammar", "grammar": grammar}

    def _elements(self, items: tuple[Node, ...]) -> list[Tag]:
        """What is a pattern and stands side by side becomes one."""
        elements: list[Tag] = []
        run: list[Node] = []
        for item in (*items, None):
            if item is not None and (_is_pattern(item) or isinstance(item, Text)):
                run.append(item)
                continue
            if run:
                elements.append(self.format(run[0] if len(run) == 1 else Sequence(tuple(run))))
                run.clear()
            if item is not None:
                elements.append(self.format(item))
        return elements

    def _choice(self, items: tuple[Node, ...]) -> Tag:
        some = [self.format(item) for item in items if item is not NOTHING]
        either = some[0] if len(some) == 1 else {"type": "or", "elements": some}
        return _repeated(either, 0, 1) if len(some) < len(items) else either


def _has_rule(node: Node) -> bool:
    return any(isinstance(part, Rule) for part in Language(node, {}).nodes())


def _is_pattern(node: Node) -> bool:
    """Whether a regular expression says it, and a plain string does not."""
    match node:
        case Text() | Token() | Json() | TextExcept() | Rule():
            return False
        case Sequence(items) | Choice(items):
            return all(isinstance(item, Text) or _is_pattern(item) for item in items)
        case Repeat(item) | Lexeme(item):
            return isinstance(item, Text) or _is_pattern(item)
    return True


def _token(ranges: tuple[tuple[int, int], ...]) -> Tag:
    ids = [id for first, last in ranges for id in range(first, last + 1)]
    if len(ids) == 1:
        return {"type": "token", "token": ids[0]}
    return {"type": "grammar", "grammar": f"root ::= Token({', '.join(map(str, ids))})"}


def _repeated(tag: Tag, least: int, most: int | None) -> Tag:
    kind = {(0, None): "star", (1, None): "plus", (0, 1): "optional"}.get((least, most))
    if kind is not None:
        return {"type": kind, "content": tag}
    return {"type": "repeat", "min": least, "max": -1 if most is None else most, "content": tag}
