"""A GGUF file's tokens as a `Vocabulary`.

GGUF stores the pieces of byte-level BPE (`gpt2`) or SentencePiece (`llama`), so they are decoded like those of a
Hugging Face tokenizer (`tokens.huggingface`). Special, added and control tokens are their own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import cast

from ..tokens.huggingface import ByteFallback, ByteLevel, PieceDecoder, Replace
from .errors import ModelError
from .gguf import Gguf

_NORMAL, _BYTE = 1, 6
_DECODERS = {
    "gpt2": PieceDecoder((ByteLevel(),), dummy_prefix=False),
    "llama": PieceDecoder((Replace("\u2581", " "),), dummy_prefix=True),
}
_LONE = re.compile("[\ud800-\udfff]")

Tokenize = Callable[[str, bool], list[int]]


class GgufVocabulary:
    """All tokens of a model."""

    version: int | None = None

    def __init__(self, gguf: Gguf, tokenize: Tokenize | None = None) -> None:
        """tokenize: encodes a text, with or without recognising special tokens. Only llama.cpp can do it: the file does
        not say how."""
        kind = gguf.get("tokenizer.ggml.model")
        if kind not in _DECODERS or "tokenizer.ggml.tokens" not in gguf:
            raise ModelError(
                f"{gguf.path} has a tokenizer of the kind {kind!r}, and only {' and '.join(map(repr, _DECODERS))} are "
                "known: byte-level BPE and SentencePiece"
            )
        self._decoder = _DECODERS[kind]
        self._pieces = cast("list[str]", gguf["tokenizer.ggml.tokens"])
        self._types = cast("list[int]", gguf.get("tokenizer.ggml.token_type") or [_NORMAL] * len(self._pieces))
        self._tokenize = tokenize
        self._bytes: dict[int, bytes] = {}
        self.dummy_prefix = self._decoder.dummy_prefix and bool(gguf.get("tokenizer.ggml.add_space_prefix", True))
        self.bos = gguf.bos
        self.ends = gguf.ends

    @property
    def size(self) -> int:
        """One more than the highest token id."""
        return len(self._pieces)

    @cached_property
    def special(self) -> frozenset[int]:
        """The tokens that are not ordinary text."""
        return frozenset(token for token, kind in enumerate(self._types) if kind not in (_NORMAL, _BYTE))

    def token_id(self, text: str) -> int | None:
        """The id of the single token whose text is exactly `text`."""
        return self._ids.get(text.encode("utf-8", "surrogatepass"))

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes that the token stands for."""
        found = self._bytes.get(token)
        return self._look_up(token) if found is None else found

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of `text`, as llama.cpp makes them. Only with `special` are special tokens recognised in it."""
        if self._tokenize is None:
            raise ModelError("a GGUF file alone does not say how to tokenize text: use an engine's vocabulary")
        return self._tokenize(_LONE.sub("\ufffd", text), special)

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        """The text of tokens."""
        return b"".join(self.token_bytes(token) or b"" for token in ids).decode("utf-8", "replace")

    def _look_up(self, token: int) -> bytes | None:
        if not 0 <= token < len(self._pieces):
            return None
        piece, kind = self._pieces[token], self._types[token]
        if kind == _BYTE:
            spelt = ByteFallback().decode(piece)
            found = spelt if isinstance(spelt, bytes) else spelt.encode()
        elif kind == _NORMAL:
            found = self._decoder.decode(piece)
        else:
            found = piece.encode()
        self._bytes[token] = found
        return found

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Tokens by their bytes. Special tokens win over others, a piece wins over a byte token of the same bytes, and
        then the lowest id wins."""
        ordinary = [token for wanted in (_NORMAL, _BYTE) for token, kind in enumerate(self._types) if kind == wanted]
        found: dict[bytes, int] = {}
        for token in (*sorted(self.special), *ordinary):
            if data := self.token_bytes(token):
                found.setdefault(data, token)
        return found
