"""A constraint as fields of a llama.cpp request, in the process or over HTTP. What cannot be enforced is refused.

llama.cpp says itself what is wrong with most grammars. Three kinds must be caught before: what it takes without
enforcing it, what would keep it busy for minutes over one token, and a grammar that leaves it no token to choose, which
ends the whole process. `_dead_end` looks for the last kind, in the GBNF that is about to be sent: the grammar may have
been written by hand, so the text is all there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from ...constraints import Constraint
from ...constraints.dialects.gbnf import too_open
from ...core.vocabulary import WholeVocabulary
from ..base import Unsupported
from ..retokenize import spell

_fields: WeakKeyDictionary[Constraint, dict[str, Any]] = WeakKeyDictionary()


def constraint_fields(constraint: Constraint, vocabulary: WholeVocabulary | None) -> dict[str, Any]:
    """The fields of a request that tell llama.cpp the constraint. Raises `Unsupported` for what it cannot enforce."""
    if constraint not in _fields:
        _fields[constraint] = constraint.to_llama_cpp()
    fields = _fields[constraint]
    grammar = fields.get("grammar")
    if not isinstance(grammar, str) or not grammar or grammar.startswith("%llguidance"):
        raise Unsupported("llama.cpp enforces no constraint but one in GBNF: give it a grammar that is, or none")
    if fields.get("grammar_lazy") and not fields.get("grammar_triggers"):
        raise Unsupported("llama.cpp enforces no lazy grammar that nothing triggers: name what does")
    where = too_open(grammar)
    if where is not None:
        raise Unsupported(
            f"{where} leaves too many ways open at once to be enforced by llama.cpp, which follows them all: give it "
            "fewer alternatives and optional properties, or a simpler pattern"
        )
    dead_end = None if vocabulary is None else _dead_end(grammar, vocabulary)
    if dead_end is not None:
        raise Unsupported(f"the constraint asks for {dead_end}, which the model has no tokens for: leave it out")
    return fields


_PARTS = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
    | (?P<rule>[\w-]+\s*::=)
    | (?P<sign>[()|])
    | (?P<name>[A-Za-z][\w-]*)
    | "(?P<text>(?:\\.|[^"\\])*)"
    | \[(?P<members>(?:\\.|[^\]\\])*)\]
    | <\[(?P<token>\d+)\]>
    """,
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(.))|(.)", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}


def _dead_end(grammar: str, vocabulary: WholeVocabulary) -> str | None:
    """A part of the grammar that the vocabulary cannot spell, where nothing else may come: a text, a token, or a set
    with no character that it can."""

    @cache
    def can_spell(char: str) -> bool:
        return spell(vocabulary, char.encode("utf-8", "surrogatepass")) is not None

    def begins(part: re.Match[str]) -> bool:
        text, members, token = part.group("text", "members", "token")
        if token:
            return vocabulary.token_bytes(int(token)) is not None
        if members:
            return members[0] == "^" or any(map(can_spell, _characters(members.replace("-", ""))))
        return all(map(can_spell, next(_characters(text or ""), "")))

    def ends(part: re.Match[str]) -> bool:
        return all(map(can_spell, _characters(part["text"] or "")))

    barred: str | None = None  # the first of the ways that cannot be gone; none where one can
    depth, first = 0, False
    for part in _PARTS.finditer(grammar):
        if part["comment"]:
            continue
        if part["rule"]:
            if barred:
                return barred
            barred, depth, first = "", 0, True
        elif part["sign"]:
            depth += {"(": 1, ")": -1, "|": 0}[part["sign"]]
            first = part["sign"] == "|" and depth == 0
        elif part["name"] or begins(part):
            if part["text"] and not ends(part):
                return part[0]
            barred, first = (None if first else barred), False
        elif not first:
            return part[0]
        else:
            barred, first = (barred if barred is None else barred or part[0]), False
    return barred or None


def _characters(text: str) -> Iterator[str]:
    """What stands in a text or a set; only the ends of ranges."""
    for found in _CHARACTER.finditer(text):
        x, u, wide, short, plain = found.groups()
        code = x or u or wide
        try:
            yield chr(int(code, 16)) if code else plain or _SHORT.get(short, short)
        except (ValueError, OverflowError):
            return  # llama.cpp says what is wrong with it
