"""Models for the tests of prompts: real tokenizers with their real templates."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid.core.vocabulary import Vocabulary
from unbraid.tokens import vocabulary

from ..support.places import SHARED, absent

TEMPLATES = SHARED / "templates"
ALL_TEMPLATES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


def template_source(name: str) -> str:
    """A vendor's template out of the shared data."""
    path = TEMPLATES / f"{name}.jinja"
    if not path.exists():
        pytest.skip(absent(path))
    return path.read_text(encoding="utf-8")


class EngineLike:
    """What the embedded engine offers: its vocabulary, and `encode(text, special)`. Like llama.cpp, it takes tokens
    that are added but not special for tokens even in plain text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.vocabulary: Vocabulary = vocabulary(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: id for id, token in added.items() if token.special}

    def encode(self, text: str, special: bool) -> list[int]:
        assert not special, "text of messages must never be read for special tokens"
        ids: list[int] = []
        begin = 0
        for at in range(len(text)):  # slow, but clear: special tokens are split, the others are not
            found = next((each for each in self._special if text.startswith(each, at)), None)
            if found is not None:
                ids += self._tokenizer.encode(text[begin : at + 1], add_special_tokens=False).ids
                begin = at + 1
        return ids + list(self._tokenizer.encode(text[begin:], add_special_tokens=False).ids)
