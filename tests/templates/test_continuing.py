"""A reply that was cut off goes on where it broke off: in the same strand, on every vendor's template."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from unbraid import Format, Parser, find
from unbraid.core.message import Text
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
