"""The language of a string value, written the way a notation writes strings.

A language is a regular node (of a schema's `pattern`, or of a client's grammar) or `Nested` (of a grammar). Between
quotes it is spelled in escapes. Between tags it is written as it is, and must not contain what ends it.

What nests is written character by character: a syntax with a lexer then has one lexeme for each character, none of
which is the beginning of another, and no greedy lexeme can take what belongs to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...schema.forms import Strings
from ...schema.regular import Chars, Node, Verbatim, chars, may_hold, sequence
from ..language import Lexeme, Nested, OutputLanguage, Restricted, TextOf, Unenforced, rewritten
from ..schema_grammar import json_text


def in_quotes(node: Node) -> Node:
    """The strings as JSON writes them, in double quotes. Python reads these alike."""
    quote = Verbatim('"')
    if isinstance(node, Nested):
        return sequence(quote, _by_characters(node, json_text), quote)
    return Lexeme(sequence(quote, json_text(node), quote))


def between(node: Node, ends: Collection[str], following: str) -> Node | None:
    """The strings as they are, without what would end them; `following` stands after them. None where that cannot be
    said."""
    if isinstance(node, Nested):
        holds_end = _nested_holds(node, {end[0] for end in ends})
        return None if holds_end else _by_characters(node, lambda leaf: leaf)
    # What may go on with what follows is read together with that.
    if may_hold(node, following[:1]) or any(all(may_hold(node, char) for char in end) for end in ends):
        return TextOf(node, tuple(ends))
    return Lexeme(node)


def restricted_pattern(form: Strings, node: Node, free: Node | None) -> Node:
    """Strings with a pattern: where an automaton is needed for them, it may be too large for a syntax."""
    if free is None or not any(isinstance(one, TextOf) for one in OutputLanguage(node, {}).nodes()):
        return node
    return Restricted(node, free, Unenforced(form.where, "`pattern` is not enforced: it is too large"))


def _nested_holds(node: Nested, some: Collection[str]) -> bool:
    leaves = (one for one in OutputLanguage(node, {}).nodes() if isinstance(one, Verbatim | Chars))
    return any(any(map((chars(*one.text) if isinstance(one, Verbatim) else one).holds, some)) for one in leaves)


def _by_characters(node: Nested, spelled: Callable[[Node], Node]) -> Nested:
    def one(leaf: Node) -> Node | None:
        if isinstance(leaf, Verbatim):
            return sequence(*(spelled(Verbatim(char)) for char in leaf.text))
        return Lexeme(spelled(leaf)) if isinstance(leaf, Chars) else None

    rules = {name: rewritten(rule, one) for name, rule in node.rules.items()}
    return Nested(rewritten(node.root, one), rules, node.left_recursive)
