"""Prompts of Step-Audio 2, which ask the model to speak; and messages that the model continues."""

from __future__ import annotations

import json
from functools import cache

import pytest

import unbraid
from unbraid.templates import (
    ChatTemplate,
    InvalidMessages,
    PromptBuilder,
    PromptError,
    built_in,
)

from ..support import real_tokenizers
from .prompt_cases import TOOLS, conversation, qwen3_builder


@cache
def step() -> PromptBuilder:
    return PromptBuilder(built_in("step-audio-2"), real_tokenizers.step_audio_2(), unbraid.find("step-audio-2"))


def test_step_audio_2_prompts() -> None:
    assert step().build(conversation()[:2], tools=TOOLS).text == (
        f"<|BOT|>system\nBe brief.<|EOT|><|BOT|>tool_json_schemas\n{json.dumps(TOOLS, ensure_ascii=False)}<|EOT|>"
        "<|BOT|>human\nHi?<|EOT|><|BOT|>assistant\n"
    )
    text = step().build(conversation(), tools=TOOLS).text
    assert '<|BOT|>assistant\n<tool_call>function\nget_weather\n{"city": "Tōkyō"}</tool_call><|EOT|>' in text
    assert "<|BOT|>input\nsunny all day<|EOT|>" in text
    thinking = step().build(conversation()[:2], template_kwargs={"enable_thinking": True})
    assert thinking.text.endswith("<|BOT|>assistant\n\n<think>\n")
    message = unbraid.parse("step-audio-2", "hm\n</think>\n\nyes", prompt=thinking.text)
    assert (message.reasoning, message.content) == ("hm", "yes")


def test_speech_is_asked_for_in_two_ways() -> None:
    token = real_tokenizers.step_audio_2_tokens()["<tts_start>"]
    new = step().build(conversation()[:2], tts_output=True)
    old = step().build([*conversation()[:2], {"role": "assistant", "content": "<tts_start>", "eot": False}])
    assert new.text == old.text
    assert new.text.endswith("<|BOT|>assistant\n<tts_start>")
    assert new.ids == old.ids
    assert (new.ids or ())[-1] == token
    for prompt in (new.text, new.ids):
        tokenizer = real_tokenizers.step_audio_2()
        parser = unbraid.parser("step-audio-2", tokenizer=tokenizer, prompt=prompt)
        parser.feed_tokens([*tokenizer.encode_ordinary("Hi")])  # type: ignore[union-attr]
        parser.finish()
        assert parser.message.speech[0].text == "Hi"


def test_speech_that_the_user_spells_is_none() -> None:
    prompt = step().build([{"role": "user", "content": "<tts_start>"}])
    assert real_tokenizers.step_audio_2_tokens()["<tts_start>"] not in (prompt.ids or ())


def test_a_model_that_cannot_speak() -> None:
    with pytest.raises(unbraid.MissingTokens, match="<tts_start>"):
        qwen3_builder().build(conversation(), tts_output=True)
    with pytest.raises(PromptError, match="has no speech"):
        PromptBuilder(built_in("chatml"), format=unbraid.find("qwen3")).build(conversation(), tts_output=True)
    assert PromptBuilder(built_in("step-audio-2")).build(conversation(), tts_output=True).text.endswith("<tts_start>")


def test_silence_may_be_allowed() -> None:
    prompt = qwen3_builder().build(conversation(), tts_output=True, allow_silence=True)
    assert prompt.ids == qwen3_builder().build(conversation()).ids
    assert not prompt.spoken
    assert "<tts_start>" in prompt.silence
    spoken = step().build(conversation(), tts_output=True, allow_silence=True)
    assert (spoken.spoken, spoken.speech_marker, spoken.silence) == (True, "<tts_start>", "")


def test_speech_that_is_asked_for_twice_is_opened_once() -> None:
    older = [*conversation()[:2], {"role": "assistant", "content": "<tts_start>Well", "eot": False}]
    both, one = step().build(older, tts_output=True), step().build(older)
    assert both.ids == one.ids
    assert both.spoken
    assert both.speech_marker == ""


def test_a_message_is_gone_on_with() -> None:
    messages = [*conversation()[:2], {"role": "assistant", "content": "Once <|EOT|> upon"}]
    prompt = step().build(messages, continue_final_message=True)
    assert prompt.text.endswith("<|BOT|>assistant\nOnce <|EOT|> upon")
    assert step().build([*messages[:2], {**messages[2], "eot": False}]) == prompt
    with pytest.raises(InvalidMessages, match="role is assistant"):
        step().build(conversation()[:2], continue_final_message=True)
    silent = PromptBuilder(ChatTemplate("{{ messages[0].content }}"))
    with pytest.raises(InvalidMessages, match=r"messages\[1\] cannot be said .* does not write"):
        silent.build(conversation()[1:3], continue_final_message=True)
