"""Prompts: templates rendered as Hugging Face does and within limits, messages in any shape, and no token that a
message forged."""

from __future__ import annotations

import json
import threading
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from mistral_common.protocol.instruct import tool_calls as mistral_calls
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest

import unbraid
from unbraid.templates import (
    ChatTemplate,
    Encoder,
    InvalidMessages,
    Prompt,
    PromptBuilder,
    PromptError,
    TemplateBroken,
    TemplateLimits,
    TemplateNotFound,
    TemplateRefused,
    TemplateTooMuch,
    built_in,
    encoder,
    from_source,
    load_templates,
    supports_tools,
)
from unbraid.templates.marks import MARK, Controls, is_control

from ..support import real_tokenizers
from ..support.examples import examples
from .prompt_models import ALL_TEMPLATES, EngineLike, qwen3_config, template_source

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Says how the weather is.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "where"}},
                "required": ["city"],
            },
        },
    }
]
CALL = {
    "id": "call_abcdefghijklmnop",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Tōkyō"}'},
}


def conversation(text: str = "Weather?") -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": None, "reasoning_content": "They ask.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "sunny all day"},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "Thanks, friend."},
    ]


SAID = ("Be brief.", "Hi?", "Hello.", "Weather?", "get_weather", "Tōkyō", "sunny all day", "It is sunny.", "friend.")


def vendor(name: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(template_source(name), bos_token="<s>", eos_token="</s>", name=name, **options)


@cache
def qwen3() -> ChatTemplate:
    config = qwen3_config()
    return from_source(config["chat_template"], {"eos_token": config["eos_token"]})


@cache
def qwen3_encoder() -> Encoder:
    return encoder(real_tokenizers.qwen3_huggingface())


@cache
def qwen3_builder() -> PromptBuilder:
    return PromptBuilder(qwen3(), qwen3_encoder(), unbraid.find("qwen3"))


# The vendors' templates

NEEDS = {"fireworks-ai-llama-3-firefunction-v2": {"functions": "[]", "datetime": "today"}}
"""What a template has to be given that no other one wants."""
IN_WORDS = {
    # No tools section.
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "google-gemma-2-2b-it",
    "llama-cpp-deepseek-r1",
    "microsoft-Phi-3.5-mini-instruct",
    # They have one, but show no calls of earlier turns.
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "ibm-granite-granite-3.3-2B-Instruct",
    # It appends to lists, which Hugging Face's sandbox does not let it do.
    "Kimi-K2-Instruct",
    # It cannot be tried without its own variables.
    "fireworks-ai-llama-3-firefunction-v2",
}
"""Templates to which calls are given in words."""


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_every_template_shows_all_of_a_conversation(name: str) -> None:
    prompt = PromptBuilder(vendor(name)).build(conversation(), tools=TOOLS, template_kwargs=NEEDS.get(name))
    assert [word for word in SAID if word not in prompt.text] == []
    assert ("the content" in " ".join(prompt.notes)) == (name in IN_WORDS)
    for ugly in ("{'city': 'T", '\\"city', "call_abc" if "istral" in name else "\0", "None"):
        assert ugly not in prompt.text


def test_there_are_templates() -> None:
    if not ALL_TEMPLATES:
        pytest.skip("no templates in the folder of shared test data")
    assert len(ALL_TEMPLATES) >= 40


def test_what_templates_want_is_found_out() -> None:
    assert PromptBuilder(vendor("mistralai-Mistral-Nemo-Instruct-2407")).shape().short_ids
    assert PromptBuilder(vendor("deepseek-ai-DeepSeek-R1-Distill-Llama-8B")).shape().arguments == "text"
    assert PromptBuilder(vendor("deepseek-ai-DeepSeek-R1-Distill-Llama-8B")).shape().no_content is None
    assert not PromptBuilder(vendor("google-gemma-2-2b-it")).shape().system
    assert PromptBuilder(vendor("openai-gpt-oss-120b")).shape().developer
    assert supports_tools(vendor("Qwen-Qwen3-0.6B"))
    assert not supports_tools(vendor("microsoft-Phi-3.5-mini-instruct"))
    parts = ChatTemplate("{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}")
    assert PromptBuilder(parts).shape().parts
    assert PromptBuilder(parts).build([{"role": "user", "content": "Hi"}]).text == "Hi"


# As Hugging Face has it


@cache
def qwen3_transformers() -> Any:
    config = qwen3_config()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=real_tokenizers.qwen3_huggingface(),
        chat_template=config["chat_template"],
        eos_token=config["eos_token"],
    )


