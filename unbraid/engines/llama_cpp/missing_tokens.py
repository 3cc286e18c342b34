"""The ids of tokens that llama.cpp does not stream.

A token that ends inside a character is not told when it comes. Its bytes come with the token that completes the
character, without its id. The ids are found again by spelling those bytes in so many tokens of the vocabulary.
"""

from __future__ import annotations

from ...core.vocabulary import WholeVocabulary
from ..retokenize import spell


def missing_tokens(vocabulary: WholeVocabulary, text: str, told: bytes, count: int) -> tuple[int, ...]:
    """The `count` tokens before those whose bytes are `told`, where `text` is that of them all.

    Mostly the bytes can be spelled in so many tokens in one way alone. If not, the ids may be others, of the same text.
    """
    before = text.encode().removesuffix(told)
    exact = None if "\ufffd" in text else spell(vocabulary, before, count)  # bytes that are no text are lost
    return exact or spell(vocabulary, before) or ()
