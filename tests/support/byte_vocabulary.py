"""The smallest tokenizer there is."""

from __future__ import annotations

END = 256
MARKER = 257


class ByteVocabulary:
    """Every byte is a token, and so are `<end>` and `<marker>`."""

    version = None
    dummy_prefix = False
    size = 258
    special = frozenset({END, MARKER})

    def token_id(self, text: str) -> int | None:
        data = text.encode()
        return {b"<end>": END, b"<marker>": MARKER}.get(data, data[0] if len(data) == 1 else None)

    def token_bytes(self, token: int) -> bytes | None:
        if 0 <= token < 256:
            return bytes([token])
        return {END: b"<end>", MARKER: b"<marker>"}.get(token)


VOCABULARY = ByteVocabulary()


class WordVocabulary:
    """Tokens that are given: all are ordinary text but the last `special`."""

    version = None
    dummy_prefix = False

    def __init__(self, *words: bytes, special: int = 0) -> None:
        self._words = words
        self._ids = {word: id for id, word in reversed(list(enumerate(words)))}
        self.size = len(words)
        self.special = frozenset(range(self.size - special, self.size))

    def token_id(self, text: str) -> int | None:
        return self._ids.get(text.encode())

    def token_bytes(self, token: int) -> bytes | None:
        return self._words[token] if 0 <= token < self.size else None


class Opaque:
    """A vocabulary whose tokens cannot be gone through."""

    version = None
    dummy_prefix = False
    token_id = VOCABULARY.token_id
    token_bytes = VOCABULARY.token_bytes
