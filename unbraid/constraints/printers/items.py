"""Printers that work on the items of a language (`determinize.items`) instead of its nodes.

Both have to follow what was written of an output already: GBNF prints the states that come after it, EBNF the items.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ...metering import working_on
from ...schema.regular import Node, sequence
from ..determinize.items import Items
from ..determinize.states import MOST_WORK, States
from ..language import Json, Language, Token
from ..schema_grammar import SPACE as JSON_SPACE
from .rules import RulePrinter


class ItemPrinter(RulePrinter):
    """Has the items and states of a language. JSON values are rules among them."""

    most_tokens: ClassVar[int | None] = None
    """Larger sets of tokens are printed as text."""

    def __init__(self, language: Language, most_work: int = MOST_WORK) -> None:
        super().__init__()
        self.language = language
        self.items = Items(self._rule, self._replacement)
        self.states_of = States(self.items, most_work)

    def read(self, rules: Iterable[str]) -> None:
        """These rules, one after the other: each needs few but those before it, so that the stack stays low."""
        for name in list(rules):
            working_on(self.place(name))
            self.items.body(name)

    def place(self, rule: str) -> str:
        """The part of a schema that a rule says."""
        return self.schemas.places.get(rule, "")

    def _rule(self, name: str) -> Node:
        rules = self.language.rules
        return rules[name] if name in rules else self.schemas.rules[name]

    def _replacement(self, node: Json | Token, spaced: bool) -> Node | None:
        """The rules of a JSON value, with whitespace before it unless it is `spaced`; the text of a large set of
        tokens."""
        if isinstance(node, Json):
            value = self.schemas.node(node)
            self.read(self.schemas.rules)
            return value if spaced else sequence(JSON_SPACE, value)
        return node.text if self.most_tokens is not None and len(node.ids) > self.most_tokens else None
