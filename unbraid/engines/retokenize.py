"""Retokenizing: bytes spelled in ordinary tokens of a model, where the tokens that they came in are not known.

Engines cut tokens at stop texts, or do not tell the ids of some. A parser that reads ids needs ids all the same. Any
spelling will do, as long as its bytes are the same; it need not be the one that the tokenizer would choose.
"""

from __future__ import annotations

from typing import TypeGuard

from ..core.vocabulary import Vocabulary, WholeVocabulary
from ..tokens.weak_cache import WeakCache


def is_whole(vocabulary: Vocabulary | None) -> TypeGuard[WholeVocabulary]:
    """Whether `vocabulary` can list its tokens, which spelling takes."""
    return vocabulary is not None and hasattr(vocabulary, "size") and hasattr(vocabulary, "special")


def spell(vocabulary: WholeVocabulary, data: bytes, count: int | None = None) -> tuple[int, ...] | None:
    """Ordinary tokens whose bytes are `data`, long ones first; exactly `count`, if it is given. None if it cannot be
    spelled."""
    ids, longest = _ordinary(vocabulary), _longest(vocabulary)
    # For each place in `data`, how many tokens can lead from there to its end, and where the first of them ends.
    ways: list[dict[int, int]] = [*({} for _ in data), {0: 0}]
    for at in reversed(range(len(data))):
        for end in range(min(len(data), at + longest), at, -1):
            if data[at:end] in ids:
                for rest in ways[end]:
                    ways[at].setdefault(rest + 1, end)
                if ways[at] and count is None:
                    break  # any number will do
    left = next(iter(ways[0]), -1) if count is None else count
    if left not in ways[0]:
        return None
    found = []
    at = 0
    while left:
        end = ways[at][left]
        found.append(ids[data[at:end]])
        at, left = end, left - 1
    return tuple(found)


def spell_most(vocabulary: WholeVocabulary, data: bytes) -> tuple[int, ...]:
    """Tokens for the longest beginning of `data` that can be spelled; mostly that is all of it."""
    tries = (spell(vocabulary, data[:size]) for size in range(len(data), 0, -1))
    return next((found for found in tries if found is not None), ())


@WeakCache
def _ordinary(vocabulary: WholeVocabulary) -> dict[bytes, int]:
    """The tokens that are ordinary text, by their bytes."""
    of, special = vocabulary.token_bytes, vocabulary.special
    found: dict[bytes, int] = {}
    for token in range(vocabulary.size):
        if token not in special and (data := of(token)):
            found.setdefault(data, token)
    for byte in range(0x80):  # SentencePiece has tokens for bytes besides those for characters, which go before them
        named = vocabulary.token_id(chr(byte))
        if named is not None and named not in special:
            found[bytes([byte])] = named
    return found


@WeakCache
def _longest(vocabulary: WholeVocabulary) -> int:
    return max(map(len, _ordinary(vocabulary)), default=0)