def as_hugging_face_wants() -> list[dict[str, Any]]:
    messages = conversation()
    messages[3] = {"role": "user", "content": "Weather?"}
    call = {**CALL, "function": {"name": "get_weather", "arguments": {"city": "Tōkyō"}}}
    messages[4] = {**messages[4], "content": "", "tool_calls": [call]}
    return messages


@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}], ids=str)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("count", [2, 4, 5, 6, 8])
def test_prompts_are_those_of_transformers(options: dict[str, Any], tools: Any, count: int) -> None:
    theirs = qwen3_transformers().apply_chat_template(
        as_hugging_face_wants()[:count], tools=tools, add_generation_prompt=True, tokenize=False, **options
    )
    ids = qwen3_transformers().apply_chat_template(
        as_hugging_face_wants()[:count], tools=tools, add_generation_prompt=True, return_dict=False, **options
    )
    ours = qwen3_builder().build(conversation()[:count], tools=tools, template_kwargs=options)
    assert ours.text == theirs
    assert list(ours.ids or ()) == list(ids)
    assert qwen3().render(as_hugging_face_wants()[:count], tools, **options) == theirs


@pytest.mark.parametrize("content", ["Once upon", " Once upon ", "Once upon \n\n", "<|im_end|> and "])
@pytest.mark.parametrize("strips", [True, False])
def test_a_message_is_left_open_as_transformers_does(content: str, strips: bool) -> None:
    source = (
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content"
        + ("|trim" if strips else "")
        + " }}<|im_end|>\n{% endfor %}"
    )
    messages = [{"role": "user", "content": "Tell."}, {"role": "assistant", "content": content}]
    theirs = qwen3_transformers().apply_chat_template(
        messages, chat_template=source, continue_final_message=True, tokenize=False
    )
    assert ChatTemplate(source).render(messages, add_generation_prompt=False, continue_final_message=True) == theirs
    assert PromptBuilder(ChatTemplate(source)).build(messages, continue_final_message=True).text == theirs


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_templates_render_as_transformers_does(name: str) -> None:
    template = vendor(name)
    shape = PromptBuilder(template).shape()
    messages = [shape.message(dict(each)) for each in conversation("Weather?")[1:3]]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", **NEEDS.get(name, {})}
    try:
        theirs = transformers.utils.chat_template_utils.render_jinja_template(
            [messages], chat_template=template.source, add_generation_prompt=True, tools=TOOLS, **tokens
        )[0][0]
    except TypeError as error:  # llama.cpp's own templates do what only llama.cpp's Jinja can
        with pytest.raises(TemplateBroken, match=str(error)):
            template.render(messages, TOOLS)
        return
    needs: dict[str, Any] = dict(NEEDS.get(name, {}))
    assert template.render(messages, TOOLS, **needs) == theirs


def test_what_only_templates_for_training_have() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% if loop.first %}{% break %}{% endif %}{% endfor %}"
    )
    assert ChatTemplate(source).render(conversation()) == "Be brief."
    source = "{{ messages[0] | tojson(indent=1, sort_keys=true, separators=(',', ':')) }} {{ 'é<' | tojson }}"
    assert ChatTemplate(source).render([{"b": 1, "a": "é<'"}]) == '{\n "a":"é<\'",\n "b":1\n} "é<"'
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]).isdigit()
    named = ChatTemplate("{{ bos_token }}{{ pad_token }}", bos_token="<s>", special_tokens={"pad_token": "<p>"})
    assert named.render([]) == "<s><p>"


# Mistral


def mistral_request() -> tuple[list[Any], list[Any]]:
    function = mistral_calls.Function(**TOOLS[0]["function"])
    call = mistral_calls.ToolCall(
        id="Call00001", function=mistral_calls.FunctionCall(name="get_weather", arguments='{"city": "Tōkyō"}')
    )
    messages = [
        UserMessage(content="Hi there?"),
        AssistantMessage(content="Hello."),
        UserMessage(content="Weather?"),
        AssistantMessage(content=None, tool_calls=[call]),
        ToolMessage(content='{"sun": true}', tool_call_id="Call00001", name="get_weather"),
    ]
    return messages, [mistral_calls.Tool(function=function)]


