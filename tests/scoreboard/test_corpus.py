"""The corpus is the same for a seed, says what it means, and its cuts change nothing."""

from __future__ import annotations

import json

import pytest

from scoreboard.corpus import EITHER, KINDS, messages, templates_of
from scoreboard.streams import CUTS, SPELLED, Stream, streams

FORMATS = ("hermes", "mistral-v3", "qwen3-coder", "glm-4.5", "pythonic", "step-3")


@pytest.fixture(scope="module", params=FORMATS)
def some(request: pytest.FixtureRequest) -> list[Stream]:
    return list(streams(request.param, 1))


def test_a_seed_draws_the_same_and_another_one_draws_others() -> None:
    first, again, other = ([one.text for one in messages("hermes", "call", 2, seed)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_every_kind_is_drawn_for_some_format() -> None:
    assert {one.kind for name in FORMATS for kind in KINDS for one in messages(name, kind, 1)} == set(KINDS)


def test_the_tokens_spell_the_text_and_values_are_ordinary_tokens(some: list[Stream]) -> None:
    for stream in some:
        assert stream.meant.text.startswith(stream.text)
        assert stream.cut_off or stream.text == stream.meant.text


def test_cuts_cover_all_tokens(some: list[Stream]) -> None:
    for stream in some:
        for cut in CUTS[1:]:
            sizes = stream.sizes(cut)
            assert sizes is not None
            assert sum(sizes) == len(stream.ids)
            assert sizes == stream.sizes(cut)


def test_what_is_meant_is_json() -> None:
    for name in FORMATS:
        for kind in KINDS:
            for meant in messages(name, kind, 1):
                assert all(isinstance(json.loads(arguments), dict) for _, arguments in meant.turn.calls)
                assert meant.source == "ours" or templates_of(name)


def test_a_call_of_gpt_oss_names_its_recipient_behind_the_channel() -> None:
    for meant in messages("harmony", "call", 1):
        assert "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>" in meant.text


@pytest.mark.parametrize("name", SPELLED)
def test_markers_without_a_token_are_spelled(name: str) -> None:
    reasoned = [*streams(name, 1, ("reasoning-and-answer",))]
    assert reasoned
    assert not set(SPELLED[name]) & {text for stream in reasoned for text in stream.texts}
    assert all("<think>" in stream.text for stream in reasoned)


@pytest.mark.parametrize("name", EITHER)
def test_some_models_reason_or_call(name: str) -> None:
    drawn = [*messages(name, "call", 1), *messages(name, "reasoning-and-calls", 1)]
    assert drawn
    assert not any(meant.turn.reasoning and meant.turn.calls for meant in drawn)
