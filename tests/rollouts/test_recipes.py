"""Recipes say what the template writes: for every template, whatever the messages say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.rollouts.bridges import NoBridge
from unbraid.rollouts.shapes import TOOLS, USER, Shape

from ..support.examples import examples
from .cases import TEMPLATES, renderer

WORDS = st.sampled_from(
    [
        *("", " ", "\n", "a", " a ", "a\n", "é天😀", "0", "null", "[]", '{"a": "b"}', '"', "\\", "'"),
        *("<|im_end|>", "</think>", "<think>a</think>b", "<tool_response>", "<tool_response>a</tool_response>"),
        *("[/INST]", "<|user|>", "/no_think", "a" * 3_000),
    ]
)
SAID = st.one_of(WORDS, st.text(max_size=8), st.tuples(WORDS, WORDS).map("".join))
IDS = st.sampled_from(["call_0", "call_1", "abcdefghi", "functions.get_weather:0", "functions.get_weather:1", "0"])


@st.composite
def turns(draw: st.DrawFn, tools: bool) -> tuple[Shape, list[dict[str, Any]]]:
    """A turn, and what comes after it."""
    count = draw(st.integers(0, 2)) if tools else 0
    ids = draw(st.lists(IDS, min_size=count, max_size=count, unique=True))
    shape = Shape(draw(st.booleans()), draw(st.booleans()), tuple((id, "get_weather") for id in ids))
    results = [{"role": "tool", "tool_call_id": id, "content": draw(SAID)} for id in draw(st.permutations(ids))]
    if not results or draw(st.booleans()):
        results.append({"role": "user", "content": draw(SAID)})
    return shape, results


@pytest.mark.parametrize("name", TEMPLATES)
@examples(0.5)
@given(data=st.data())
def test_a_recipe_says_what_the_template_writes(name: str, data: st.DataObject) -> None:
    made = renderer(name, "bytes")
    bridges, recipes = made._extension._bridges, made._extension._recipes
    calls = made.format.tools is not None
    for shape, new in data.draw(st.lists(turns(calls), min_size=3, max_size=6)):
        stopped_at = data.draw(st.sampled_from([None, *sorted(made._stop_texts.values())]))
        request: dict[str, Any] = {
            "stopped_at": stopped_at,
            "tools": TOOLS if calls else None,
            "variables": made._variables,
        }
        text = recipes.text(shape, made.builder.read(new), **request)
        try:
            expected = bridges.between([USER], shape.message(), new, **request).text
        except NoBridge:
            assert text is None
        else:
            assert text in (None, expected)
