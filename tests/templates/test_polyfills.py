"""Tools, calls and system messages for templates that do not support them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import unbraid
from unbraid.templates import (
    PromptBuilder,
    built_in,
)

from .prompt_cases import CALL, TOOLS, conversation, qwen3_encoder, vendor


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
