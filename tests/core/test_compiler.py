"""What is compiled is kept: one program for a format and for all that are equal to it, however many there are."""

from __future__ import annotations

from dataclasses import replace

import unbraid
from unbraid.core.compiler.compiler import compile_format


def test_equal_formats_are_one_program() -> None:
    qwen3 = unbraid.find("qwen3")
    for number in range(300):  # more than are kept
        assert compile_format(qwen3, None) is compile_format(replace(qwen3), None)
        other = replace(qwen3, name=f"qwen3 {number}")
        assert compile_format(other, None) is compile_format(other, None) is compile_format(replace(other), None)
    assert compile_format(qwen3, None) is not compile_format(other, None)


def test_nothing_is_kept_for_a_vocabulary_that_may_change() -> None:
    class Changing:
        version = None
        dummy_prefix = False
        __hash__ = None  # type: ignore[assignment]

        def token_id(self, text: str) -> int | None:
            return None

        def token_bytes(self, token: int) -> bytes | None:
            return None

    hermes, vocabulary = unbraid.find("hermes"), Changing()
    assert compile_format(hermes, vocabulary) is not compile_format(hermes, vocabulary)
