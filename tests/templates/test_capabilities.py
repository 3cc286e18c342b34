"""Capabilities of templates: what the vendors' templates take, and that they show all of a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.templates import (
    ChatTemplate,
    PromptBuilder,
    supports_tools,
)

from .prompt_cases import CALL, NEEDS, SAID, TOOLS, conversation, vendor, vendor_builder
from .prompt_models import ALL_TEMPLATES

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
}
"""Templates to which calls are given in words."""


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_every_template_shows_all_of_a_conversation(name: str) -> None:
    prompt = vendor_builder(name).build(conversation(), tools=TOOLS, template_kwargs=NEEDS.get(name))
    assert [word for word in SAID if word not in prompt.text] == []
    assert ("the content" in " ".join(prompt.notes)) == (name in IN_WORDS)
    for ugly in ("{'city': 'T", '\\"city', "call_abc" if "istral" in name else "\0", "None"):
        assert ugly not in prompt.text


FOLLOWS = {
    "system": ("system", "user", "assistant", "call"),
    "user": ("system", "user", "assistant", "call"),
    # Some templates leave out what stands beside a call, so no call comes right after a text.
    "assistant": ("system", "user", "assistant"),
    "call": ("system", "user", "assistant", "call"),
}


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages in any order that clients have: several of one role, and of the system's anywhere."""
    turns = draw(st.sampled_from([["user"], ["system", "user"], ["system", "system", "user"]]))
    for _ in range(draw(st.integers(0, 6))):
        turns.append(draw(st.sampled_from(FOLLOWS[turns[-1]])))
    messages: list[dict[str, Any]] = []
    for turn in [*turns, "user"]:
        text = f"Qz{len(messages)}."
        if turn == "call":
            messages.append({"role": "assistant", "content": "", "tool_calls": [CALL]})
            messages.append({"role": "tool", "tool_call_id": CALL["id"], "content": text})
        else:
            messages.append({"role": turn, "content": text})
    return messages


@pytest.mark.parametrize("name", ALL_TEMPLATES)
@given(messages=conversations())
def test_every_template_shows_messages_in_any_order(name: str, messages: list[dict[str, Any]]) -> None:
    text = vendor_builder(name).build(messages, tools=TOOLS, template_kwargs=NEEDS.get(name)).text
    said = [message["content"] for message in messages if message["content"]]
    assert [word for word in said if word not in text] == []


def test_there_are_templates() -> None:
    if not ALL_TEMPLATES:
        pytest.skip("no templates in the folder of shared test data")
    assert len(ALL_TEMPLATES) >= 40


def test_what_templates_want_is_found_out() -> None:
    assert vendor_builder("mistralai-Mistral-Nemo-Instruct-2407").capabilities().short_call_ids
    assert vendor_builder("deepseek-ai-DeepSeek-R1-Distill-Llama-8B").capabilities().arguments == "text"
    assert vendor_builder("deepseek-ai-DeepSeek-R1-Distill-Llama-8B").capabilities().empty_content is None
    assert not vendor_builder("google-gemma-2-2b-it").capabilities().system_role
    assert vendor_builder("openai-gpt-oss-120b").capabilities().developer_role
    assert supports_tools(vendor("Qwen-Qwen3-0.6B"))
    assert not supports_tools(vendor("microsoft-Phi-3.5-mini-instruct"))
    parts = ChatTemplate("{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}")
    assert PromptBuilder(parts).capabilities().content_parts
    assert PromptBuilder(parts).build([{"role": "user", "content": "Hi"}]).text == "Hi"
