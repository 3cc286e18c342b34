"""A reply that was cut off goes on where it broke off: in the same strand, on every vendor's template."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from unbraid import Format, Message, Parser, ToolCall, UnbraidError, find, render
from unbraid.core.message import Part, Text
from unbraid.server.generation.begun_calls import ContinuedParser
from unbraid.templates import PromptBuilder

from ..formats.vendors.templates import TEMPLATES
from .prompt_cases import vendor
from .prompt_models import ALL_TEMPLATES

FORMATS = {template.file: template.formats[0] for template in TEMPLATES.values()}
FORMATS |= {"google-gemma-4-31B-it": "gemma-4", "MiniMax-M3": "minimax-m3"}
TURNS: dict[str, dict[str, Any]] = {
    "an answer": {"content": "The answer"},
    "an answer after reasoning": {"reasoning_content": "Hm.", "content": "The answer"},
    "reasoning": {"reasoning_content": "Hm, let me", "content": None},
}


@cache
def builder(name: str) -> tuple[PromptBuilder, Format]:
    format = find(FORMATS.get(name, "hermes"))
    return PromptBuilder(vendor(name), format=format), format


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_a_reply_goes_on_where_it_broke_off(name: str, turn: str) -> None:
    prompts, format = builder(name)
    reasons = format.reasoning is not None
    strand, last = ("reasoning", "Hm, let me") if turn == "reasoning" and reasons else ("content", "The answer")
    message = TURNS[turn if reasons else "an answer"]
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", **message}]
    prompt = prompts.build(messages, continue_final_message=True, add_generation_prompt=False)
    assert prompt.text.endswith(last)
    parser = Parser(format, prompt=prompt.text)
    parser.feed(" goes on.")
    parser.finish()
    assert parser.message.parts == (Text(strand, " goes on."),)  # type: ignore[arg-type]


TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"x": {}}}}}
    for name in ("alpha", "beta")
]


def cut_turn(format: Format, *, thinks: bool) -> tuple[dict[str, Any], str]:
    """A turn that broke off inside its second call, as a client has it, and as the model wrote it all."""
    calls = [ToolCall("alpha", '{"x": "a first"}'), ToolCall("beta", '{"x": "some and more"}')]
    parts: list[Part] = [Text("content", "I say."), *calls]
    if thinks:
        parts.insert(0, Text("reasoning", "Hm."))
    first, last = (call.to_openai() for call in calls)
    last["function"]["arguments"] = '{"x": "some an'
    thought = {"reasoning_content": "Hm."} if thinks else {}
    return {"role": "assistant", "content": "I say.", **thought, "tool_calls": [first, last]}, render(
        format, Message(tuple(parts))
    )


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_a_call_goes_on_where_it_broke_off(name: str) -> None:
    prompts, format = builder(name)
    for thinks in (False, True)[: 1 + (format.reasoning is not None)]:
        turn, written = cut_turn(format, thinks=thinks)
        messages = [{"role": "user", "content": "Hi."}, turn]
        prompt = prompts.build(messages, tools=TOOLS, continue_final_message=True, add_generation_prompt=False)
        begun, rest = prompt.begun_call, written[written.rindex("d more") :]
        assert begun is not None
        assert prompt.text.endswith(begun.text)
        assert begun.text.endswith("some an")
        parser = Parser(format, prompt=prompt.text.removesuffix(begun.text))
        parser.feed(begun.text + rest)
        parser.finish(end_of_turn=True)
        assert [(call.name, call.arguments) for call in parser.message.tool_calls] == [
            ("alpha", '{"x": "a first"}'),
            ("beta", '{"x": "some and more"}'),
        ]
        assert parser.message.content == "I say."


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_a_call_goes_on_before_its_name(name: str) -> None:
    """A client that begins a call for the model, in the model's own markup."""
    prompts, format = builder(name)
    for text in ("", "I say."):
        parts: list[Part] = [Text("content", text)] if text else []
        written = render(format, Message((*parts, ToolCall("alpha", '{"x": "some and more"}'))))
        if not written.startswith(text):  # the client does not write the markers of an answer
            written = text + "\n" + render(format, Message((ToolCall("alpha", '{"x": "some and more"}'),)))
        end = written.index("alpha") + len("alpha")
        for cut in (end - 5, end - 2):
            prefill, rest = written[:cut], written[cut:]
            messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": prefill}]
            prompt = prompts.build(messages, tools=TOOLS, continue_final_message=True, add_generation_prompt=False)
            assert prompt.text.endswith(prefill[-4:])
            begun = prompt.begun_call
            if begun is None:  # the template has written all of it
                assert prefill == ">>>"
                parser = Parser(format, prompt=prompt.text)
            else:
                assert prompt.text.endswith(begun.text)
                parser = ContinuedParser(begun, format, prompt=prompt.text.removesuffix(begun.text))
            for character in rest:
                parser.feed(character)
            parser.finish(end_of_turn=True)
            assert [(call.name, call.arguments) for call in parser.message.tool_calls] == [
                ("alpha", '{"x": "some and more"}')
            ]
            assert not parser.message.content


def test_a_call_that_cannot_go_on_is_refused() -> None:
    prompts, format = builder("Qwen-Qwen3-0.6B")
    turn, _ = cut_turn(format, thinks=False)
    question = {"role": "user", "content": "Hi."}
    with pytest.raises(UnbraidError, match="nothing comes before it"):
        prompts.build([turn], tools=TOOLS, continue_final_message=True)
    turn["tool_calls"][-1]["function"]["arguments"] = "so much for JSON"
    with pytest.raises(UnbraidError, match="no beginning of JSON"):
        prompts.build([question, turn], tools=TOOLS, continue_final_message=True)
    without = PromptBuilder(vendor("Qwen-Qwen3-0.6B"), format=Format("plain"))
    with pytest.raises(UnbraidError, match="the model's format has none"):
        without.build([question, turn], tools=TOOLS, continue_final_message=True)
