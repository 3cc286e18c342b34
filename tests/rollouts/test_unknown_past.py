"""Prompts of ids alone: what was seen in one is gone on from, and comes to what is seen in the whole."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.rollouts.past_words import Inspection, SearchedTexts

from ..support.examples import examples
from ..support.real_tokenizers import qwen3_huggingface
from ..templates.prompt_cases import qwen3
from . import cases
from .cases import TOOLS

USER = {"role": "user", "content": "How is the weather?"}


@cache
def made() -> unbraid.Renderer:
    return unbraid.renderer(qwen3(), qwen3_huggingface(), "qwen3")


@cache
def other() -> unbraid.Renderer:
    return unbraid.renderer(qwen3(), qwen3_huggingface(), "qwen3")


def ids_of(text: str) -> list[int]:
    return list(qwen3_huggingface().encode(text, add_special_tokens=False).ids)


def seen(texts: tuple[bytes, ...], text: bytes) -> Inspection:
    return SearchedTexts(b"", (), texts, ()).inspected(text)


@examples(8)
@given(st.lists(st.text("ab<", max_size=6), min_size=1), st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1))
def test_what_is_counted_in_parts_is_counted_in_the_whole(parts: list[str], texts: list[str]) -> None:
    looked_for = tuple(text.encode() for text in texts)
    first, *rest = (part.encode() for part in parts)
    inspection: Inspection | None = seen(looked_for, first)
    whole = seen(looked_for, "".join(parts).encode())
    for part in rest:
        inspection = inspection and inspection.followed_by(part)
    if inspection is None:
        assert not whole.setting.adds_up
    else:
        assert (inspection.counts, inspection.tail[-8:]) == (whole.counts, whole.tail[-8:])


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'


@pytest.mark.parametrize("word", ["18 degrees", "</think>", "<tool_response>"])
def test_who_saw_the_ids_before_says_what_another_says(word: str) -> None:
    asked: list[tuple[Any, list[int], Any]] = []
    answers = []
    prompt: Any = made().render([USER], TOOLS).ids
    for said in (f"{word} it is.\n{CALL}", CALL, "<think>\nHm.\n</think>\n\n" + CALL):
        sampled = ids_of(said)
        call = made().parse(sampled, prompt, tools=TOOLS).message.tool_calls[0].id
        asked.append((prompt, sampled, {"role": "tool", "tool_call_id": call, "content": word}))
        answers.append(answer(made(), *asked[-1]))
        prompt = answers[-1][0] or (*prompt, *sampled)
    # The longest prompt comes first, so nothing that it begins with was seen.
    again = [answer(other(), list(prompt), sampled, result) for prompt, sampled, result in reversed(asked)]
    assert again[::-1] == answers


def answer(renderer: unbraid.Renderer, prompt: Any, sampled: list[int], result: Any) -> tuple[Any, str | None]:
    more = renderer.extend(prompt, sampled, [result], tools=TOOLS, past="sampled")
    return more and more.ids, renderer.obstacle(prompt, sampled, [result], tools=TOOLS)


def test_other_tools_are_noticed_whenever_they_come() -> None:
    renderer, sampled = made(), ids_of("Sunny.<|im_end|>")
    prompt = renderer.render([USER], TOOLS).ids
    others = [{"type": "function", "function": {"name": "dig", "parameters": {"type": "object", "properties": {}}}}]
    for _ in range(2):
        assert renderer.obstacle(prompt, sampled, [USER], tools=TOOLS) is None
        assert "does not show these tools" in str(renderer.obstacle(prompt, sampled, [USER], tools=others))


def test_whoever_asks_may_go_on_with_the_same_list() -> None:
    renderer, messages, sampled = made(), [USER], ids_of("Sunny.<|im_end|>")
    prompt = renderer.render(messages)
    messages += [{"role": "assistant", "content": "Sunny."}, USER]
    more = renderer.extend(prompt, sampled, [USER])
    assert more is not None
    assert more.given is not None
    assert [each["role"] for each in more.given] == ["user", "assistant", "user"]
    assert max(more.messages) == 2


def test_the_reason_is_that_of_the_setting() -> None:
    """Gemma 4's template ends the turn before a call; going on from what was sampled, it matters which messages the
    builder has put together."""
    name = "google-gemma-4-31B-it"
    gemma, encoding = cases.renderer(name, "bytes"), cases.encoding_of(name, "bytes")
    sampled = encoding.encode(
        encoding.controls.mark("Let me look.<|tool_call>call:get_weather{}<tool_call|><|tool_response>")
    )
    prompt = gemma.render([USER], TOOLS)
    call = gemma.parse(sampled, prompt).message.tool_calls[0].id
    new = [{"role": "tool", "tool_call_id": call, "content": "18 degrees"}]
    assert "wrote '<|channel>thought" in str(gemma.obstacle(prompt.ids, sampled, new, tools=TOOLS))
    assert "not as ids" in str(gemma.obstacle(prompt.ids, sampled, new, tools=TOOLS, past="sampled"))
    assert gemma.obstacle(prompt, sampled, new, past="sampled") is None
    assert gemma.obstacle(prompt, sampled, new, past="anew") is None
