"""Reasoning apart from the rest of a text, and calls apart from the content. SGLang is not needed."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, Message, Text, ToolCall
from unbraid.core.machine.markers import is_control
from unbraid.plugins.sglang.text_streams import (
    ReasoningStream,
    StreamedCall,
    ToolStream,
    begins_plainly,
    begun,
    known_tools,
)

from ...support import strategies
from ..one_field import parse

FORMATS = [format for format in strategies.FORMATS if format.tools is not None or format.reasoning is not None]
every_format = pytest.mark.parametrize("format", FORMATS, ids=[format.name for format in FORMATS])
with_reasoning = [format for format in FORMATS if format.reasoning is not None]
with_tools = [format for format in FORMATS if format.tools is not None]


def parts_of(format: Format) -> Format:
    """The reasoning and the calls of a format: what SGLang's two detectors look for."""
    return unbraid.compose(
        reasoning=format.name if format.reasoning is not None else None,
        tools=format.name if format.tools is not None else None,
    )


def take_apart(format: Format, pieces: Iterable[str], inside: bool = False) -> Message:
    """One stream after the other, as SGLang has them: the second is given what the first leaves."""
    both = parts_of(format)
    thought = ReasoningStream(both, inside=inside) if format.reasoning is not None else None
    tools = ToolStream(unbraid.compose(tools=format.name), None) if format.tools is not None else None
    reasoning: list[str] = []
    content: list[str] = []

    def go_on(said: str, rest: str, over: bool) -> None:
        reasoning.append(said)
        if tools is not None:
            for text, _ in [tools.feed(rest), *([tools.finish()] if over else [])]:
                content.append(text)
        else:
            content.append(rest)

    for piece in pieces:
        go_on(*(thought.feed(piece) if thought is not None else ("", piece)), False)
    go_on(*(thought.finish() if thought is not None else ("", "")), True)
    calls = [ToolCall(c.name, c.text, complete=bool(c.complete)) for c in (tools.calls if tools is not None else ())]
    texts = [("reasoning", reasoning), ("content", content)]
    return Message((*(Text(strand, "".join(said)) for strand, said in texts), *calls))  # type: ignore[arg-type]


def in_strands(message: Message, format: Format | None = None) -> tuple[str, str, list[tuple[str, str, bool]]]:
    """Where a line's end ends a header, the second stream cannot know whether the first has taken it."""
    lines = format is not None and format.headers is not None and "\n" in format.headers.closes
    content = message.content.removeprefix("\n") if lines else message.content
    return message.reasoning, content, [(c.name, c.arguments, c.complete) for c in message.tool_calls]


# --- Text ----------------------------------------------------------------------------------------------------------


@every_format
@given(data=st.data())
def test_two_detectors_say_what_one_parser_says(format: Format, data: st.DataObject) -> None:
    message = data.draw(strategies.messages(parts_of(format)))
    text = unbraid.render(format, message)
    apart = take_apart(format, data.draw(st.composite(strategies.cuts)(text)))
    assert in_strands(apart, format) == in_strands(parse(parts_of(format), text, prompt=""), format)
    assert [(c.name, c.arguments) for c in apart.tool_calls] == [(c.name, c.arguments) for c in message.tool_calls]


@pytest.mark.parametrize("format", with_tools, ids=[format.name for format in with_tools])
@given(data=st.data())
def test_what_goes_past_a_stream_is_what_it_would_say(format: Format, data: st.DataObject) -> None:
    calls = unbraid.compose(tools=format.name)
    text = data.draw(st.text("ab `\n", max_size=8)) + data.draw(strategies.hostile(format))
    first = ToolStream(calls, None)
    stream = first.anew()
    is_plain = begins_plainly(calls)
    plain = next((at for at in range(len(text)) if not is_plain(text[at])), len(text))
    assert [stream.feed(char) for char in text[:plain]] == [(char, []) for char in text[:plain]]
    other = first.anew()
    if plain:
        other.skip(text[:plain])
    assert [*map(other.feed, text[plain:]), other.finish()] == [*map(stream.feed, text[plain:]), stream.finish()]


@pytest.mark.parametrize("format", with_reasoning, ids=[format.name for format in with_reasoning])
@given(data=st.data())
def test_a_stream_goes_on_from_a_beginning_that_was_kept(format: Format, data: st.DataObject) -> None:
    both, inside = parts_of(format), data.draw(st.booleans())
    assert format.reasoning is not None
    openers = [format.reasoning.open, format.reasoning.open.strip(), format.reasoning.close.strip()]
    first = data.draw(st.sampled_from(openers) | st.text("\n <a", max_size=3))
    pieces = data.draw(st.composite(strategies.cuts)(data.draw(strategies.hostile(format))))
    plain = ReasoningStream(both, inside=inside)
    told = [*map(plain.feed, (first, *pieces)), plain.finish()]
    for _ in range(2):  # the second may be copied
        stream, begins = begun(both, first, inside=inside)
        assert [begins, *map(stream.feed, pieces), stream.finish()] == told


