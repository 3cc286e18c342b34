"""Where the reasoning ends, in ids: what vLLM's engine asks at every step."""

from __future__ import annotations

import pytest

import unbraid

from .cases import (
    decode,
    encode,
    qwen3,
    tokenizer_for,
)
from .server import reasoning_parser


@pytest.mark.parametrize(
    ("prompt", "ended"),
    [
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n", False),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", True),
        ("<|im_start|>assistant\n<think>\na</think>b<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_reasoning_that_a_prompt_has_ended(prompt: str, ended: bool) -> None:
    assert reasoning_parser("unbraid-qwen3", qwen3()).is_reasoning_end(encode(qwen3(), prompt)) is ended


@pytest.mark.parametrize(
    ("prompt", "output", "rest"),
    [
        ("<|im_start|>assistant\n", "<think>\nhm\n</think>\n\na", "a"),
        ("<|im_start|>assistant\n<think>\n", "hm\n</think>\n\na", "a"),
        # A model that leaves the reasoning out is held to what was asked for from its second token on.
        ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "\n\nHello there", "there"),
        ("<|im_start|>assistant\n", "<think>\nit does not end", None),
        ("<|im_start|>assistant\n<think>\n", "it does not end, although it is long" * 3, None),
    ],
)
@pytest.mark.parametrize("format", ["qwen3", "step-audio-2"])
def test_reasoning_that_an_output_ends(format: str, prompt: str, output: str, rest: str | None) -> None:
    tokenizer = tokenizer_for(unbraid.find(format))
    parser = reasoning_parser(f"unbraid-{format}", tokenizer)
    ids, new = encode(tokenizer, prompt), encode(tokenizer, output)
    ended = None
    for at, token in enumerate(new):
        ids.append(token)
        if parser.is_reasoning_end_streaming(ids, iter([token])):
            ended = decode(tokenizer, new[at + 1 :]).strip()
            break
    assert ended == rest


def test_ids_of_the_content() -> None:
    tokenizer = qwen3()

    def content(name: str, text: str) -> str:
        return decode(tokenizer, reasoning_parser(name, tokenizer).extract_content_ids(encode(tokenizer, text)))

    assert content("unbraid-qwen3", "<think>hm</think>a b") == "a b"
    assert content("unbraid-qwen3", "<think>hm") == ""
    # What nothing is known of begins where vLLM's own parser of that name begins: qwen3's in the reasoning.
    assert content("unbraid-qwen3", "a b") == content("unbraid-qwen3-thinking", "a b") == ""
    assert content("unbraid-mistral", "[THINK]hm[/THINK]a b") == "a b"


def test_markers_for_a_budget() -> None:
    parser = reasoning_parser("unbraid-qwen3", qwen3())
    assert (parser.reasoning_start_str, parser.reasoning_end_str) == ("<think>", "</think>")
