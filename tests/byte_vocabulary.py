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