@every_format
@given(data=st.data())
def test_cuts_do_not_matter(format: Format, data: st.DataObject) -> None:
    text, inside = data.draw(strategies.hostile(format)), data.draw(st.booleans())
    whole = in_strands(take_apart(format, [text], inside))
    assert in_strands(take_apart(format, text, inside)) == whole
    assert in_strands(take_apart(format, data.draw(st.composite(strategies.cuts)(text)), inside)) == whole


@pytest.mark.parametrize("format", with_reasoning, ids=[format.name for format in with_reasoning])
@given(data=st.data())
def test_all_but_the_markers_goes_on(format: Format, data: st.DataObject) -> None:
    """What is no reasoning goes to the next detector as the model wrote it, in its order, calls with their markers."""
    text = data.draw(strategies.hostile(format))
    stream = ReasoningStream(parts_of(format), inside=False)
    reasoning, rest = map("".join, zip(*map(stream.feed, text), stream.finish(), strict=True))
    left = rest
    markup = (*strategies.literals_of(format), *strategies.noises_of(format))
    if not any(marker in text for marker in markup):
        # Only the beginning of a control marker that the output is cut off in does not go on: law 16.
        cut = text[len(rest) :]
        assert (reasoning, rest + cut) == ("", text)
        assert not cut or (is_control(cut) and any(marker.startswith(cut) for marker in markup))
    for char in text:
        left = left[1:] if left.startswith(char) else left
    assert left == ""


def test_a_call_in_the_reasoning_is_a_call() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"tag": "</think>"}}\n</tool_call>'
    stream = ReasoningStream(parts_of(unbraid.find("qwen3")), inside=True)
    assert stream.feed(f"Let me see. {call} And then.\n</think>\n\nDone.") == ("Let me see.  And then.", f"{call}Done.")


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("qwen3", "<think>\nhm\n</think>\n\nHi", "Hi"),
        ("ernie-4.5", "<think>\nhm\n</think>\n\n<response>\nHi\n</response>\n", "Hi"),
        ("hunyuan-a13b", "<think>\nhm\n</think>\n<answer>\nHi\n</answer>", "Hi"),
        ("k2-horizon", "<ifm|think_fast>hm</ifm|think_fast>Hi", "Hi"),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            "Hi",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
            "<|message|>{}<|call|>",
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        ),
    ],
)
def test_no_marker_is_left_in_the_content(name: str, text: str, rest: str) -> None:
    """Who has no detector of calls sees what the first one leaves."""
    stream = ReasoningStream(parts_of(unbraid.find(name)), inside=False)
    assert [*map("".join, zip(*map(stream.feed, text), stream.finish(), strict=True))] == ["hm", rest]


def test_a_tag_in_an_argument_is_data() -> None:
    call = '<tool_call>function\nwrite\n{"html": "<think>no</think>"}</tool_call>'
    stream = ReasoningStream(parts_of(unbraid.find("step-audio-2")), inside=False)
    assert [stream.feed(call), stream.finish()] == [("", call), ("", "")]


def test_nothing_is_held_that_could_be_said() -> None:
    stream = ReasoningStream(parts_of(unbraid.find("qwen3")), inside=False)
    said = ["<think>\nSo", "?</th", "ink>\n\nA ", "<", "b ", '<tool_call>{"arguments": {"a": 1}, ', '"name": "f"}']
    assert [stream.feed(piece) for piece in said] == [
        ("So", ""),
        ("?", ""),
        ("", "A "),
        ("", ""),
        ("", "<b "),
        ("", ""),
        ("", '<tool_call>{"arguments": {"a": 1}, "name": "f"}'),
    ]


def test_a_name_and_then_its_arguments() -> None:
    stream = ToolStream(unbraid.compose(tools="step-audio-2"), None)
    pieces = ["Well: <tool_", "call>function\nsearch\n", '{"q": ', '"a"}', "</tool_call>", " So."]
    assert [stream.feed(piece) for piece in pieces] == [
        ("Well: ", []),
        ("", []),
        ("", [(0, "search", '{"q": ')]),
        ("", [(0, None, '"a"}')]),
        ("", []),
        (" So.", []),
    ]
    assert stream.finish() == ("", [])
    assert [(call.name, call.arguments, call.complete) for call in stream.calls] == [("search", {"q": "a"}, True)]


def test_arguments_that_python_does_not_read_are_text() -> None:
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000
    assert StreamedCall("f", [deep], complete=True).arguments == deep
    assert StreamedCall("f", ['{"a": 1}'], complete=True).arguments == {"a": 1}
    assert StreamedCall("f", ['{"a": 1'], complete=False).arguments == '{"a": 1'


def tool(name: str | None, parameters: object = None) -> Any:
    """A tool as SGLang has it."""
    return SimpleNamespace(function=SimpleNamespace(name=name, parameters=parameters, strict=None))


def test_tools_that_sglang_lets_through_do_no_harm() -> None:
    text = {"type": "object", "properties": {"a": {"type": "string"}}}
    known = known_tools([tool("f", text), tool("f", {}), tool(None), tool("g", {"type": "nonsense"}), tool("h")])
    assert {name: dict(known[name]) for name in known} == {"f": text, "g": {}, "h": {}}
