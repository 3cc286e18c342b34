"""GGUF files: the metadata in the header of a llama.cpp model file, and its tokens as a `Vocabulary`.

The `gguf` package reads them too, but needs numpy and indexes the tensors; 150 lines are less. The header is scanned
once for the places of its values. A value is decoded when it is asked for, since a vocabulary has 100,000 entries. The
file is hostile input: every length is checked against the file's size.

GGUF stores the pieces of byte-level BPE (`gpt2`) or SentencePiece (`llama`). They are decoded like those of a Hugging
Face tokenizer (`tokens.huggingface`). Special, added and control tokens are their own text.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ..tokens.huggingface import ByteFallback, ByteLevel, PieceDecoder, Replace
from .errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_NESTED = 4


class Gguf(Mapping[str, Any]):
    """The key-value pairs of a GGUF file's header. The usual ones are properties."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        self._values: dict[str, Any] = {}
        try:
            self._places = self._scan()
        except (struct.error, UnicodeDecodeError, IndexError, KeyError, OverflowError) as error:
            raise ModelError(f"the header of {path} is damaged ({error!r}): download the file again") from error

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            kind, at = self._places[key]
            self._values[key] = self._read(kind, at)[0]
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.get("general.name") or self.path.stem)

    @property
    def context_length(self) -> int | None:
        """The context length that the model was trained for."""
        return cast("int | None", self.get(f"{self.get('general.architecture')}.context_length"))

    @property
    def chat_template(self) -> str | None:
        """The chat template, if the file has one."""
        return cast("str | None", self.get("tokenizer.chat_template"))

    @property
    def bos(self) -> int | None:
        """The token to put before every prompt, if the model wants one."""
        return self._token("bos") if self.get("tokenizer.ggml.add_bos_token", self._adds_bos) else None

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end the output, according to the file. llama.cpp recognises more of them by name."""
        return frozenset(token for name in ("eos", "eot", "eom") if (token := self._token(name)) is not None)

    @property
    def _adds_bos(self) -> bool:
        return self.get("tokenizer.ggml.model") == "llama"

    def _token(self, name: str) -> int | None:
        return cast("int | None", self.get(f"tokenizer.ggml.{name}_token_id"))

    def _scan(self) -> dict[str, tuple[int, int]]:
        magic, version, _, pairs = struct.unpack_from("<4sIQQ", self._data, 0)
        if magic != b"GGUF":
            raise ModelError(f"{self.path} is not a GGUF file")
        if version not in (2, 3):
            raise ModelError(f"{self.path} is of GGUF version {version}, and only 2 and 3 (little-endian) can be read")
        places: dict[str, tuple[int, int]] = {}
        at = 24
        for _ in range(pairs):
            key, at = self._text(at)
            (kind,) = struct.unpack_from("<I", self._data, at)
            places[key] = (kind, at + 4)
            at = self._after(kind, at + 4)
            if at > len(self._data):
                raise IndexError(f"{key} goes on past the end")
        return places

    def _text(self, at: int) -> tuple[str, int]:
        (length,) = struct.unpack_from("<Q", self._data, at)
        end = at + 8 + length
        if end > len(self._data):
            raise IndexError(f"a text of {length} bytes at {at}")
        return self._data[at + 8 : end].decode("utf-8", "replace"), end

    def _after(self, kind: int, at: int, depth: int = 0) -> int:
        """Where the value at `at` ends."""
        if kind in _SCALARS:
            return at + struct.calcsize("<" + _SCALARS[kind])
        (length,) = struct.unpack_from("<Q", self._data, at if kind == _STRING else at + 4)
        if length > len(self._data):
            raise IndexError(f"{length} items at {at}")
        if kind == _STRING:
            return at + 8 + int(length)
        if kind != _ARRAY or depth > _MOST_NESTED:
            raise IndexError(f"a value of type {kind} at {at}")
        (item,) = struct.unpack_from("<I", self._data, at)
        at += 12
        if item in _SCALARS:
            return at + int(length) * struct.calcsize("<" + _SCALARS[item])
        if item == _STRING:
            return self._after_texts(at, length)
        for _ in range(length):
            at = self._after(item, at, depth + 1)
        return at

    def _after_texts(self, at: int, count: int) -> int:
        unpack: Callable[[Any, int], tuple[int]] = struct.Struct("<Q").unpack_from
        data = self._data
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        return at

    def _read(self, kind: int, at: int) -> tuple[Any, int]:
        if kind in _SCALARS:
            code = "<" + _SCALARS[kind]
            return struct.unpack_from(code, self._data, at)[0], at + struct.calcsize(code)
        if kind == _STRING:
            return self._text(at)
        item, length = struct.unpack_from("<IQ", self._data, at)
        at += 12
        if item in _SCALARS:
            code = f"<{length}{_SCALARS[item]}"
            return list(struct.unpack_from(code, self._data, at)), at + struct.calcsize(code)
        values = []
        for _ in range(length):
            value, at = self._read(item, at)
            values.append(value)
        return values, at


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
        data = self._bytes.get(token)
        return self._look_up(token) if data is None else data

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
            data = spelt if isinstance(spelt, bytes) else spelt.encode()
        elif kind == _NORMAL:
            data = self._decoder.decode(piece)
        else:
            data = piece.encode()
        self._bytes[token] = data
        return data

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Tokens by their bytes. Special tokens win over others, a piece wins over a byte token of the same bytes, and
        then the lowest id wins."""
        ordinary = [token for plain in (_NORMAL, _BYTE) for token, kind in enumerate(self._types) if kind == plain]
        ids: dict[bytes, int] = {}
        for token in (*sorted(self.special), *ordinary):
            if data := self.token_bytes(token):
                ids.setdefault(data, token)
        return ids
