"""The little that a parser asks of a tokenizer."""

from __future__ import annotations

from typing import Protocol


class Vocabulary(Protocol):
    """What a parser needs to know of a tokenizer."""

    @property
    def version(self) -> int | None:
        """Mistral's tokenizer version (e.g. 3, 7, 11, 13), where the tokenizer has one."""
        ...

    @property
    def dummy_prefix(self) -> bool:
        """SentencePiece-style: the text's first token carries a space that isn't in the text."""
        ...

    def token_id(self, text: str) -> int | None:
        """The id of the single token whose text is exactly `text`, None when there is none."""
        ...

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes the token stands for (special/added/control tokens: their own text in UTF-8).

        None for an id outside the vocabulary.
        """
        ...


class WholeVocabulary(Vocabulary, Protocol):
    """What it takes to say of every token whether it may come next."""

    @property
    def size(self) -> int:
        """One more than the highest token id."""
        ...

    @property
    def special(self) -> frozenset[int]:
        """The tokens that are no ordinary text: special, added and control tokens."""
        ...
