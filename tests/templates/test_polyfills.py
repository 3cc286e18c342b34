"""Tools, calls and system messages for templates that do not support them."""

from __future__ import annotations

import json
from types import MappingProxyType
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


def texts_of(name: str, *messages: tuple[str, str]) -> str:
    """The prompt of a vendor's template for messages of these roles."""
    return PromptBuilder(vendor(name)).build([{"role": role, "content": text} for role, text in messages]).text


def test_a_system_message_after_the_first_is_text_of_the_user_where_it_stands() -> None:
    said = (
        ("system", "A."),
        ("developer", "B."),
        ("user", "C."),
        ("system", "D."),
        ("assistant", "E."),
        ("user", "F."),
    )
    text = texts_of("Mistral-Small-3.2-24B-Instruct-2506", *said)
    assert "[SYSTEM_PROMPT]A.\n\nB.[/SYSTEM_PROMPT][INST]C.\n\nD.[/INST]E." in text
    assert "<start_of_turn>user\nA.\n\nB.\n\nC.\n\nD.<end_of_turn>" in texts_of("google-gemma-2-2b-it", *said)
    last = texts_of("openai-gpt-oss-120b", *said, ("assistant", "G."), ("system", "H."))
    assert "<|start|>user<|message|>H.<|end|>" in last
    assert "<|im_start|>system\nD.<|im_end|>" in texts_of("Qwen-Qwen3-0.6B", *said), "this template takes it"


def test_messages_of_one_role_are_joined_where_roles_must_alternate() -> None:
    said = (("user", "A."), ("user", "B."), ("assistant", "C."), ("assistant", "D."), ("user", "E."))
    assert "[INST]A.\n\nB.[/INST]C.\n\nD.</s>[INST]E.[/INST]" in texts_of("Mistral-Small-3.2-24B-Instruct-2506", *said)
    assert texts_of("Qwen-Qwen3-0.6B", *said).count("<|im_start|>user") == 3


def test_what_the_user_says_after_a_result_stays_where_the_template_wants_an_answer_first() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "A."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "B."},
        {"role": "user", "content": "C."},
    ]
    text = PromptBuilder(vendor("Mistral-Small-3.2-24B-Instruct-2506")).build(messages, tools=TOOLS).text
    assert "B.\n\nC.[/TOOL_RESULTS]" in text


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({"function": {"name": ""}}, "tools[0].function.name"),
        ({"name": ""}, "tools[0].name"),
        ({"name": "f", "strict": 3}, "tools[0].strict"),
        (MappingProxyType({"name": ""}), "tools[0].name"),
        (5, "tools[0]"),
    ],
)
def test_wrong_tools_are_refused_by_the_place_where_they_were_sent(tool: Any, field: str) -> None:
    with pytest.raises(unbraid.InvalidTools) as refusal:
        PromptBuilder(built_in("chatml")).build(conversation(), tools=[tool])
    assert refusal.value.field == field


def test_a_tool_may_be_any_mapping() -> None:
    tool = MappingProxyType({"name": "weather", "parameters": {"type": "object"}})
    assert '"name": "weather"' in PromptBuilder(built_in("chatml")).build(conversation(), tools=[tool]).text
