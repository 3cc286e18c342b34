"""Printers: each writes an `OutputLanguage` as a grammar that engines read, in one `GrammarSyntax`.

For "the text `yes`, then one digit" they print, for instance:

    lark.py             Lark for llguidance         T_0: "yes"  T_1: /[0-9]/  start: T_0 T_1
    gbnf.py             GBNF for llama.cpp          root ::= "yes" [0-9]
    ebnf.py             EBNF for xgrammar           root ::= "yes" [0-9]
    structural_tag.py   JSON for xgrammar           {"type": "regex", "pattern": "yes[0-9]"}
    regex.py            a regular expression        yes[0-9]
    token_sets.py       the first few tokens, as sets of ids, for engines without a grammar library
    rules.py            what GBNF and EBNF share: rules with names
    walk.py             no grammar: which characters may come next, for the playground

Each returns a `Printed`: the grammar, and the parts of the language that the syntax cannot express.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ...schema.regular import Chars, Verbatim
from ..language import OutputLanguage, Token, Unenforced, variants

SGLangSyntax = Literal["structural_tag", "ebnf", "regex"]
"""What SGLang takes."""
VLLMSyntax = Literal[SGLangSyntax, "lark"]
"""What vLLM takes."""
GrammarSyntax = Literal[VLLMSyntax, "gbnf"]
"""All syntaxes; GBNF is llama.cpp's."""

T_co = TypeVar("T_co", bound="str | dict[str, Any]", covariant=True)


@dataclass(frozen=True, slots=True)
class Point:
    """A point in a deterministic grammar."""

    next: tuple[Verbatim | Chars | Token, ...]
    """What may come there,"""
    only: bool
    """and whether nothing else may: no rule, no free text, and no end."""


@dataclass(frozen=True, slots=True)
class Printed(Generic[T_co]):
    """A language in one syntax."""

    grammar: T_co
    unenforced: tuple[Unenforced, ...] = ()
    """What the syntax cannot express."""
    too_ambiguous: str | None = None
    """The place in the request that leaves too many alternatives open for llama.cpp. The grammar is right, but must not
    be given to llama.cpp. Only GBNF says it."""
    points: tuple[Point, ...] = ()
    """The different points of the grammar. Only GBNF says them, where it is deterministic."""


def first_that_fits(
    language: OutputLanguage, print_one: Callable[[OutputLanguage], Printed[T_co]], too_large: type[Exception]
) -> Printed[T_co]:
    """The language with the grammars of clients or, if that is `too_large`, without them."""
    first, *others = variants(language)
    try:
        return print_one(first)
    except too_large:
        if not others:
            raise
        return print_one(others[0])
