"""The laws over formats that are composed of parts: the reasoning of any format with the tools of any other.

Each pair reads texts that are made of the markers, the calls and the broken bits of both, a few for each pair and the
same ones in every run. Pairs that make the same grammar are tried once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

import unbraid
from unbraid import Event, Format, Message, Text, ToolCall, ToolCallArguments, ToolCallEnd, ToolCallStart
from unbraid.core.grammar import CallIds

from ..support import strategies
from ..support.examples import LONG

_T = TypeVar("_T")


def grammar_of(format: Format) -> Format:
    """A composed format without all that does not change how text is read."""
    return replace(format, name="", ends=(), versions=(), call_ids=CallIds())


def different(formats: Mapping[_T, Format]) -> dict[_T, Format]:
    """Those that do not say the same as one before: many families share their reasoning, and some their calls."""
    first: dict[Format, _T] = {}
    for key, format in formats.items():
        first.setdefault(grammar_of(format), key)
    return {key: formats[key] for key in first.values()}


REASONING = [format.name for format in strategies.FORMATS if format.reasoning is not None]
TOOLS = [format.name for format in strategies.FORMATS if format.tools is not None]
PAIRS = different(
    {
        (reasoning, tools): unbraid.compose(reasoning=reasoning, tools=tools)
        for reasoning in REASONING
        for tools in TOOLS
    }
)
ALONE = different({reasoning: unbraid.compose(reasoning=reasoning) for reasoning in REASONING})
CALL = ToolCall("f", '{"a": "b"}', "abcdefghi")
TEXTS = 12 if LONG else 2
"""How many for each pair."""


def bits_of(format: Format) -> list[str]:
    literals = strategies.literals_of(format)
    bits = [*literals, *(literal[: len(literal) // 2] for literal in literals)]
    if format.tools is not None:
        bits += [unbraid.render(format, Message((CALL,)))] * 6
    if format.reasoning is not None:
        bits += [unbraid.render(format, Message((Text("reasoning", "why"), Text("content", "so"))))] * 3
    return bits


BITS = {format.name: bits_of(format) for format in strategies.FORMATS}
OTHER_BITS = ["Hello", "\n", " ", '{"name": "f", "arguments": {}}', "{", "}", "]", '"', "f", "x < y"]


def check(format: Format, text: str) -> None:
    whole, events = read(format, [text])
    streamed, _ = read(format, list(text))
    assert (streamed.parts, streamed.diagnostics) == (whole.parts, whole.diagnostics), "law 1"
    at = 0
    for start, end in sorted((event.start, event.end) for event in events if event.end > event.start):
        assert start == at, "law 3"
        at = end
    assert at == len(text), "law 3"
    check_calls(events)
    for call in whole.tool_calls:
        assert not call.complete or json.loads(call.arguments) is not None, "law 8"
    complete = complete_calls(whole)
    for size in (len(text) // 3, len(text) // 2, len(text) - 1):
        part = complete_calls(read(format, [text[: max(size, 0)]])[0])
        assert part == complete[: len(part)], "law 12"


def read(format: Format, pieces: list[str]) -> tuple[Message, list[Event]]:
    parser = unbraid.parser(format, seed=7, markup=True)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.finish()
    return parser.message, events


def check_calls(events: list[Event]) -> None:
    """Every call starts, goes on and ends, one after the other, counted from 0."""
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [event.index for event in starts] == list(range(len(starts))), "law 7"
    assert len({event.id for event in starts}) == len(starts), "law 7"
    open_call: int | None = None
    for event in events:
        if isinstance(event, ToolCallStart):
            assert open_call is None
            open_call = event.index
        elif isinstance(event, ToolCallArguments):
            assert open_call == event.index
        elif isinstance(event, ToolCallEnd):
            assert open_call == event.index
            open_call = None
    assert open_call is None


def complete_calls(message: Message) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in message.tool_calls if call.complete]


def texts(reasoning: str, tools: str | None) -> list[str]:
    chosen = random.Random(f"{reasoning} {tools}")
    bits = [*BITS[reasoning], *(BITS[tools] if tools else ()), *OTHER_BITS]
    return ["".join(chosen.choices(bits, k=chosen.randint(2, 9))) for _ in range(TEXTS)]


@pytest.mark.parametrize("tools", list(dict.fromkeys(tools for _, tools in PAIRS)))
def test_tools_with_the_reasoning_of_any_format(tools: str) -> None:
    """One tools after the other, not one reasoning: the patterns of calls are the longest, and are compiled once."""
    for reasoning, format in [(reasoning, format) for (reasoning, other), format in PAIRS.items() if other == tools]:
        for text in texts(reasoning, tools):
            check(format, text)


@pytest.mark.parametrize("reasoning", ALONE)
def test_reasoning_alone_makes_no_calls(reasoning: str) -> None:
    format = ALONE[reasoning]
    for text in [*texts(reasoning, None), unbraid.render(reasoning, Message((CALL,))) if reasoning in TOOLS else ""]:
        check(format, text)
        assert read(format, [text])[0].tool_calls == ()


@pytest.mark.parametrize("tools", TOOLS)
def test_tools_alone_and_with_speech(tools: str) -> None:
    call = unbraid.render(tools, Message((CALL,)))
    for format in (unbraid.compose(tools=tools), unbraid.compose(tools=tools, audio="step-audio-2")):
        assert read(format, [call])[0].tool_calls == (CALL,)
        for text in texts("step-audio-2", tools):
            check(format, text)


@pytest.mark.parametrize("tools", [name for name in TOOLS if unbraid.find(name).headers is not None])
def test_tools_in_messages_of_their_own(tools: str) -> None:
    """Reasoning that nobody asked for apart is not glued to the answer, and tags around it are read."""
    told = unbraid.find(tools)
    if told.reasoning is not None:
        text = unbraid.render(tools, Message((Text("reasoning", "why"), Text("content", "so"))))
        alone = read(unbraid.compose(tools=tools), [text])[0]
        assert alone.reasoning == ""
        assert alone.content.endswith("so")
        assert "whyso" not in alone.content
    tagged = unbraid.compose(reasoning="qwen3", tools=tools)
    message = read(tagged, [f"<think>\nwhy\n</think>\n\n{unbraid.render(tools, Message((CALL,)))}"])[0]
    assert message.reasoning == "why"
    assert [call.name for call in message.tool_calls] == ["f"]
