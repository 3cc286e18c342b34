"""Tokenizers as vLLM has them, and deltas as it hands them out, for the tests of the plug-in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from unbraid import Format, all_formats, find

from ...support import real_tokenizers

FORMATS = [format for format in all_formats() if format.tools is not None or format.reasoning is not None]
WITH_TOOLS = [format for format in FORMATS if format.tools is not None]
WITH_REASONING = [format for format in FORMATS if format.reasoning is not None]
every_format = pytest.mark.parametrize("format", FORMATS, ids=attrgetter("name"))
every_format_with_tools = pytest.mark.parametrize("format", WITH_TOOLS, ids=attrgetter("name"))
every_format_with_reasoning = pytest.mark.parametrize("format", WITH_REASONING, ids=attrgetter("name"))


def tokenizer_for(format: Format) -> Any:
    """A tokenizer in which turns of the format end with a token. Which of its other markers are tokens differs from
    format to format."""
    return _tokenizer(format.name if format.speech is not None else "qwen3")


def qwen3() -> Any:
    return _tokenizer("qwen3")


@cache
def _tokenizer(name: str) -> Any:
    fast = pytest.importorskip("transformers").PreTrainedTokenizerFast
    if name == "qwen3":
        ends = sorted({end for format in FORMATS if format.speech is None for end in format.ends})
        tokenizer = fast(tokenizer_object=real_tokenizers.qwen3_huggingface(), eos_token="<|im_end|>")
        tokenizer.add_tokens(ends, special_tokens=True)
        return tokenizer
    if name == "step-audio-2":
        return fast(tokenizer_object=real_tokenizers.step_audio_2("released", "huggingface"), eos_token="<|EOT|>")
    format = find(name)
    speech = format.speech
    assert speech is not None
    # A few of its codes will do.
    codes = [speech.code.format(code) for code in range(10)] if speech.code else []
    tokens = [speech.open, speech.close, *speech.out_of_band, *codes, *format.ends]
    tokenizer = real_tokenizers.qwen3_with(*(text for text in tokens if text))
    return fast(tokenizer_object=tokenizer, eos_token=format.ends[0])


def encode(tokenizer: Any, text: str) -> list[int]:
    """The ids of `text`, in which special and added tokens are recognised."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def grouped(ids: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """`ids` in groups of these sizes, over and over."""
    at = turn = 0
    while at < len(ids):
        size = sizes[turn % len(sizes)]
        yield list(ids[at : at + size])
        at, turn = at + size, turn + 1
