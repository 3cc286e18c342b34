"""A constraint as fields of a llama.cpp request, in the process or over HTTP. What cannot be enforced is refused.

llama.cpp says itself what is wrong with most grammars. Two kinds must be caught before: one that would keep it busy for
minutes over a token, and one that leaves it no token to choose, which ends the whole process. The printed grammar tells
both: whether it is too ambiguous, and at which points what must come next.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...constraints import Constraint
from ...constraints.language import Token
from ...constraints.printers import Printed
from ...constraints.printers.gbnf import shown
from ...core.vocabulary import WholeVocabulary
from ...schema.regular import Chars, Text
from ..base import Unsupported
from ..retokenize import spell


def constraint_fields(constraint: Constraint, vocabulary: WholeVocabulary | None) -> dict[str, Any]:
    """The fields of a request that say the constraint.

    Some grammars would keep llama.cpp busy for minutes over one token, and where a grammar leaves it no token to
    choose, the whole process ends: those are refused here.
    """
    found = constraint.llama_cpp
    where = found.printed.too_ambiguous
    if where is not None:
        raise Unsupported(
            f"{where} leaves too many alternatives open at once for llama.cpp, which follows them all: give it fewer "
            "alternatives and optional properties, or a simpler pattern",
            field="constraint",
        )
    dead_end = None if vocabulary is None else _dead_end(found.printed, vocabulary)
    if dead_end is not None:
        message = f"the constraint asks for {dead_end}, which the model has no tokens for: leave it out"
        raise Unsupported(message, field="constraint")
    return found.fields


def _dead_end(printed: Printed[str], vocabulary: WholeVocabulary) -> str | None:
    """Something in the grammar that the vocabulary cannot spell, where nothing else may come."""

    @cache
    def can_spell(char: str) -> bool:
        return spell(vocabulary, char.encode("utf-8", "surrogatepass")) is not None

    def can_begin(leaf: Text | Chars | Token) -> bool:
        match leaf:
            case Text(text):
                return can_spell(text[0])
            case Chars():
                return leaf.excluded or any(can_spell(chr(end)) for ends in leaf.ranges for end in ends)
            case Token():
                return any(vocabulary.token_bytes(token) is not None for token in leaf.ids)

    for point in printed.points:
        possible = [leaf for leaf in point.next if can_begin(leaf)]
        if point.only and not possible:
            return shown(point.next[0])
        for leaf in possible:
            if isinstance(leaf, Text) and not all(map(can_spell, leaf.text)):
                return shown(leaf)
    return None
