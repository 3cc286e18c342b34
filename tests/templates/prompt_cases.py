"""A conversation, a few tools and a few builders, for the tests of prompts."""

from __future__ import annotations

from functools import cache
from typing import Any

import unbraid
from unbraid.templates import (
    ChatTemplate,
    Encoder,
    Prompt,
    PromptBuilder,
    encoder,
    from_source,
)

from ..support import real_tokenizers
from ..support.real_tokenizers import qwen3_config
from .prompt_models import template_source

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
def vendor_builder(name: str) -> PromptBuilder:
    return PromptBuilder(vendor(name))


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


NEEDS = {"fireworks-ai-llama-3-firefunction-v2": {"functions": "[]", "datetime": "today"}}
"""What a template has to be given that no other one wants."""


@cache
def qwen3_transformers() -> Any:
    import transformers  # takes seconds: not when tests are collected

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


def controls_in(builder: PromptBuilder, prompt: Prompt) -> list[int]:
    assert prompt.ids is not None
    controls = set(builder.controls.ids.values())
    return [id for id in prompt.ids if id in controls]


def spelled_out(builder: PromptBuilder, prompt: Prompt) -> str:
    assert builder.encoder is not None
    assert prompt.ids is not None
    return b"".join(builder.encoder.vocabulary.token_bytes(id) or b"" for id in prompt.ids).decode("utf-8", "replace")
