"""Retokenizing: bytes spelled in ordinary tokens of a model, if the tokens that they came in are unknown.

Engines cut tokens at stop texts, or omit the ids of some. A parser that reads ids needs ids all the same. Any spelling
with the same bytes will do; it need not be the tokenizer's.
"""

from __future__ import annotations

from ..caching import WeakCache
from ..core.vocabulary import WholeVocabulary


def spell(vocabulary: WholeVocabulary, data: bytes, count: int | None = None) -> tuple[int, ...] | None:
    """Ordinary tokens whose bytes are `data`, long ones first; exactly `count` of them, unless it is None. None if
    there is no such spelling."""
    ids, longest = _ordinary(vocabulary), _longest(vocabulary)
    # For each place in `data`, how many tokens can lead from there to its end, and where the first of them ends.
    spellings: list[dict[int, int]] = [*({} for _ in data), {0: 0}]
    for at in reversed(range(len(data))):
        for end in range(min(len(data), at + longest), at, -1):
            if data[at:end] in ids:
                for rest in spellings[end]:
                    spellings[at].setdefault(rest + 1, end)
                if spellings[at] and count is None:
                    break  # any number will do
    left = next(iter(spellings[0]), -1) if count is None else count
    if left not in spellings[0]:
        return None
    tokens = []
    at = 0
    while left:
        end = spellings[at][left]
        tokens.append(ids[data[at:end]])
        at, left = end, left - 1
    return tuple(tokens)


def spell_most(vocabulary: WholeVocabulary, data: bytes) -> tuple[int, ...]:
    """Tokens for the longest beginning of `data` that can be spelled. Mostly this is all of it."""
    tries = (spell(vocabulary, data[:size]) for size in range(len(data), 0, -1))
    return next((tokens for tokens in tries if tokens is not None), ())


def missing_tokens(vocabulary: WholeVocabulary, text: str, last: bytes, count: int) -> tuple[int, ...]:
    """The ids of `count` tokens that llama.cpp did not stream.

    llama.cpp streams no id for a token that ends inside a character: its bytes come in the `text` of the token that
    completes the character, whose bytes are `last`. Mostly they can be spelled in `count` tokens in only one way.
    If not, the ids may differ, but spell the same text.
    """
    before = text.encode().removesuffix(last)
    exact = None if "\ufffd" in text else spell(vocabulary, before, count)  # bytes that are no text are lost
    return exact or spell(vocabulary, before) or ()


@WeakCache
def _ordinary(vocabulary: WholeVocabulary) -> dict[bytes, int]:
    """The tokens that are ordinary text, by their bytes."""
    of, special = vocabulary.token_bytes, vocabulary.special
    tokens: dict[bytes, int] = {}
    for token in range(vocabulary.size):
        if token not in special and (data := of(token)):
            tokens.setdefault(data, token)
    for byte in range(0x80):  # SentencePiece has tokens for bytes besides those for characters, which go before them
        named = vocabulary.token_id(chr(byte))
        if named is not None and named not in special:
            tokens[bytes([byte])] = named
    return tokens


@WeakCache
def _longest(vocabulary: WholeVocabulary) -> int:
    return max(map(len, _ordinary(vocabulary)), default=0)
