"""Each call of a turn by itself: its status, its tokens, and what is wrong by token. Over every format that has calls,
with Qwen's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.core import diagnostics
from unbraid.rollouts import Turn

from ..support.examples import examples
from ..support.real_tokenizers import encode, qwen3_huggingface
from ..support.strategies import hostile
from ..templates.prompt_cases import TOOLS, qwen3

FORMATS = sorted(
    (each for each in unbraid.all_formats() if each.tools is not None and each.speech is None),
    key=lambda each: each.name,
)
every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda each: each.name)
PARIS = unbraid.ToolCall("get_weather", '{"city": "Paris"}')
OSLO = unbraid.ToolCall("get_weather", '{"city": "Oslo"}')
STRANGE = unbraid.ToolCall("dig_a_hole", '{"city": "Rome"}')


def turn_of(format: unbraid.Format, ids: Sequence[int], sizes: Sequence[int] = (), **options: Any) -> Turn:
    """Ids taken apart, all at once or so many at a time."""
    parser = unbraid.Parser(
        format, tokenizer=qwen3_huggingface(), tools=TOOLS, label_tokens=True, prompt="", seed=1, **options
    )
    at, turn = 0, 0
    while at < len(ids):
        size = sizes[turn % len(sizes)] if sizes else len(ids)
        parser.feed_tokens(ids[at : at + size])
        at, turn = at + size, turn + 1
    parser.finish()
    return Turn(parser.message, parser.tally, "length")


def text_of(ids: Sequence[int]) -> str:
    return str(qwen3_huggingface().decode(list(ids), skip_special_tokens=False))


@cache
def written(format: unbraid.Format, *parts: Any) -> list[int]:
    return list(encode(qwen3_huggingface(), unbraid.render(format, unbraid.Message(parts))))


def in_bounds(turn: Turn, count: int) -> bool:
    begins = [each.begin for each in turn.calls]
    return begins == sorted(begins) and all(0 <= each.begin <= each.end <= count for each in turn.calls)


@every_format
def test_a_span_is_the_text_of_its_call(format: unbraid.Format) -> None:
    ids = written(format, PARIS, STRANGE, OSLO)
    turn = turn_of(format, ids)
    assert [(each.status, each.name, each.index) for each in turn.calls] == [
        ("ok", "get_weather", 0),
        ("unknown", "dig_a_hole", None),
        ("ok", "get_weather", 1),
    ]
    texts = [text_of(ids[each.begin : each.end]) for each in turn.calls]
    for text, own in zip(texts, (PARIS, STRANGE, OSLO), strict=True):
        assert own.name in text
        assert [city in text for city in ("Paris", "Rome", "Oslo")] == [
            city in own.arguments for city in ("Paris", "Rome", "Oslo")
        ]
    assert [each.kind for each in turn.diagnostics] == [diagnostics.UNKNOWN_TOOL]
    at = turn.diagnostics[0].at
    assert turn.calls[1].begin < at <= turn.calls[1].end
    # Calls to tools that nobody knows may also be passed on. They are what they are.
    passed_on = turn_of(format, ids, unknown_tools="emit").calls
    assert [(each.status, each.begin, each.end) for each in passed_on] == [
        (each.status, each.begin, each.end) for each in turn.calls
    ]
    assert [each.index for each in passed_on] == [0, 1, 2]


@every_format
def test_what_is_cut_off(format: unbraid.Format) -> None:
    """Only the last call is, and what was complete stays so."""
    ids = written(format, PARIS, OSLO)
    whole = turn_of(format, ids).calls
    for end in range(whole[0].begin + 2, len(ids), 3):
        turn = turn_of(format, ids[:end])
        assert in_bounds(turn, end)
        assert {each.status for each in turn.calls[:-1]} <= {"ok"}
        for each in turn.calls:
            assert each.index is None or (each.status == "ok") == turn.message.tool_calls[each.index].complete


@every_format
@examples(0.5)
@given(data=st.data())
def test_whatever_a_model_writes(format: unbraid.Format, data: st.DataObject) -> None:
    ids = list(encode(qwen3_huggingface(), data.draw(hostile(format))))
    turn = turn_of(format, ids)
    assert in_bounds(turn, len(ids))
    assert [each.index for each in turn.calls if each.index is not None] == list(range(len(turn.message.tool_calls)))
    for each in turn.calls:
        assert each.index is None or (each.status == "ok") == turn.message.tool_calls[each.index].complete
    assert all(0 <= each.at <= len(ids) for each in turn.diagnostics)
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    again = turn_of(format, ids, sizes)
    assert (again.calls, again.diagnostics) == (turn.calls, turn.diagnostics)
    assert again.reasoning_closed == turn.reasoning_closed


def in_qwen3(text: str) -> tuple[Turn, list[int]]:
    renderer = unbraid.renderer(qwen3(), qwen3_huggingface(), "qwen3")
    prompt = renderer.render([{"role": "user", "content": "How is the weather?"}], TOOLS)
    ids = list(encode(qwen3_huggingface(), text))
    return renderer.parse(ids, prompt), ids


def call(arguments: str, name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (call('{"city": Oslo}'), "invalid_json"),
        (call("[3]"), "invalid_json"),
        ("<tool_call>\nget_weather(Oslo)\n</tool_call>", "malformed"),
        ("<tool_call>\n</tool_call>", "malformed"),
        (call("{}", "dig"), "unknown"),
    ],
)
def test_one_of_three_is_broken(broken: str, status: str) -> None:
    turn, ids = in_qwen3("\n".join([call('{"city": "Paris"}'), broken, call('{"city": "Rome"}')]) + "<|im_end|>")
    assert [each.status for each in turn.calls] == ["ok", status, "ok"]
    assert text_of(ids[turn.calls[1].begin : turn.calls[1].end]) == broken


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("Sunny.<|im_end|>", None),
        ("<think>\nHm.\n</think>\n\nSunny.<|im_end|>", True),
        ("<think>\nHm.", False),
        ("<think>\nHm.<|im_end|>", False),
        ("<think>\n", False),
        ("<think>\nHm.\n" + call('{"city": "Paris"}'), False),
    ],
)
def test_whether_reasoning_came_to_its_end(text: str, closed: bool | None) -> None:
    assert in_qwen3(text)[0].reasoning_closed is closed
