"""Pieces to bytes and back: how a vocabulary spells text, from the configuration of a tokenizer's decoder.

A vocabulary has pieces such as `Ġthe` (byte-level BPE), `▁the` (SentencePiece) or `##ing` (WordPiece). A Hugging Face
decoder is a chain of steps that turns them into text. The steps that change single pieces are here, each with its
inverse. Steps that act on the whole text (Fuse, Strip, CTC) say nothing about one token, with one exception: a Strip or
Metaspace that drops the first space shows that the encoder adds one, the dummy prefix.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any


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
