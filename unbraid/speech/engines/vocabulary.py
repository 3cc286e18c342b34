"""The tokens of a model that listens, for its output and for the prompts of users."""

from __future__ import annotations

from ...core.vocabulary import Vocabulary
from ...templates import encoder


class ListeningVocabulary:
    """The tokens of a tokenizer, and those of a text."""

    def __init__(self, tokenizer: object) -> None:
        self._encoder = encoder(tokenizer)
        known: Vocabulary = self._encoder.vocabulary
        self.version = known.version
        self.dummy_prefix = known.dummy_prefix
        self.token_id = known.token_id
        self.token_bytes = known.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)
