"""Constraints: what a model may write, as grammars for the engines that enforce them while they sample.

    constraint.py      `Constraint`, which users see: one language, in all syntaxes
    request.py         what a request asks of the response, read and checked
    builder.py         the language of a response, from a format and a request
    calls.py           the language of tool calls
    notations/         the language of arguments, with the names of `core/notations`
    markup.py          a format's markers as nodes
    schema_grammar.py  JSON schemas as grammar rules
    schema_export.py   JSON schemas for the converters of llguidance and xgrammar
    grammars/          grammars that clients give
    language.py        the nodes that languages are made of
    automata.py        text without forbidden words, as automata
    determinize/       a language in which the next character decides, for llama.cpp
    output_prefix.py   the beginning of an output that broke off
    printers/          languages as grammars in the syntaxes of engines
    masks.py           the tokens that may come next, by llguidance
    derive.py          random texts of a language, for tests

Nothing below this package imports it, so that parsing alone does not load it.
"""

from __future__ import annotations

from ..errors import InvalidSchema
from .constraint import AllPrinted, Constraint, constraint, forced_prefix
from .language import Unenforced
from .output_prefix import NotContinued
from .printers.regex import NotRegular
from .printers.token_sets import NotTokens, TokenSets

__all__ = [
    "AllPrinted",
    "Constraint",
    "InvalidSchema",
    "NotContinued",
    "NotRegular",
    "NotTokens",
    "TokenSets",
    "Unenforced",
    "constraint",
    "forced_prefix",
]
