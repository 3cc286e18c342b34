"""mistral-common's text tokenizers, `Tekkenizer` and `SentencePieceTokenizer`, as a Vocabulary.

Only their public methods are used. Both are immutable, so the whole vocabulary is copied into plain tables, once for
each tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol, cast

from ..caching import WeakCache
from ..core.vocabulary import Vocabulary

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece spells a space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # how it spells a byte of a character it has no piece for


class _Tokenizer(Protocol):
    @property
    def version(self) -> object: ...
    @property
    def n_words(self) -> int: ...
    def id_to_piece(self, token_id: int) -> str: ...
    def encode(self, s: str, bos: bool, eos: bool) -> list[int]: ...


class _Tekken(_Tokenizer, Protocol):
    @property
    def num_special_tokens(self) -> int: ...
    def id_to_byte_piece(self, token_id: int) -> bytes: ...


class _SentencePiece(_Tokenizer, Protocol):
    @property
    def special_ids(self) -> set[int]: ...


class MistralVocabulary:
    """A Mistral vocabulary, as tables from id to bytes and back."""

    def __init__(
        self,
        version: int | None,
        dummy_prefix: bool,
        tokens: list[bytes],
        special: Collection[int],
        last: Collection[int] = (),
    ) -> None:
        """tokens: by id. last: ids that answer to their bytes only if no other token does."""
        self.version = version
        self.dummy_prefix = dummy_prefix
        self.size = len(tokens)
        self.special = frozenset(special)
        self._bytes = tokens
        self._ids: dict[bytes, int] = {}
        for token in sorted(range(len(tokens)), key=lambda token: token in last):  # stable: by id within each half
            self._ids.setdefault(tokens[token], token)

    def token_id(self, text: str) -> int | None:
        return self._ids.get(text.encode("utf-8", "surrogatepass"))

    def token_bytes(self, token: int) -> bytes | None:
        return self._bytes[token] if 0 <= token < len(self._bytes) else None


def _version(tokenizer: _Tokenizer) -> int | None:
    """The number in a `TokenizerVersion` such as v11."""
    number = re.search(r"\d+", str(getattr(tokenizer.version, "value", tokenizer.version)))
    return int(number.group()) if number else None


def _from_tekken(tokenizer: _Tekken) -> MistralVocabulary:
    # Special tokens come first and shift the ranks of the ordinary ones; these two methods account for it.
    specials = tokenizer.num_special_tokens
    tokens = [tokenizer.id_to_piece(token).encode() for token in range(specials)]
    tokens += [tokenizer.id_to_byte_piece(token) for token in range(specials, tokenizer.n_words)]
    return MistralVocabulary(_version(tokenizer), False, tokens, range(specials))


def _from_sentencepiece(tokenizer: _SentencePiece) -> MistralVocabulary:
    special, spelt_bytes, tokens = tokenizer.special_ids, set(), []
    for token in range(tokenizer.n_words):
        piece = tokenizer.id_to_piece(token)
        if token in special:
            tokens.append(piece.encode())
        elif byte := _BYTE.fullmatch(piece):
            tokens.append(bytes.fromhex(byte[1]))
            spelt_bytes.add(token)  # the encoder takes the piece "A" for an A, never the byte 0x41
        else:
            tokens.append(piece.replace(_SPACE, " ").encode())
    first = tokenizer.encode("a", bos=False, eos=False)[0]  # the setting is not exposed, but its effect is
    dummy_prefix = tokenizer.id_to_piece(first).startswith(_SPACE)
    return MistralVocabulary(_version(tokenizer), dummy_prefix, tokens, special, last=spelt_bytes)


_tekken = WeakCache(_from_tekken)
_sentencepiece = WeakCache(_from_sentencepiece)


def adapt(tokenizer: object) -> Vocabulary | None:
    """A Vocabulary over `tokenizer` if it is one of mistral-common's text tokenizers, else None."""
    if not all(hasattr(tokenizer, name) for name in ("n_words", "id_to_piece", "special_ids", "version", "encode")):
        return None
    if hasattr(tokenizer, "id_to_byte_piece"):
        return _tekken(cast(_Tekken, tokenizer))
    return _sentencepiece(cast(_SentencePiece, tokenizer))
