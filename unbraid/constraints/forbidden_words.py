"""Text without forbidden words, as an Aho–Corasick automaton.

Grammar syntaxes that cannot say "any text without these words" get this automaton. A state stands for the
longest beginning of a word that the text read so far ends with; the start is the empty one. A character that would
complete a word has no transition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..metering import spend


@dataclass(frozen=True, slots=True)
class PrefixState:
    """What may come after a text that ends with the beginning of a word."""

    moves: dict[str, int]
    """The state after a character; all others lead back to the start."""
    forbidden: frozenset[str]
    """Characters that would complete a word."""
    pending: bool
    """Whether the text ends with the beginning of a word."""


def automaton(words: Sequence[str]) -> list[PrefixState]:
    """The states; the first is the start. The text may end in any of them."""
    begins = sorted({word[:size] for word in words for size in range(len(word))}, key=len)
    begins = [begin for begin in begins if not any(word in begin for word in words)]
    number = {begin: at for at, begin in enumerate(begins)}
    letters = sorted({char for word in words for char in word})
    states = []
    for begin in begins:
        spend(len(letters))
        moves, forbidden = {}, set()
        for char in letters:
            text = begin + char
            if any(text.endswith(word) for word in words):
                forbidden.add(char)
            elif target := next((number[text[at:]] for at in range(len(text)) if text[at:] in number), 0):
                moves[char] = target
        states.append(PrefixState(moves, frozenset(forbidden), bool(begin)))
    return states or [PrefixState({}, frozenset(), False)]
