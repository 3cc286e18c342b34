"""Capabilities of templates: what the vendors' templates take, and that they show all of a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.templates import (
    ChatTemplate,
    InvalidMessages,
    PromptBuilder,
    supports_tools,
)

from ..support.said_words import Said, lost
from .prompt_cases import NEEDS, SAID, TOOLS, conversation, vendor, vendor_builder
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


ARGUMENTS = ('{"x": "*"}', '{"x": "*"}', '{"x": ["*"]}', "{}", '{"x": "*', '["*"]', '"*"', "3")
"""Whole ones, and some that are empty, cut off, or no object."""


class Draft:
    """A conversation that grows, and what it says."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.messages: list[dict[str, Any]] = []
        self.said: list[Said] = []
        self.count = 0

    def text(self, kind: str, id: str = "", around: str = "*") -> str:
        self.count += 1
        text = around.replace("*", f"wq{self.count}qw")
        self.said.append(Said(kind, text, id))
        return text

    def say(self, role: str) -> None:
        text = self.text(role)
        parts = [{"type": "text", "text": text}]
        self.messages.append({"role": role, "content": self.draw(st.sampled_from([text, parts]))})

    def step(self) -> None:
        """Calls: with text, with reasoning, several, with text after them, without a result."""
        draw = self.draw
        one: dict[str, Any] = {"role": "assistant", "content": self.text("assistant") if draw(st.booleans()) else None}
        if draw(st.booleans()):
            one["reasoning_content"] = "Hm."
        ids = [f"call{len(self.said)}n{at}" for at in range(draw(st.sampled_from([1, 1, 2, 3])))]
        texts = [self.text("call", id, draw(st.sampled_from(ARGUMENTS))) for id in ids]
        functions = [{"name": "get_weather", "arguments": text} for text in texts]
        calls = [{"id": id, "type": "function", "function": each} for id, each in zip(ids, functions, strict=True)]
        one["tool_calls"] = calls
        self.messages.append(one)
        if draw(st.integers(0, 9)) == 0:
            self.messages.append({"role": "assistant", "content": self.text("assistant")})
        for id in ids if draw(st.integers(0, 9)) else ():
            around = draw(st.sampled_from(["*", "*", ""]))
            self.messages.append({"role": "tool", "tool_call_id": id, "content": self.text("result", id, around)})


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Said]]:
    """Messages in any order that clients have: several of one role, the system anywhere, calls of all kinds."""
    draft = Draft(draw)
    for role in draw(st.sampled_from(["user", "system user", "system developer user", "developer user"])).split():
        draft.say(role)
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["step", "step", "step", "assistant", "user", "system", "developer"]))
        draft.step() if kind == "step" else draft.say(kind)
    if draft.messages[-1]["role"] == "assistant" or draw(st.booleans()):
        draft.say("user")
    return draft.messages, draft.said


@pytest.mark.parametrize("name", ALL_TEMPLATES)
@given(conversation=conversations(), tools=st.sampled_from([TOOLS, TOOLS, None]))
def test_every_template_says_all_of_any_conversation(
    name: str, conversation: tuple[list[dict[str, Any]], list[Said]], tools: list[dict[str, Any]] | None
) -> None:
    messages, said = conversation
    assert lost(said, vendor_builder(name).build(messages, tools=tools).text) == []


def test_a_message_that_cannot_be_said_is_named() -> None:
    one = "{% if messages | length > 1 %}{{ raise_exception('One message, please.') }}{% endif %}{{ messages }}"
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    with pytest.raises(InvalidMessages, match=r"messages\[1\] cannot be said .* One message, please"):
        PromptBuilder(ChatTemplate(one, name="/srv/one.jinja")).build(said)


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
