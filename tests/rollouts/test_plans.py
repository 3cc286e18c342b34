"""Going on from ids by a plan comes to what the long way comes to, for every template; and words are seen by ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from unittest import mock

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

import unbraid
from unbraid.rollouts.extension import Extension
from unbraid.rollouts.past_words import WordTokens
from unbraid.templates import TemplateError

from ..support.examples import LONG, examples
from ..support.real_tokenizers import encode, qwen3_huggingface
from .cases import KINDS, TEMPLATES, TOOLS, encoding_of, renderer
from .test_laws import SWITCHES, WORDS, histories, turns

SCALE = 6 if LONG else 0.5


def both_ways(made: unbraid.Renderer, prompt: Sequence[int], sampled: list[int], *args: Any, **options: Any) -> Any:
    """What `extend` returns, by a plan where there is one; it is the same without."""
    short = made.extend(prompt, sampled, *args, **options)
    with mock.patch.object(Extension, "_planned", return_value=None):
        long = made.extend(prompt, sampled, *args, **options)
    assert (short is None) == (long is None)
    if short is not None:
        assert short.ids == long.ids  # type: ignore[union-attr]
        assert short.masks == long.masks  # type: ignore[union-attr]
        assert short.departure == long.departure  # type: ignore[union-attr]
    return short


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
@examples(SCALE)
@given(data=st.data())
def test_the_short_way_is_the_long_way(name: str, kind: str, data: st.DataObject) -> None:
    made, encoding, numbers = renderer(name, kind), encoding_of(name, kind), count(10)
    tools = TOOLS if made.format.tools is not None or data.draw(st.booleans()) else None
    said = st.one_of(st.just("18 degrees"), WORDS, st.sampled_from(SWITCHES), st.sampled_from(made.format.ends))
    for _ in range(2):  # the first time makes a plan, where there can be one
        try:
            prompt = made.render(data.draw(histories(made, numbers)), tools).ids
        except TemplateError:
            reject()
        sampled = data.draw(turns(made, encoding, numbers))
        turn = made.parse(sampled, prompt, tools=tools)
        new: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": call.id, "content": data.draw(said)} for call in turn.settled.tool_calls
        ]
        if not new or not data.draw(st.integers(0, 3)):
            new.append({"role": "user", "content": data.draw(said)})
        for past in ("template", "sampled"):
            for asked in (new, [{**each, "content": f"{each['content']}!"} for each in new]):
                more = both_ways(made, prompt, sampled, asked, tools=tools, past=past)
                event("refused" if more is None else "goes on")


CALL = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'


def ways_gone(made: unbraid.Renderer, question: str, city: str, result: str) -> int:
    """How often the long way was gone, for one extension."""
    prompt = made.render([{"role": "user", "content": question}], TOOLS).ids
    sampled = [*encode(qwen3_huggingface(), CALL % city + "<|im_end|>")]
    [call] = made.parse(sampled, prompt, tools=TOOLS).message.tool_calls
    new = [{"role": "tool", "tool_call_id": call.id, "content": result}]
    with mock.patch.object(Extension, "_worked_out", autospec=True, side_effect=Extension._worked_out) as long:
        made.extend(prompt, sampled, new, tools=TOOLS)
    both_ways(made, prompt, sampled, new, tools=TOOLS)
    return long.call_count


def test_a_plan_is_gone_by_where_all_is_plain() -> None:
    from ..templates.prompt_cases import qwen3

    made = unbraid.renderer(qwen3(), qwen3_huggingface(), "qwen3")
    assert ways_gone(made, "How is it?", "Oslo", "18 degrees") == 1
    assert ways_gone(made, "And elsewhere?", "Rome", "20 degrees") == 0
    for question, city, result in [
        ("And elsewhere?", "<Rome>", "18 degrees"),  # it may be markup
        ("And elsewhere?", "Rome", "a </think> b"),  # the template looks for it
        ("And elsewhere?", "Rome", ""),
    ]:
        assert ways_gone(made, question, city, result) == 1, (question, city, result)
    assert ways_gone(made, "And elsewhere?", "Bern", "<|im_end|>") == 0, "what is only spelled is encoded as text"


@examples(8)
@given(data=st.data())
def test_a_word_that_is_there_is_possible(data: st.DataObject) -> None:
    """However it is cut into tokens, and whatever stands around it."""
    encoder = encoding_of("", "bpe")
    word = data.draw(st.sampled_from(["</think>", "<tool_response>", "/no_think", "aa", "é天", "<|im_start|>"]))
    text = data.draw(st.text("<>/_ aé天t\n", max_size=6)) + word + data.draw(st.text("<>/_ aé天t\n", max_size=6))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if begin < end]
    ids = [id for piece in pieces for id in encoder.encode(piece)]
    words = searched(word.encode())
    assert words.possible(words.seen(ids)) == [True]


def test_a_word_that_is_not_there_is_seen_not_to_be() -> None:
    encoder = encoding_of("", "bpe")
    words = searched(b"</think>", b"/no_think")
    ids = encoder.encode("The weather in Paris is mild today: I think so, and no_one </b> knows <why>.")
    assert words.possible(words.seen(ids)) == [False, False]
    ids = encoder.encode("It is /no_think that switches.")
    assert words.possible(words.seen(ids)) == [False, True]


_tokens: list[WordTokens] = []


def searched(*words: bytes) -> Any:
    """All tests share what was read of the vocabulary."""
    if not _tokens:
        vocabulary = encoding_of("", "bpe").vocabulary
        _tokens.append(WordTokens(vocabulary))  # type: ignore[arg-type]  # it can list its tokens
    return _tokens[0].searched(words)
