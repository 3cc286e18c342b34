"""A language that begins with a few tokens, as the sets of them: for engines that need no grammar library at all.

Whisper's output begins with its language, then what to do, then whether there are times: each one token out of a few.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from ...errors import UnbraidError
from ...schema.regular import Node, OneOf, Sequence
from ..language import OutputLanguage, TextExcept, Token


class NotTokens(UnbraidError):
    """The language is more than a few tokens and free text after them."""


@dataclass(frozen=True, slots=True)
class TokenSets:
    """Which tokens may come first, second, and so on. After the last set anything may."""

    sets: tuple[frozenset[int], ...]

    def allowed(self, before: Seq[int]) -> frozenset[int] | None:
        """The tokens that may follow those written so far; None for all."""
        return self.sets[len(before)] if len(before) < len(self.sets) else None

    def forced(self, before: Seq[int]) -> list[int]:
        """The tokens that must follow, as far as there is no choice: they need no step of the model."""
        tokens: list[int] = []
        for some in self.sets[len(before) :]:
            if len(some) > 1:
                break
            tokens += some
        return tokens

    def accepts(self, tokens: Seq[int]) -> bool:
        return len(tokens) >= len(self.sets) and all(t in some for t, some in zip(tokens, self.sets, strict=False))


def to_token_sets(language: OutputLanguage) -> TokenSets:
    root = language.root
    items = list(root.items) if isinstance(root, Sequence) else [root]
    if items[-1:] == [TextExcept(())]:
        items.pop()
    return TokenSets(tuple(map(_set, items)))


def _set(node: Node) -> frozenset[int]:
    match node:
        case Token():
            return frozenset(node.ids)
        case OneOf(items):
            return frozenset[int]().union(*map(_set, items))
    raise NotTokens(
        "only a language of single tokens, with free text after them, is a list of token sets; use a grammar"
    )