def openai_messages() -> list[dict[str, Any]]:
    call = {**CALL, "id": "Call00001"}
    return [
        {"role": "user", "content": "Hi there?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": '{"sun": true}', "tool_call_id": "Call00001"},
    ]


SPM_1 = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}\
{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"""
SPM = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}\
{% elif m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}\
{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"""


@pytest.mark.parametrize(
    ("version", "tekken", "source"),
    [
        (1, False, SPM_1),
        (2, False, SPM),
        (3, False, SPM),
        (7, False, SPM),
        (3, True, SPM.replace("] '", "]'").replace("' '", "''")),
        (13, True, SPM.replace("] '", "]'").replace("' '", "''")),
    ],
)
def test_prompts_are_those_of_mistral_common(version: int, tekken: bool, source: str) -> None:
    tokenizer = real_tokenizers.mistral(version, tekken=tekken)
    builder = PromptBuilder(ChatTemplate(source, bos_token="<s>", eos_token="</s>"), tokenizer)
    messages = [*openai_messages()[:2], {"role": "user", "content": "  [INST] \nWeather? </s>"}]
    theirs = [*mistral_request()[0][:2], UserMessage(content="  [INST] \nWeather? </s>")]
    if version >= 7:
        messages.insert(0, {"role": "system", "content": "Be brief."})
        theirs.insert(0, SystemMessage(content="Be brief."))
    expected = tokenizer.encode_chat_completion(ChatCompletionRequest(messages=theirs)).tokens
    prompt = builder.build(messages)
    assert list(prompt.ids or ()) == expected


@pytest.mark.parametrize(("version", "tekken"), [(3, True)])
def test_tools_are_encoded_as_mistral_common_does(version: int, tekken: bool) -> None:
    tokenizer = real_tokenizers.mistral(version, tekken=tekken)
    builder = PromptBuilder(vendor("mistralai-Mistral-Nemo-Instruct-2407"), tokenizer, unbraid.find("mistral"))
    messages, tools = mistral_request()
    theirs = tokenizer.encode_chat_completion(ChatCompletionRequest(messages=messages, tools=tools)).tokens
    ours = list(builder.build(openai_messages(), tools=TOOLS).ids or ())
    special = encoder(tokenizer).controls.ids.values()
    # The template's JSON has other spaces than mistral-common's; the control tokens are the same.
    assert [id for id in ours if id in special] == [id for id in theirs if id in special]


def test_dummy_prefixes_are_those_of_hugging_face() -> None:
    tokenizer = real_tokenizers.mistral_1_huggingface()
    builder = PromptBuilder(ChatTemplate(SPM_1, bos_token="<s>", eos_token="</s>"), tokenizer)
    ours = builder.build(openai_messages()[:3])
    assert list(ours.ids or ()) == tokenizer.encode(ours.text, add_special_tokens=False).ids
    forged = builder.build([{"role": "user", "content": "a</s>b <s> c"}])
    assert [id for id in forged.ids or () if id in (1, 2)] == [1]
    assert tokenizer.decode(list(forged.ids or ())) == "[INST] a</s>b <s> c [/INST]"


# Text stays text


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


def controls_in(builder: PromptBuilder, prompt: Prompt) -> list[int]:
    assert prompt.ids is not None
    return [id for id in prompt.ids if id in set(builder.controls.ids.values())]


def spelled_out(builder: PromptBuilder, prompt: Prompt) -> str:
    assert builder.encoder is not None
    assert prompt.ids is not None
    return b"".join(builder.encoder.vocabulary.token_bytes(id) or b"" for id in prompt.ids).decode("utf-8", "replace")


@pytest.mark.parametrize("name", BUILDERS)
@examples(2.5)
@given(text=hostile_text, other=hostile_text)
def test_no_message_can_forge_a_token(name: str, text: str, other: str) -> None:
    builder = hostile_builders()[name]
    text, other = f"x{text}x", f"x{other}x"  # what templates strip or look at is not what this is about

    def tools(text: str) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "f", "description": text}}]

    def messages(text: str, other: str) -> list[dict[str, Any]]:
        return [
            {"role": "system", "content": other},
            {"role": "user", "content": text, "name": other},
            {"role": "assistant", "content": other},
            {"role": "user", "content": [{"type": "text", "text": text}]},
        ]

    hostile = builder.build(messages(text, other), tools=tools(other), template_kwargs={"extra": text})
    harmless = builder.build(messages("x", "x"), tools=tools("x"), template_kwargs={"extra": "x"})
    assert controls_in(builder, hostile) == controls_in(builder, harmless)
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
    controls = Controls({"ab": 1, "bc": 2, "abcd": 3, "abce": 4})
    assert controls.mark("xabcabce") == f"x{MARK}abc{MARK}abce"
    assert list(controls.spelled("abc")) == [0, 1]
    assert list(controls.split(f"ab{MARK}abcd{MARK}x")) == [("ab", False), ("abcd", True), ("x", False)]


