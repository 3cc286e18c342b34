"""`tiktoken.Encoding` as a Vocabulary. Ordinary and special tokens are looked up alike, and kept once they are
found."""

from __future__ import annotations

from typing import Protocol, cast

from ..caching import WeakCache
from ..core.vocabulary import TokenizerView, Vocabulary


class _Encoding(Protocol):
    def encode_single_token(self, text_or_bytes: str | bytes) -> int: ...
    def decode_single_token_bytes(self, token: int) -> bytes: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def special_tokens_set(self) -> set[str]: ...


def _no_bytes(encoding: _Encoding) -> dict[int, bytes]:
    return {}


_bytes_seen = WeakCache(_no_bytes)


class TiktokenVocabulary(TokenizerView):
    """A tiktoken vocabulary. It has no dummy prefix and no Mistral version."""

    version: int | None = None
    dummy_prefix: bool = False

    def __init__(self, encoding: _Encoding) -> None:
        super().__init__(encoding)
        self._id_of = encoding.encode_single_token
        self._bytes_of = encoding.decode_single_token_bytes
        self._seen = _bytes_seen(encoding)
        self._encoding = encoding

    def __reduce__(self) -> tuple[type[TiktokenVocabulary], tuple[_Encoding]]:
        return TiktokenVocabulary, (self._encoding,)

    @property
    def size(self) -> int:
        return self._encoding.n_vocab

    @property
    def special(self) -> frozenset[int]:
        return frozenset(self._id_of(text) for text in self._encoding.special_tokens_set)

    def token_id(self, text: str) -> int | None:
        try:
            return self._id_of(text.encode("utf-8", "surrogatepass"))
        except KeyError:
            return None

    def token_bytes(self, token: int) -> bytes | None:
        data = self._seen.get(token)
        if data is not None:
            return data
        try:
            data = self._seen[token] = self._bytes_of(token)
            return data
        except (KeyError, OverflowError):  # OverflowError: negative, or too large for tiktoken's integers
            return None


def adapt(tokenizer: object) -> Vocabulary | None:
    """A Vocabulary over `tokenizer` if it is a tiktoken encoding, else None."""
    if not (hasattr(tokenizer, "encode_single_token") and hasattr(tokenizer, "decode_single_token_bytes")):
        return None
    return TiktokenVocabulary(cast(_Encoding, tokenizer))
