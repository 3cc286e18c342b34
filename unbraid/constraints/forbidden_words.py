"""Text that spells none of some words, as a machine that reads it character by character.

Dialects without a complement print this machine. Its states are the beginnings of the words: the longest one that the
text read so far ends with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    moves: dict[str, int]
    """Where a character leads, if not back to the start."""
    barred: frozenset[str]
    """Characters that would complete a word."""
    pending: bool
    """Whether the text ends with the beginning of a word."""


def machine(words: Sequence[str]) -> list[State]:
    """The states; the first is the start. The text may end in any of them."""
    begins = sorted({word[:size] for word in words for size in range(len(word))}, key=len)
    begins = [begin for begin in begins if not any(word in begin for word in words)]
    number = {begin: at for at, begin in enumerate(begins)}
    letters = sorted({char for word in words for char in word})
    states = []
    for begin in begins:
        moves, barred = {}, set()
        for char in letters:
            text = begin + char
            if any(text.endswith(word) for word in words):
                barred.add(char)
            elif target := next((number[text[at:]] for at in range(len(text)) if text[at:] in number), 0):
                moves[char] = target
        states.append(State(moves, frozenset(barred), bool(begin)))
    return states or [State({}, frozenset(), False)]