def test_finding_thousands_of_tokens_is_quick() -> None:
    controls = encoder(real_tokenizers.step_audio_2()).controls
    assert len(controls) > 6500
    started = time.perf_counter()
    assert not controls.spells("<audi <audio_ <div>" * 20_000)
    assert time.perf_counter() - started < 1


# Limits and mistakes

SMALL = TemplateLimits(output=100_000, items=10_000, steps=100_000, work=1_000_000, seconds=1)
ENDLESS = {
    "a long range": "{% for i in range(10**9) %}x{% endfor %}",
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that skip": "{% for i in range(99999) %}{% for j in range(99999) if false %}x{% endfor %}{% endfor %}",
    "a long string": "{{ 'a' * 10**9 }}",
    "a long list": "{{ [1] * 10**9 }}",
    "much output": "{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}",
    "strings that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set n.x=n.x ~ n.x %}{% endfor %}",
    "sums that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set n.x=n.x + n.x %}{% endfor %}",
    "blocks that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set y %}{{ n.x }}{{ n.x }}"
    "{% endset %}{% set n.x=y %}{% endfor %}",
    "lists that double": "{% set n=namespace(x=[1]) %}{% for i in range(99) %}{% set n.x=[n.x, n.x] %}{% endfor %}",
    "dicts that double": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x=dict(a=n.x, b=n.x) %}{% endfor %}",
    "a macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro that branches": "{% macro f(x) %}{% if x %}{{ f(x-1) }}{{ f(x-1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "a loop without end": "{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}",
    "padding": "{{ 'a' | center(10**9) }}",
    "more padding": "{{ 'a'.ljust(10**9) }}",
    "a wide number": "{{ '%1000000000d' % 1 }}",
    "a wide field": "{{ '{:>1000000000}'.format(1) }}",
    "a field of any width": "{{ '{:>{}}'.format(1, 10**9) }}",
    "a large number": "{{ (10**1000) ** 100000 }}",
    "replacing": "{% set a = 'a' * 9999 %}{{ a.replace('a', a) }}",
    "replacing, a filter": "{% set a = 'a' * 9999 %}{{ a | replace('a', a) }}",
    "joining": "{{ ('a' * 9999).join(['b'] * 9999) }}",
    "joining, a filter": "{{ range(9999) | join('a' * 9999) }}",
    "indenting": "{{ ('\n' * 9999) | indent(9999) }}",
    "indenting JSON": "{{ [1] | tojson(indent=10**8) }}",
    "lists of lists": "{{ ([range(9999)] * 9999) | map('list') | list }}",
    "adding up lists": "{{ ([[1]] * 9999) | sum(start=[]) }}",
    "deep brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep blocks": "{% if 1 %}" * 300 + "{% endif %}" * 300,
    "many bytes": "{{ (5).to_bytes(10**9, 'big') }}",
    "many wide numbers": "{{ ('%(a)99999d' * 9999) % {'a': 1} }}",
    "many wide numbers, a filter": "{{ ('%(a)99999d' * 9999) | format(a=1) }}",
    "many wide fields": "{{ ('{0:99999}' * 9999).format(1) }}",
    "a width in a list": "{{ '{0:{1[0]}}'.format(1, [10**10]) }}",
    "a width in a text": "{{ '{0:{1}{1}}'.format(1, '99999') }}",
    "many widths": "{{ ('%*d' * 4) % (99999, 1, 99999, 1, 99999, 1, 99999, 1) }}",
    "replacing, by name": "{% set a = 'a' * 9999 %}{{ a | replace(old='a', new=a) }}",
    "replacing, half by name": "{% set a = 'a' * 9999 %}{{ a | replace('a', new=a) }}",
    "views that double": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x={'a': n.x, 'b': n.x}.items() %}{% endfor %}{{ n.x }}",
    "views in lists": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x=[{'a': n.x}.values(), {'a': n.x}.values()] %}{% endfor %}{{ n.x == 1 }}",
    "constants": "{{ '' | center(999999) }}" * 1000,
    "searching": "{{ range(9999) | select('in', ([1.5] * 9999)) | list }}" * 9,
    "a long path": "{{ range(9999) | map(attribute='" + "a." * 9999 + "a', default=1) | list }}",
    "a long path to sort by": "{{ range(9999) | sort('" + "a," * 9999 + "a') }}",
    "JSON with much between": "{{ ([1] * 999) | tojson(separators=('x' * 9999, ':')) }}",
    "JSON with much before": "{{ ([1] * 999) | tojson(indent='x' * 9999) }}",
    "a slow codec": "{% set s %}{% for i in range(9999) %}{{ '%c' % (i + 19968) }}{% endfor %}{% endset %}"
    "{{ s.encode('punycode') }}",
    "looking from the end": "{{ ('a' * 99999).rfind('b' + 'a' * 49999) }}",
    "many digits": "{{ 1.5 | round(99999, 'ceil') }}",
    "a long date": "{{ strftime_now('%9999Y' * 9999) }}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_that_does_too_much_ends_soon(name: str) -> None:
    started = time.perf_counter()
    with pytest.raises(TemplateTooMuch, match="vendor"):
        ChatTemplate(ENDLESS[name], name="vendor's", limits=SMALL).render([])
    assert time.perf_counter() - started < 3


