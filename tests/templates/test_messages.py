"""Messages as clients send them: what is wrong with them, and what becomes of them in a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid import InvalidTools
from unbraid.templates import (
    InvalidMessages,
    PromptBuilder,
    built_in,
)

from ..support import real_tokenizers

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
    ([{"role": "assistant", "tool_calls": [{"type": "custom"}]}], r"tool_calls\[0\].custom must be an object"),
    ([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"input": ""}}]}], r"\[0\].custom.name"),
    ([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f"}}]}], r"\[0\].custom.input"),
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


def test_custom_tools_and_their_calls_are_functions_in_a_prompt() -> None:
    builder = PromptBuilder(built_in("chatml"))
    grammar = {"type": "grammar", "syntax": "regex", "definition": "a+<b>"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "apply_patch", "input": 'a\n"ä"'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    text = builder.build(messages, tools=[{"type": "custom", "name": "apply_patch", "format": grammar}]).text
    assert r"regular expression:\na+<b>" in text
    assert '"required": ["input"]' in text
    assert r'{"input": "a\n\"ä\""}' in text
    with pytest.raises(InvalidTools, match=r"tools\[0\].format"):
        builder.build(messages, tools=[{"type": "custom", "name": "apply_patch", "format": 3}])


def test_parts_that_are_no_text_are_the_callers() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    builder = PromptBuilder(built_in("step-audio-2"), tokenizer, part_hook=lambda part, where: f"<audio_{part['n']}>")
    content = [{"type": "text", "text": "<audio_3>"}, {"type": "input_audio", "n": 4}]
    prompt = builder.build([{"role": "user", "content": content}])
    assert "human\n<audio_3><audio_4><|EOT|>" in prompt.text
    tokens = real_tokenizers.step_audio_2_tokens()
    assert tokens["<audio_4>"] in (prompt.ids or ())
    assert tokens["<audio_3>"] not in (prompt.ids or ())
