"""A client's grammar, read into the language of the texts that follow it."""

from __future__ import annotations

from functools import lru_cache

from ...core.custom_tools import Grammar
from ...errors import InvalidTools, Place
from ...schema.patterns import BadPattern, UnsupportedPattern, parse_whole
from ...schema.regular import Node
from .errors import BadGrammar, UnsupportedGrammar
from .lark import START, read_lark
from .reduction import reduce


def read_grammar(grammar: Grammar, field: Place) -> Node:
    """A regular node, or `Nested`. Raises `InvalidTools` about that field where it is no grammar, and
    `UnsupportedGrammar` where it is one that is not supported."""
    try:
        return _read(grammar)
    except UnsupportedPattern as problem:
        raise UnsupportedGrammar(str(problem)) from None
    except UnsupportedGrammar:
        raise
    except (BadGrammar, BadPattern) as problem:
        raise InvalidTools(field, f": {problem}") from None


@lru_cache(maxsize=256)
def _read(grammar: Grammar) -> Node:
    definition = grammar.definition
    if any("\ud800" <= char < "\ue000" for char in definition):
        raise BadGrammar("half of a surrogate pair is no character")
    if grammar.syntax == "lark":
        return reduce(read_lark(definition), START)
    return reduce({START: parse_whole(definition)}, START)