def test_namespaces_do_not_tell_what_they_hold() -> None:
    """It may be other namespaces, twice each, and so on."""
    doubled = "{% for i in range(99) %}{% set n.x=namespace(a=n.x, b=n.x) %}{% endfor %}"
    source = "{% set n=namespace(x=1) %}" + doubled + "{{ n }}{{ n.x ~ '' }}{{ '%s' % n }}"
    assert ChatTemplate(source, limits=SMALL).render([]) == "<Namespace>" * 3


def test_a_template_can_be_too_large() -> None:
    with pytest.raises(TemplateTooMuch, match="1,000,001 characters"):
        ChatTemplate("x" * 1_000_001)


def test_a_long_conversation_is_not_too_much() -> None:
    messages = [{"role": role, "content": "word " * 2000} for _ in range(150) for role in ("user", "assistant")]
    assert len(qwen3().render(messages)) > 3_000_000


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("a\n{% if %}", 2, "Expected an expression"),
        ("a\n\n{{ x | nope }}", 3, "nope"),
        ("a\n{{ nothing.at.all }}", 2, "'nothing' is undefined"),
        ("a\n{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}", 3, "unsupported operand"),
        ("{% include 'x' %}", 1, "no loader"),
        ("{{ ''.__class__.__mro__ }}", 1, "unsafe"),
        ("{{ messages.append(1) }}", 1, "unsafe"),
        ("{{ namespace(__class__=1) }}", 1, "__class__"),
        ("{{ '{'.format(1) }}", 1, "Single '{'"),
    ],
)
def test_a_broken_template_says_where(source: str, line: int, says: str) -> None:
    with pytest.raises(TemplateBroken, match=says) as caught:
        ChatTemplate(source, name="vendor's").render([])
    assert caught.value.line == line
    assert f"vendor's, line {line}" in str(caught.value)


def test_a_number_that_python_does_not_read() -> None:
    with pytest.raises(TemplateBroken, match=r"vendor's: .*4300 digits"):
        ChatTemplate("{{ " + "9" * 5000 + " }}", name="vendor's").render([])


def test_what_templates_write_is_written() -> None:
    """What is not too much."""
    source = (
        "{{ 'Name: {}, {b:>4}'.format('x', b=3) }}|{{ '%-4s%03d' % ('a', 7) }}|{{ 'aXa' | replace(old='X', new='b') }}|"
        "{{ {'a': [1, 2]} | tojson(indent=1) }}|{{ {'a': 1} | tojson(separators=(',', ':')) }}|"
        "{{ 'é'.encode('UTF-8').decode() }}|{{ {'a': 1}.items() | list }}|{{ 'a b'.rsplit(' ', 1)[-1] }}|"
        "{{ [{'a': {'b': 2}}] | map(attribute='a.b') | first }}|{{ [1, 2] | select('in', [2]) | list }}"
    )
    assert ChatTemplate(source).render([]).split("|") == [
        "Name: x,    3",
        "a   007",
        "aba",
        '{\n "a": [\n  1,\n  2\n ]\n}',
        '{"a":1}',
        "é",
        "[('a', 1)]",
        "b",
        "2",
        "[2]",
    ]


