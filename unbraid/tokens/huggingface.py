"""`tokenizers.Tokenizer`, Hugging Face's fast tokenizer, as a Vocabulary.

An ordinary piece is decoded as the tokenizer's own decoder does it (`piece_decoding`). An added token is its own text.
What was decoded is kept for each tokenizer object (`weak_cache`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from ..core.vocabulary import Vocabulary
from .piece_decoding import PieceDecoder, piece_decoder
from .weak_cache import TokenizerView, WeakCache


class _AddedToken(Protocol):
    @property
    def special(self) -> bool: ...


class _Pieces(Protocol):
    def token_to_id(self, token: str) -> int | None: ...
    def id_to_token(self, id: int) -> str | None: ...


class _Tokenizer(_Pieces, Protocol):
    @property
    def model(self) -> _Pieces: ...
    @property
    def decoder(self) -> object: ...
    @property
    def pre_tokenizer(self) -> object: ...
    def get_added_tokens_decoder(self) -> Mapping[int, _AddedToken]: ...
    def get_vocab(self, with_added_tokens: bool = True) -> Mapping[str, int]: ...
    def to_str(self) -> str: ...


@dataclass(frozen=True)
class _Decoding:
    pieces: PieceDecoder
    special: frozenset[int]
    bytes_of: dict[int, bytes] = field(default_factory=dict)  # filled as tokens are met


def _configuration(tokenizer: _Tokenizer, part: str) -> dict[str, Any] | None:
    """The JSON of the tokenizer's decoder or pre-tokenizer, None where it has none."""
    component = getattr(tokenizer, part)
    if component is None:
        return None
    try:
        found = json.loads(component.__getstate__())
    except Exception:  # some versions of the library cannot do this; the whole tokenizer's JSON holds it too
        found = json.loads(tokenizer.to_str())[part]
    return cast(dict[str, Any], found)


def _decoding(tokenizer: _Tokenizer) -> _Decoding:
    decoder = _configuration(tokenizer, "decoder")
    # Only if it is needed: a pre-tokenizer written in Python has no configuration.
    pre_tokenizer = _configuration(tokenizer, "pre_tokenizer") if decoder is None else None
    added = tokenizer.get_added_tokens_decoder()
    return _Decoding(piece_decoder(decoder, pre_tokenizer), frozenset(token for token in added if added[token].special))


_cached_decoding = WeakCache(_decoding)


class HuggingFaceVocabulary(TokenizerView):
    """A fast tokenizer's vocabulary. Parsers look up their markers once: add tokens before you make the first
    parser."""

    version: int | None = None

    def __init__(self, tokenizer: _Tokenizer, decoding: _Decoding) -> None:
        super().__init__(tokenizer)
        self._tokenizer = tokenizer
        self._model = tokenizer.model
        self._decoding = decoding
        self._bytes_of = decoding.bytes_of

    def __reduce__(self) -> tuple[Callable[[_Tokenizer], HuggingFaceVocabulary], tuple[_Tokenizer]]:
        return _of, (self._tokenizer,)

    @property
    def dummy_prefix(self) -> bool:
        return self._decoding.pieces.dummy_prefix

    @property
    def size(self) -> int:
        # Ids may have gaps, so the number of tokens is not what is asked for.
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    @property
    def special(self) -> frozenset[int]:
        return frozenset(self._tokenizer.get_added_tokens_decoder())

    def token_id(self, text: str) -> int | None:
        try:
            wanted = text.encode()
        except UnicodeEncodeError:  # half a surrogate pair: no token is that
            return None
        token = self._tokenizer.token_to_id(text)
        if token is not None and token != self._model.token_to_id(text):
            return token  # an added token, even if its id has another name too
        # The tokenizer knows ordinary pieces by their spelling, and "Ġa" is not the text "Ġa": decode to be sure.
        for piece in (text, *self._decoding.pieces.encode(text)):
            token = self._tokenizer.token_to_id(piece)
            if token is not None and self.token_bytes(token) == wanted:
                return token
        return None

    def token_bytes(self, token: int) -> bytes | None:
        found = self._bytes_of.get(token)
        return self._look_up(token) if found is None else found

    def _look_up(self, token: int) -> bytes | None:
        try:
            piece = self._tokenizer.id_to_token(token)
        except OverflowError:  # negative, or too large for the library's integers
            return None
        if piece is None:
            return None
        # Some tokenizers (Gemma's) list ordinary pieces as added ones, so that they are never split. Such a piece is
        # spelt like any other. A special token, and one the model does not have, is its own text.
        ordinary = token not in self._decoding.special and piece == self._model.id_to_token(token)
        found = self._bytes_of[token] = self._decoding.pieces.decode(piece) if ordinary else piece.encode()
        return found


def adapt(tokenizer: object) -> Vocabulary | None:
    """A Vocabulary over `tokenizer` if it is a `tokenizers.Tokenizer`, else None."""
    names = ("token_to_id", "id_to_token", "model", "decoder", "pre_tokenizer", "get_added_tokens_decoder", "to_str")
    if not all(hasattr(tokenizer, name) for name in names):
        return None
    return _of(cast(_Tokenizer, tokenizer))


def _of(tokenizer: _Tokenizer) -> HuggingFaceVocabulary:
    return HuggingFaceVocabulary(tokenizer, _cached_decoding(tokenizer))
