"""Law 13: nothing that was sampled changes, for every template, whatever was sampled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.rollouts import Rendering, Turn
from unbraid.templates import TemplateError

from ..support.examples import LONG, examples
from .cases import KINDS, TEMPLATES, TOOLS, encoding_of, renderer, sampled_ids

SCALE = 6 if LONG else 0.5
WORDS = st.sampled_from(["And now?", " ", "<|im_end|>", "a\nb", "é天😀", "</think>", "[/INST]"])


@st.composite
def following(draw: st.DrawFn, turn: Turn) -> list[dict[str, Any]]:
    """What may come after a turn: the results of its calls, in any order, or words of the user."""
    calls = turn.message.settled().tool_calls
    if not calls or not draw(st.integers(0, 5)):
        return [{"role": "user", "content": draw(WORDS)}]
    ordered = draw(st.permutations(calls))
    return [{"role": "tool", "tool_call_id": call.id, "content": draw(WORDS)} for call in ordered]


def first_prompt(made: unbraid.Renderer, messages: list[dict[str, Any]], tools: bool) -> Rendering:
    try:
        return made.render(messages, TOOLS if tools else None)
    except TemplateError:  # there are templates for tools alone
        return made.render(messages, TOOLS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
@examples(SCALE)
@given(data=st.data())
def test_nothing_that_was_sampled_changes(name: str, kind: str, data: st.DataObject) -> None:
    made, encoding = renderer(name, kind), encoding_of(name, kind)
    first: list[dict[str, Any]] = [{"role": "user", "content": data.draw(WORDS)}]
    if data.draw(st.booleans()):
        first.insert(0, {"role": "system", "content": "Be brief."})
    prompt = first_prompt(made, first, data.draw(st.booleans()))
    turns: list[tuple[Rendering, list[int], Turn]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        ids = data.draw(sampled_ids(made, encoding))
        turn = made.parse(ids, prompt)
        new = data.draw(following(turn))
        by_template = made.extend(prompt, ids, new)
        reason = made.obstacle(prompt, ids, new)
        assert (by_template is None) == (reason is not None)
        more = made.extend(prompt, ids, new, past="sampled")
        if more is None:
            assert reason
            break
        assert more.ids[: len(prompt) + len(ids)] == (*prompt.ids, *ids)
        assert by_template is None or by_template.ids == more.ids
        turns.append((prompt, ids, turn))
        prompt = more
    whole, at = prompt, 0
    assert len(whole.sampled) == len(whole.messages) == len(whole.content) == len(whole)
    expected: list[bool] = []
    for before, ids, turn in turns:
        again = made.parse(
            whole.ids[len(before) : len(before) + len(ids)], whole.ids[: len(before)], tools=before.tools
        )
        assert again == turn
        assert len(turn.strands) == len(turn.markup) == len(ids)
        expected += [False] * (len(before) - at) + [True] * len(ids)
        at = len(before) + len(ids)
    assert list(whole.sampled) == expected + [False] * (len(whole) - at)
    if turns:
        sample = made.training_sample([(before, ids) for before, ids, _ in turns])
        assert list(sample.loss_mask) == [int(each) for each in expected]
        assert sample.ids == whole.ids[: len(sample.ids)]
        assert all(bool(weight) == bool(mask) for weight, mask in zip(sample.weights, sample.loss_mask, strict=True))