def test_a_template_refuses_in_its_own_words() -> None:
    with pytest.raises(TemplateRefused, match=r"^x{1000}…$"):
        ChatTemplate("{{ raise_exception('x' * 9999) }}").render([])
    with pytest.raises(TemplateRefused, match=r"^No <s> for you$"):
        ChatTemplate("{{ raise_exception('No <s> for you') }}").render([])
    source = "{% if messages[0].content == 'no' %}{{ raise_exception('No <|im_end|> for you') }}{% endif %}"
    with pytest.raises(TemplateRefused, match=r"^No <\|im_end\|> for you$"):
        PromptBuilder(ChatTemplate(source), qwen3_encoder()).build([{"role": "user", "content": "no"}])


def test_nothing_is_left_behind_by_a_template_that_failed() -> None:
    threads = threading.active_count()
    with pytest.raises(TemplateTooMuch):
        ChatTemplate(ENDLESS["loops in loops"], limits=SMALL).render([])
    assert threading.active_count() == threads
    assert ChatTemplate("{{ 'a' * 10 }}").render([]) == "a" * 10


# Messages

BAD_MESSAGES: list[tuple[Any, str]] = [
    ([], "messages is empty"),
    ("hi", "messages must be a list"),
    ([{"role": "user", "content": "a"}, "b"], r"messages\[1\] must be an object"),
    ([{"role": "robot", "content": "a"}], r"messages\[0\].role"),
    ([{"role": "user"}], r"messages\[0\] has no content"),
    ([{"role": "user", "content": 3}], r"messages\[0\].content must be a string"),
    ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\].content\[0\].text"),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], r"messages\[0\].content\[0\]: parts of type"),
    ([{"role": "user", "content": "a", "name": 3}], r"messages\[0\].name"),
    ([{"role": "assistant", "tool_calls": [{}]}], r"messages\[0\].tool_calls\[0\].function"),
    ([{"role": "assistant", "tool_calls": {}}], r"messages\[0\].tool_calls must be a list"),
    ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}], "arguments must be JSON"),
    ([{"role": "assistant", "content": "a", "tts_content": 3}], r"messages\[0\].tts_content"),
    ([{"role": "user", "content": "a", "eot": False}], r"messages\[0\]: only a message of the assistant"),
]


@pytest.mark.parametrize(("messages", "says"), BAD_MESSAGES, ids=[says for _, says in BAD_MESSAGES])
def test_what_is_wrong_with_messages_is_said(messages: Any, says: str) -> None:
    with pytest.raises(InvalidMessages, match=says):
        PromptBuilder(built_in("chatml")).build(messages)


def test_messages_are_brought_to_what_templates_know() -> None:
    builder = PromptBuilder(built_in("chatml"))
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tts_content": {"tts_text": "spoken", "tts_audio": "<audio_1>"}},
        {"role": "user", "content": "half \ud83d a pair"},
    ]
    assert builder.build(messages).text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        "<|im_start|>assistant\nspoken<|im_end|>\n<|im_start|>user\nhalf \ufffd a pair<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_parts_that_are_no_text_are_the_callers() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    builder = PromptBuilder(built_in("step-audio-2"), tokenizer, part_hook=lambda part, where: f"<audio_{part['n']}>")
    content = [{"type": "text", "text": "<audio_3>"}, {"type": "input_audio", "n": 4}]
    prompt = builder.build([{"role": "user", "content": content}])
    assert "human\n<audio_3><audio_4><|EOT|>" in prompt.text
    tokens = real_tokenizers.step_audio_2_tokens()
    assert tokens["<audio_4>"] in (prompt.ids or ())
    assert tokens["<audio_3>"] not in (prompt.ids or ())


# Tools in words


