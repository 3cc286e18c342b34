"""Derives random texts from a constraint's language, node by node.

Every syntax must accept each of them, and the parser must read it without a diagnostic. Walks through token masks show
that nothing is accepted that should not be; these texts show that nothing is refused. Free text is made of what is
nearly one of its forbidden words.
"""

from __future__ import annotations

import random
from functools import lru_cache

from ..schema.regular import Chars, Node, OneOf, Repeat, Sequence, Verbatim
from .language import Json, Lexeme, OutputLanguage, Rule, TextExcept, TextOf, Token, restricted
from .schema_grammar import SchemaGrammar

_LETTERS = " \n\t\"\\'<>[]{}()=,:|_-.aé中😀A1"
_DEEP, _DEEPEST = 60, 150


@lru_cache(maxsize=1024)
def _letters(node: Chars) -> list[str]:
    """The usual characters of a class."""
    return [char for char in _LETTERS if node.holds(char)]


class Derivation:
    """Derives texts from a language. `avoid` are nodes that are never chosen."""

    def __init__(self, language: OutputLanguage, random: random.Random, avoid: tuple[Node, ...] = ()) -> None:
        language = restricted(language, left_recursion=True)
        self._root, self._random, self._avoid = language.root, random, avoid
        self._schemas = SchemaGrammar()
        for node in language.nodes():
            if isinstance(node, Json):
                self._schemas.node(node)
        self._rules = {**language.rules, **self._schemas.rules}
        self._depth = 0

    def text(self) -> str | None:
        """A text; None where the chosen way does not come to an end."""
        self._depth = 0
        try:
            return self._text(self._root)
        except RecursionError:
            return None

    def _text(self, node: Node) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        text = self._derived(node)
        self._depth -= 1
        return text

    def _derived(self, node: Node) -> str:
        chance = self._random
        match node:
            case Verbatim(text):
                return text
            case Chars():
                return self._char(node)
            case Token(_, text):
                return self._text(text)
            case TextExcept():
                return self._free(node)
            case TextOf():
                return self._text_of(node)
            case Json():
                return self._text(self._schemas.node(node))
            case Sequence(items):
                return "".join(map(self._text, items))
            case OneOf(items):
                return self._text(chance.choice([item for item in items if item not in self._avoid]))
            case Repeat(item, least, most):
                more = 0 if self._depth > _DEEP or node in self._avoid else chance.choice([0, 1, 1, 2, 4])
                times = chance.randint(least, least + more if most is None else min(most, least + more))
                return "".join(self._text(item) for _ in range(times))
            case Lexeme(item):
                return self._text(item)
            case Rule(name):
                return self._text(self._rules[name])
        raise AssertionError(node)

    def _text_of(self, node: TextOf) -> str:
        for _ in range(50):
            text = self._text(node.item)
            if not any(word in text for word in node.without):
                return text
        raise RecursionError

    def _char(self, node: Chars) -> str:
        letters = _letters(node)
        if letters and self._random.random() < 0.8:
            return self._random.choice(letters)
        low, high = self._random.choice(node.members[:3])
        char = chr(self._random.randint(low, min(high, low + 60)))
        # Nor does it know these as they are.
        return "n" if char in "/\x7f" and node.holds("n") else char

    def _free(self, node: TextExcept) -> str:
        """Free text, full of what is nearly one of its words."""
        chance = self._random
        for _ in range(50):
            pieces = []
            for _ in range(chance.choice([0, 0, 1, 2, 4])):
                word = chance.choice(node.without or ("a",))
                at = chance.randrange(len(word))
                few = ["hello", " ", "\n", "{", '"', "}", ": ", "[", chance.choice(_LETTERS)]
                pieces.append(chance.choice([word[:at], word[at:], word[:-1], chance.choice(few), chance.choice(few)]))
            text = "".join(pieces)
            if len(text) < node.least or (node.most is not None and len(text) > node.most):
                text = "x" * node.least
            begins = (word[:size] for word in node.without for size in range(1, len(word)))
            if not any(word in text for word in node.without) and not (node.clean_end and text.endswith(tuple(begins))):
                return text
        return "x" * node.least
