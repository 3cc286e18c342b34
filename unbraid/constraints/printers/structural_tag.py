"""A language as a structural tag of xgrammar (a tree in JSON), as SGLang and vLLM take it.

Schemas go to xgrammar's own converter. What a tag cannot express is put into it as EBNF.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

from ...schema.regular import NOTHING, Node, OneOf, Repeat, Sequence, Verbatim
from ..automata import TooManyStates
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
from ..output_prefix import Written
from ..schema_export import export
from ..schema_grammar import MOST_JSON_SPACE
from ..schema_grammar import SPACE as JSON_SPACE
from . import Printed, first_that_fits
from .ebnf import print_ebnf, to_ebnf
from .regex import regular

Tag = dict[str, Any]


def to_structural_tag(language: OutputLanguage, prefix: Seq[Written] = ()) -> Printed[Tag]:
    """`prefix` is the beginning of the output, if there is one already. The rest of a schema is no schema, so what
    follows it is EBNF."""
    if prefix:
        rest = to_ebnf(language, prefix)
        tag = {"type": "structural_tag", "format": {"type": "grammar", "grammar": rest.grammar}}
        return Printed(tag, rest.unenforced)
    return first_that_fits(language, _printed, TooManyStates)


def _printed(language: OutputLanguage) -> Printed[Tag]:
    printer = _Printer(language)
    tag = {"type": "structural_tag", "format": printer.format(language.root)}
    return Printed(tag, (*language.unenforced, *printer.unenforced))


class _Printer:
    def __init__(self, language: OutputLanguage) -> None:
        self._rules = language.rules
        self.unenforced: list[Unenforced] = []

    def format(self, node: Node) -> Tag:
        if _is_pattern(node):
            return {"type": "regex", "pattern": regular(node)}
        match node:
            case Verbatim(text):
                return {"type": "const_string", "value": text}
            case Token():
                return _token(node)
            case TextExcept(without):
                self.unenforced += node.length_unenforced()
                # It may end with the beginning of a word; xgrammar has no name for one that does not.
                return {"type": "any_text", "excludes": list(without)}
            case Json():
                return self._json(node)
            case Sequence(items):
                return {"type": "sequence", "elements": self._elements(items)}
            case OneOf(items):
                # Where several alternatives lead to the same rules, these are written once.
                return self._grammar(node) if any(map(_has_rule, items)) else self._choice(items)
            case Repeat(item, least, most):
                return _repeated(self.format(item), least, most)
            case Lexeme(item):
                return self.format(item)
            case Rule() | TextOf():
                return self._grammar(node)
        raise AssertionError(node)

    def _json(self, node: Json) -> Tag:
        if not node.plain:
            return self._grammar(node)
        exported, unenforced = export(node.schema, "xgrammar", node.where)
        self.unenforced += unenforced
        # As in the other syntaxes, whitespace may stand before a value.
        space = {"type": "regex", "pattern": regular(JSON_SPACE)}
        value = {"type": "json_schema", "json_schema": exported, "max_whitespace_cnt": MOST_JSON_SPACE}
        return {"type": "sequence", "elements": [space, value]}

    def _grammar(self, node: Node) -> Tag:
        """What a tag cannot express: rules, and JSON values with rules besides their schema."""
        printed = print_ebnf(OutputLanguage(node, self._rules).needed())
        self.unenforced += printed.unenforced
        return {"type": "grammar", "grammar": printed.grammar}

    def _elements(self, items: tuple[Node, ...]) -> list[Tag]:
        """What is a pattern and stands side by side becomes one."""
        elements: list[Tag] = []
        run: list[Node] = []
        for item in (*items, None):
            if item is not None and (_is_pattern(item) or isinstance(item, Verbatim)):
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
    return any(isinstance(part, Rule) for part in OutputLanguage(node, {}).nodes())


def _is_pattern(node: Node) -> bool:
    """Whether a regular expression says it, and a plain string does not."""
    match node:
        case Verbatim() | Token() | Json() | TextExcept() | TextOf() | Rule():
            return False
        case Sequence(items) | OneOf(items):
            return all(isinstance(item, Verbatim) or _is_pattern(item) for item in items)
        case Repeat(item) | Lexeme(item):
            return isinstance(item, Verbatim) or _is_pattern(item)
    return True


def _token(node: Token) -> Tag:
    ids = node.ids
    if len(ids) == 1:
        return {"type": "token", "token": ids[0]}
    return {"type": "grammar", "grammar": f"root ::= Token({', '.join(map(str, ids))})"}


def _repeated(tag: Tag, least: int, most: int | None) -> Tag:
    kind = {(0, None): "star", (1, None): "plus", (0, 1): "optional"}.get((least, most))
    if kind is not None:
        return {"type": kind, "content": tag}
    return {"type": "repeat", "min": least, "max": -1 if most is None else most, "content": tag}
