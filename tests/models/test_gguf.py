"""What a GGUF file says about its model and its tokens."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from unbraid.models import Gguf, GgufVocabulary, ModelError
from unbraid.tokens.retokenize import spell

from .packages import gguf


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    values: dict[str, Any] = {
        "general__architecture": "x",
        "x__context_length": 77,
        "a": -5,
        "b": 0.5,
        "c": True,
        "d": ["e", "fé"],
        "g": [1, 2, 3],
        "h": [["i"], ["j", "k"]],
    }
    path.write_bytes(gguf(**values))
    file = Gguf(path)
    assert {key.replace(".", "__"): value for key, value in file.items()} == values
    assert (file.name, file.context_length, file.chat_template, file.ends) == ("a", 77, None, frozenset())
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"damaged|cannot be read"):
            list(Gguf(path).values())
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with pytest.raises(ModelError, match="little-endian"):
        Gguf(path)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60))
    with pytest.raises(ModelError, match="damaged"):
        Gguf(path)


def test_sentencepiece(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "a", "é", "<tool>", "▁"]
    types = [2, 3, 3, *[6] * 256, 1, 1, 1, 4, 1]
    path.write_bytes(
        gguf(
            tokenizer__ggml__model="llama",
            tokenizer__ggml__tokens=tokens,
            tokenizer__ggml__token_type=types,
            tokenizer__ggml__bos_token_id=1,
            tokenizer__ggml__eos_token_id=2,
        )
    )
    vocabulary = GgufVocabulary(Gguf(path))
    assert (vocabulary.dummy_prefix, vocabulary.bos, vocabulary.ends) == (True, 1, frozenset({2}))
    assert vocabulary.token_bytes(tokens.index("▁the")) == b" the"
    assert vocabulary.token_bytes(tokens.index("<0x0A>")) == b"\n"
    assert vocabulary.token_id("\n") == tokens.index("<0x0A>")
    assert vocabulary.token_id("a") == tokens.index("a")  # and not the byte
    assert vocabulary.token_id(" ") == tokens.index("▁")
    assert vocabulary.token_id("</s>") == 2
    assert vocabulary.token_id("<0x0A>") is None
    assert vocabulary.special == {0, 1, 2, tokens.index("<tool>")}
    assert spell(vocabulary, b"a the") == (tokens.index("a"), tokens.index("▁the"))  # no bytes where there are pieces
    assert vocabulary.decode(spell(vocabulary, "a the😀".encode()) or ()) == "a the😀"
    assert spell(vocabulary, b"aa", 3) is None


def test_tokenizers_that_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf(tokenizer__ggml__model="bert", tokenizer__ggml__tokens=["a"]))
    with pytest.raises(ModelError, match="of the kind 'bert'"):
        GgufVocabulary(Gguf(path))
