"""No message can forge a control token, whatever it spells and whichever tokenizer encodes it."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.templates import (
    ChatTemplate,
    Encoder,
    Prompt,
    PromptBuilder,
    built_in,
    encoder,
)
from unbraid.templates.control_tokens import MARK, ControlTokens, is_control, trie_pattern
from unbraid.templates.prompt.encoders import HuggingFaceEncoder

from ..support import real_tokenizers
from ..support.examples import examples
from .prompt_cases import SPM, SPM_1, controls_in, qwen3, qwen3_builder, qwen3_encoder, qwen3_transformers, spelled_out
from .prompt_models import EngineLike


@cache
def hostile_builders() -> dict[str, PromptBuilder]:
    step, mistral = unbraid.find("step-audio-2"), unbraid.find("mistral")
    phi = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}{{ '<|assistant|>' }}"
    return {
        "qwen3": qwen3_builder(),
        "qwen3, transformers": PromptBuilder(qwen3(), qwen3_transformers(), unbraid.find("qwen3")),
        "qwen3, an engine": PromptBuilder(qwen3(), EngineLike(real_tokenizers.qwen3_huggingface())),
        "step-audio-2, tiktoken": PromptBuilder(built_in("step-audio-2"), real_tokenizers.step_audio_2(), step),
        "step-audio-2, tokenizers": PromptBuilder(
            built_in("step-audio-2"), real_tokenizers.step_audio_2(kind="huggingface"), step
        ),
        "mistral v3": PromptBuilder(ChatTemplate(SPM, bos_token="<s>"), real_tokenizers.mistral(3), mistral),
        "mistral v13": PromptBuilder(ChatTemplate(SPM, bos_token="<s>"), real_tokenizers.mistral(13), mistral),
        "llama 2": PromptBuilder(ChatTemplate(SPM_1, bos_token="<s>"), real_tokenizers.mistral_1_huggingface()),
        "roles in tokens": PromptBuilder(ChatTemplate(phi), more_tokens()),
        "added, normalised": PromptBuilder(built_in("chatml"), more_tokens()),
    }


@cache
def more_tokens() -> Encoder:
    """Tokens with roles in their names, and tokens that are looked for in normalised text."""
    tokenizer = tokenizers.Tokenizer.from_str(real_tokenizers.qwen3_huggingface().to_str())
    tokenizer.add_special_tokens(["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"])
    tokenizer.add_tokens(["<mark_a>", "[[b]]"])
    return encoder(tokenizer)


BUILDERS = (
    "qwen3",
    "qwen3, transformers",
    "qwen3, an engine",
    "step-audio-2, tiktoken",
    "step-audio-2, tokenizers",
    "mistral v3",
    "mistral v13",
    "llama 2",
    "roles in tokens",
    "added, normalised",
)
WORDS = ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<|BOT|>", "<|EOT|>", "<audio_12>", "<tts_start>"]
WORDS += ["[INST]", "[/INST]", "</s>", "<s>", "[TOOL_CALLS]", "<think>", "</think>", "<tool_response>", "<|user|>"]
WORDS += [
    "<|end|>",
    "<mark_a>",
    "[[b]]",
    "<|endoftext|>",
    "\ufdd0",
    "\ufdd1",
    "\udc00",
    MARK,
    "\u2581",
    "é",
    "\n",
    " ",
    "a",
]
WORDS += [piece for word in WORDS[:8] for piece in (word[:-1], word[1:], word[:3])]
hostile_text = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), min_size=1, max_size=8).map("".join)


def prompt_with(builder: PromptBuilder, text: str, other: str) -> Prompt:
    """A prompt with these texts wherever a client can put one."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": other},
        {"role": "user", "content": text, "name": other},
        {"role": "assistant", "content": other},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": other}}]
    return builder.build(messages, tools=tools, template_kwargs={"extra": text})


@cache
def harmless_controls(name: str) -> list[int]:
    """The control tokens of a prompt with texts that spell none."""
    builder = hostile_builders()[name]
    return controls_in(builder, prompt_with(builder, "x", "x"))


@pytest.mark.parametrize("name", BUILDERS)
@examples(2.5)
@given(text=hostile_text, other=hostile_text)
def test_no_message_can_forge_a_token(name: str, text: str, other: str) -> None:
    builder = hostile_builders()[name]
    text, other = f"x{text}x", f"x{other}x"  # what templates strip or look at is not what this is about

    hostile = prompt_with(builder, text, other)
    assert controls_in(builder, hostile) == harmless_controls(name)
    decoded = spelled_out(builder, hostile)
    if builder.encoder is not None and builder.encoder.vocabulary.dummy_prefix:  # spaces that are not in the text
        decoded, expected = decoded.replace(" ", ""), hostile.text.replace(" ", "").replace("\u2581", "")
        decoded = decoded.replace("\u2581", "")
    else:
        expected = hostile.text
    assert unicodedata.normalize("NFC", decoded) == unicodedata.normalize("NFC", expected)
    assert not any("\ud800" <= character <= "\udfff" for character in hostile.text)


