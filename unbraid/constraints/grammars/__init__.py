"""The grammars that clients give: what the input of a custom tool must follow, in Lark or as a regular expression.

    lark.py     reads Lark's notation into rules
    reader.py   brings the rules to one language, by `read_grammar`

A grammar is read as a language of texts: a text follows it if the rules can produce it, whatever a lexer would make of
it. Where nothing nests, the language is a regular node; otherwise it is `Nested`.
"""

from __future__ import annotations


class BadGrammar(ValueError):
    """A grammar that cannot be read; the message says where and why."""


class UnsupportedGrammar(BadGrammar):
    """A grammar that others may read, with something in it that is not supported here. It is not enforced."""