def test_tools_without_a_template_for_them(caplog: pytest.LogCaptureFixture) -> None:
    builder = PromptBuilder(built_in("chatml"), qwen3_encoder(), unbraid.find("hermes"))
    with caplog.at_level("WARNING"):
        prompt = builder.build(conversation("<tool_call> it"), tools=TOOLS)
        builder.build(conversation(), tools=TOOLS)
    assert len(prompt.notes) == 3
    assert len([record for record in caplog.records if "tools" in record.message]) == 1
    system, *turns = prompt.text.split("<|im_start|>")[1:]
    assert system.startswith("system\nBe brief.\n\n")
    assert json.dumps(TOOLS[0], ensure_ascii=False) in system
    assert '<tool_call>\n{"name": "function_name", "arguments": {"argument": "value"}}\n</tool_call>' in system
    call = turns[3].removeprefix("assistant\n").removesuffix("<|im_end|>\n")
    assert [each.arguments for each in unbraid.parse("hermes", call).tool_calls] == ['{"city": "Tōkyō"}']
    assert turns[4] == "user\n<tool_response>\nsunny all day\n</tool_response><|im_end|>\n"
    begin = builder.controls.ids["<tool_call>"]
    assert list(prompt.ids or ()).count(begin) == 2  # the example and the call, not what the user says


def test_tools_in_words_for_templates_without_a_system() -> None:
    prompt = PromptBuilder(vendor("google-gemma-2-2b-it")).build(conversation(), tools=TOOLS)
    assert prompt.text.startswith("<s><start_of_turn>user\nBe brief.\n\nYou can call functions")
    assert len(prompt.notes) == 4


def test_results_that_come_together_are_one_turn() -> None:
    calls = [{**CALL, "id": "a"}, {**CALL, "id": "b"}]
    results: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": id, "content": f"result {id}"} for id in "ab"]
    asked: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}]
    text = PromptBuilder(built_in("chatml")).build([*asked, *results]).text
    assert text.count("<|im_start|>user") == 2


def test_wrong_tools_are_refused() -> None:
    with pytest.raises(unbraid.InvalidTools, match=r"tools\[0\]"):
        PromptBuilder(built_in("chatml")).build(conversation(), tools=[{"function": {"name": ""}}])


# Step-Audio 2


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


def test_a_message_is_gone_on_with() -> None:
    messages = [*conversation()[:2], {"role": "assistant", "content": "Once <|EOT|> upon"}]
    prompt = step().build(messages, continue_final_message=True)
    assert prompt.text.endswith("<|BOT|>assistant\nOnce <|EOT|> upon")
    assert step().build([*messages[:2], {**messages[2], "eot": False}]) == prompt
    with pytest.raises(InvalidMessages, match="role is assistant"):
        step().build(conversation()[:2], continue_final_message=True)
    silent = PromptBuilder(ChatTemplate("{{ messages[0].content }}"))
    with pytest.raises(TemplateBroken, match="does not write the content of the last message"):
        silent.build(conversation()[1:3], continue_final_message=True)


# Where templates are


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_templates_in_a_folder(tmp_path: Path) -> None:
    config = {"chat_template": "{{ bos_token }}1", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}

    def render(name: str) -> str:
        return load_templates(tmp_path)[name].render([])

    write(tmp_path, {"tokenizer_config.json": config})
    assert render("default") == "<s>1"
    assert load_templates(tmp_path / "tokenizer_config.json")["default"].render([]) == "<s>1"
    named = [{"name": "default", "template": "2"}, {"name": "tool_use", "template": "{{ eos_token }}"}]
    write(tmp_path, {"tokenizer_config.json": {**config, "chat_template": named}})
    assert (render("default"), render("tool_use")) == ("2", "</s>")
    write(tmp_path, {"chat_template.json": {"chat_template": "3"}})
    assert render("default") == "3"
    write(tmp_path, {"chat_template.jinja": "4{{ bos_token }}", "additional_chat_templates/tool_use.jinja": "5"})
    assert (render("default"), render("tool_use")) == ("4<s>", "5")
    assert load_templates(tmp_path / "chat_template.jinja")["default"].render([]) == "4<s>"
    builder = PromptBuilder(load_templates(tmp_path))
    assert builder.build([{"role": "user", "content": "x"}]).text == "4<s>"
    assert builder.build([{"role": "user", "content": "x"}], tools=TOOLS).text == "5"


def test_templates_that_are_not_there(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "no chat template"), (tmp_path / "x", "no file or folder")):
        with pytest.raises(TemplateNotFound, match=says):
            load_templates(path)
    with pytest.raises(TemplateNotFound, match="not JSON"):
        load_templates(write(tmp_path, {"tokenizer_config.json": "{"}))
    with pytest.raises(TemplateNotFound, match="chatml"):
        built_in("nope")
    with pytest.raises(TemplateNotFound, match="text"):
        from_source(None)