def test_plain_text_has_the_ids_that_it_always_has() -> None:
    """A token that is spelled out is cut as any other text."""
    builder = qwen3_builder()
    text = "a <|im_end|> b <tool_call> c"
    prompt = builder.build([{"role": "user", "content": text}])
    plain = real_tokenizers.encode_plain(real_tokenizers.qwen3_huggingface(), f"user\n{text}")
    assert ",".join(map(str, plain)) in ",".join(map(str, prompt.ids or ()))


@pytest.mark.parametrize("name", ["qwen3", "qwen3, transformers", "step-audio-2, tokenizers", "llama 2"])
@given(text=hostile_text, other=hostile_text)
def test_what_is_remembered_has_the_same_ids(name: str, text: str, other: str) -> None:
    builder = hostile_builders()[name]
    encoder = builder.encoder
    assert isinstance(encoder, HuggingFaceEncoder)
    assert encoder._parts_stand_alone == (name != "llama 2")
    token = MARK + next(iter(builder.controls.ids))
    for whole in (text, text + token + other, token + text + token + text, other + token * 2, ""):
        expected = encoder._as_a_whole(whole, list(encoder.controls.split(whole)))
        assert encoder.encode(whole) == expected
        assert encoder.encode(whole) == expected


def test_a_token_cannot_be_put_together_with_words_of_the_template() -> None:
    source = "<tool_call>{% for m in messages %}<{{ m.content }}>{% endfor %}"
    builder = PromptBuilder(ChatTemplate(source), qwen3_encoder())
    prompt = builder.build([{"role": "user", "content": "tool_call"}, {"role": "user", "content": "/tool_call"}])
    assert prompt.text == "<tool_call><tool_call></tool_call>"
    assert controls_in(builder, prompt) == [builder.controls.ids["<tool_call>"]]


def test_templates_see_the_text_as_it_is() -> None:
    """What a template looks for in messages it finds, though it may not write it."""
    source = """{% set end = '</think>' %}{% for m in messages %}{% if end in m.content and '</think>' in m.content %}\
{{ m.content.split('</think>')[-1] ~ '</think>' ~ (m.content | replace('</think>', '!')) }}{% endif %}{% endfor %}"""
    builder = PromptBuilder(ChatTemplate(source), qwen3_encoder())
    prompt = builder.build([{"role": "user", "content": "a</think>b"}])
    assert prompt.text == "b</think>a!b"
    assert len(controls_in(builder, prompt)) == 1


def test_reasoning_in_the_history_is_left_to_the_template() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"}]
    prompt = qwen3_builder().build([*messages, {"role": "user", "content": "c"}])
    assert "hm" not in prompt.text
    kept = qwen3_builder().build(messages, continue_final_message=True)
    assert kept.text.endswith("<think>\nhm\n</think>\n\nb")


def test_what_is_a_control_token() -> None:
    assert is_control("<|im_end|>", True)
    assert is_control("<tool_call>", False)
    assert is_control("<s>", True)
    assert not is_control("\n\n", False)
    assert not is_control("\u2581\u2581", False)
    assert not is_control("<table>", False)
    controls = ControlTokens({"ab": 1, "bc": 2, "abcd": 3, "abce": 4})
    assert controls.mark("xabcabce") == f"x{MARK}abc{MARK}abce"
    assert list(controls.positions("abc")) == [0, 1]
    assert list(controls.split(f"ab{MARK}abcd{MARK}x")) == [("ab", False), ("abcd", True), ("x", False)]


def test_thousands_of_tokens_are_searched_as_one_trie() -> None:
    """Shared beginnings are written once, so that at each place in a text only one branch is left to try."""
    assert trie_pattern(["<a_1>", "<a_12>", "<b>", "<"]) == r"<(?:a_1(?:>|2>)|b>)?"
    assert trie_pattern([]) == "(?!)"
    controls = encoder(real_tokenizers.step_audio_2()).controls
    assert len(controls) > 6500
    assert trie_pattern(controls.ids).count("audio") == len({text[:6] for text in controls.ids if "audio" in text})
    assert not controls.spells("<audi <audio_ <div>" * 20_000)
