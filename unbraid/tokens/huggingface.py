"""`tokenizers.Tokenizer`, Hugging Face's fast tokenizer, as a Vocabulary.

A vocabulary has pieces such as `Ġthe` (byte-level BPE), `▁the` (SentencePiece) or `##ing` (WordPiece). A decoder is a
chain of steps that turns them into text. The steps that change single pieces are here, each with its inverse. Steps
that act on the whole text (Fuse, Strip, CTC) say nothing about one token, with one exception: a Strip or Metaspace that
drops the first space shows that the encoder adds one, the dummy prefix.

An ordinary piece is decoded by these steps; an added token is its own text. Decoded tokens are kept for each tokenizer
object (`WeakCache`).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

from ..caching import WeakCache
from ..core.vocabulary import TokenizerView, Vocabulary


class DecoderStep(ABC):
    """One step of a decoder."""

    @abstractmethod
    def decode(self, piece: str) -> str | bytes:
        """The text of a piece, or its bytes if they may be part of a character."""

    @abstractmethod
    def encode(self, text: str) -> list[str]:
        """Candidate pieces for `text`, the likeliest first. The caller checks them by decoding."""


@cache
def _byte_characters() -> dict[int, str]:
    """GPT-2's table: printable Latin-1 stands for itself, every other byte for a character from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(0x100 + len(table) - len(printable))
    return table


@cache
def _character_bytes() -> dict[str, int]:
    return {character: byte for byte, character in _byte_characters().items()}


class ByteLevel(DecoderStep):
    """GPT-2's spelling: one character per byte."""

    def decode(self, piece: str) -> str | bytes:
        table = _character_bytes()
        try:
            return bytes([table[character] for character in piece])
        except KeyError:
            return piece  # as the decoder itself does: a piece that is not in this spelling stands for itself

    def encode(self, text: str) -> list[str]:
        table = _byte_characters()
        return ["".join(table[byte] for byte in text.encode())]


class ByteFallback(DecoderStep):
    """SentencePiece's spelling of a byte of a character it has no piece for: `<0x0A>`."""

    _SPELT = re.compile(r"<0x([0-9A-Fa-f]{2})>")

    def decode(self, piece: str) -> str | bytes:
        spelt = self._SPELT.fullmatch(piece)
        return bytes.fromhex(spelt[1]) if spelt else piece

    def encode(self, text: str) -> list[str]:
        data = text.encode()
        return [text, f"<0x{data[0]:02X}>"] if len(data) == 1 else [text]


@dataclass(frozen=True)
class Replace(DecoderStep):
    """`spelt` in a piece stands for `meant`: SentencePiece's U+2581 for a space, `</w>` for the end of a word."""

    spelt: str
    meant: str

    def decode(self, piece: str) -> str | bytes:
        return piece.replace(self.spelt, self.meant)

    def encode(self, text: str) -> list[str]:
        return [text.replace(self.meant, self.spelt)] if self.meant else [text]


@dataclass(frozen=True)
class WordPiece(DecoderStep):
    """`##ing` goes on with a word, anything else begins one, after a space.

    WordPiece does not keep the text's white space: the space is the one its decoder would write.
    """

    prefix: str

    def decode(self, piece: str) -> str | bytes:
        return piece.removeprefix(self.prefix) if piece.startswith(self.prefix) else " " + piece

    def encode(self, text: str) -> list[str]:
        return [text[1:]] if text.startswith(" ") else [self.prefix + text]


@dataclass(frozen=True)
class PieceDecoder:
    """The steps of a decoder."""

    steps: tuple[DecoderStep, ...]
    dummy_prefix: bool
    """Whether the encoder puts a space before a text, which the decoder drops again."""

    def decode(self, piece: str) -> bytes:
        for step in self.steps:
            text = step.decode(piece)
            if isinstance(text, bytes):
                return text
            piece = text
        return piece.encode()

    def encode(self, text: str) -> list[str]:
        """Candidate pieces for `text`. The caller checks them by decoding."""
        pieces = [text]
        for step in reversed(self.steps):
            pieces = [piece for text in pieces for piece in step.encode(text)]
        return pieces


def piece_decoder(decoder: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None) -> PieceDecoder:
    """The piece decoder for a tokenizer's JSON configuration.

    Without a decoder, a ByteLevel or Metaspace pre-tokenizer says as much. With neither, pieces are their own text.
    """
    steps: list[DecoderStep] = []
    dummy_prefix = False
    for part in _parts(pre_tokenizer if decoder is None else decoder):
        match part:
            case {"type": "ByteLevel"}:
                steps.append(ByteLevel())
            case {"type": "ByteFallback"}:
                steps.append(ByteFallback())
            case {"type": "Replace", "pattern": {"String": str(spelt)}, "content": str(meant)}:
                steps.append(Replace(spelt, meant))
            case {"type": "Metaspace", "replacement": str(spelt)}:
                steps.append(Replace(spelt, " "))
                # Older configurations say add_prefix_space, newer ones prepend_scheme.
                scheme = part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never")
                dummy_prefix |= scheme != "never"
            case {"type": "Strip", "content": " ", "start": int(start)}:
                dummy_prefix |= start > 0
            case {"type": "WordPiece", "prefix": str(prefix)}:
                steps.append(WordPiece(prefix))
                dummy_prefix = True
            case {"type": "BPEDecoder", "suffix": str(suffix)}:
                steps.append(Replace(suffix, " "))
    return PieceDecoder(tuple(steps), dummy_prefix)


def _parts(configuration: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a configuration, with nested sequences flattened."""
    if configuration is None:
        return []
    if configuration.get("type") == "Sequence":
        nested = configuration.get("decoders") or configuration.get("pretokenizers") or []
        return [part for each in nested for part in _parts(each)]
    return [configuration]


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
        configuration = json.loads(component.__getstate__())
    except Exception:  # some versions of the library cannot do this; the whole tokenizer's JSON holds it too
        configuration = json.loads(tokenizer.to_str())[part]
    return cast(dict[str, Any], configuration)


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
            spelled = text.encode()
        except UnicodeEncodeError:  # half a surrogate pair: no token is that
            return None
        token = self._tokenizer.token_to_id(text)
        if token is not None and token != self._model.token_to_id(text):
            return token  # an added token, even if its id has another name too
        # The tokenizer knows ordinary pieces by their spelling, and "Ġa" is not the text "Ġa": decode to be sure.
        for piece in (text, *self._decoding.pieces.encode(text)):
            token = self._tokenizer.token_to_id(piece)
            if token is not None and self.token_bytes(token) == spelled:
                return token
        return None

    def token_bytes(self, token: int) -> bytes | None:
        cached = self._bytes_of.get(token)
        return self._look_up(token) if cached is None else cached

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
        data = self._bytes_of[token] = self._decoding.pieces.decode(piece) if ordinary else piece.encode()
        return data


def adapt(tokenizer: object) -> Vocabulary | None:
    """A Vocabulary over `tokenizer` if it is a `tokenizers.Tokenizer`, else None."""
    names = ("token_to_id", "id_to_token", "model", "decoder", "pre_tokenizer", "get_added_tokens_decoder", "to_str")
    if not all(hasattr(tokenizer, name) for name in names):
        return None
    return _of(cast(_Tokenizer, tokenizer))


def _of(tokenizer: _Tokenizer) -> HuggingFaceVocabulary:
    return HuggingFaceVocabulary(tokenizer, _cached_decoding(tokenizer))
