"""The vocabulary of a Whisper: its tokens for reading outputs, and its encoder for the prompts of users."""

from __future__ import annotations

from ...core.vocabulary import Vocabulary
from ...templates import encoder


class WhisperVocabulary:
    """A `TextVocabulary` over a tokenizer of any supported library."""

    def __init__(self, tokenizer: object) -> None:
        self._encoder = encoder(tokenizer)
        tokens: Vocabulary = self._encoder.vocabulary
        self.version = tokens.version
        self.dummy_prefix = tokens.dummy_prefix
        self.token_id = tokens.token_id
        self.token_bytes = tokens.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)
