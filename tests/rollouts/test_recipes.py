"""Recipes say what the template writes: for every template, whatever the messages say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.templates.control_tokens import mark_grammar

from ..support.examples import examples
from .cases import TEMPLATES, TOOLS, encoding_of, renderer

WORDS = st.sampled_from(
    [
        *("", " ", "\n", "a", " a ", "a\n", "é天😀", "0", "null", "[]", '{"a": "b"}', '"', "\\", "'"),
        *("<|im_end|>", "</think>", "<think>a</think>b", "<tool_response>", "<tool_response>a</tool_response>"),
        *("[/INST]", "<|user|>", "/no_think", "a" * 3_000),
    ]
)
SAID = st.one_of(WORDS, st.text(max_size=8), st.tuples(WORDS, WORDS).map("".join))


@st.composite
def turns(draw: st.DrawFn, made: unbraid.Renderer) -> tuple[unbraid.Message, list[dict[str, Any]]]:
    """A turn, and what comes after it."""
    count = draw(st.integers(0, 2)) if made.format.tools is not None else 0
    parts: list[unbraid.Part] = []
    if made.format.reasoning is not None and draw(st.booleans()):
        parts.append(unbraid.Text("reasoning", "Hm."))
    if not count or draw(st.booleans()):
        parts.append(unbraid.Text("content", "So."))
    parts += [unbraid.ToolCall("get_weather", '{"city": "Oslo"}')] * count
    said = draw(st.lists(SAID, min_size=count + 1, max_size=count + 1))
    results = [{"role": "tool", "content": each} for each in said[:count]]
    if not results or draw(st.booleans()):
        results.append({"role": "user", "content": said[-1]})
    return unbraid.Message(tuple(parts)), results


@pytest.mark.parametrize("name", TEMPLATES)
@examples(0.5)
@given(data=st.data())
def test_a_recipe_says_what_the_template_writes(name: str, data: st.DataObject) -> None:
    made, encoding = renderer(name, "bytes"), encoding_of(name, "bytes")
    prompt = made.render([{"role": "user", "content": "Weather?"}], TOOLS)
    for message, new in data.draw(st.lists(turns(made), min_size=3, max_size=6)):
        ids = encoding.encode(unbraid.render(mark_grammar(made.format, encoding.controls), message))
        turn = made.parse([*ids, made.stop_ids[0]], prompt)
        answers = [{**each, "tool_call_id": call.id} for each, call in zip(new, turn.settled.tool_calls, strict=False)]
        new[: len(answers)] = answers
        step = made._extension.step(prompt, turn, new, TOOLS, made._variables, made._checked(TOOLS))
        assert (step.bridge is None) == (step.refusal is not None)
        if step.bridge is not None:
            rendered = made._extension._bridges.encoded(step.bridge().text, made._stop_texts[made.stop_ids[0]])
            assert step.following == rendered
