"""Broken calls: a stream and a whole reply say the same of them, in both plug-ins and for every format.

What reads a response imports neither vLLM nor SGLang, so this runs without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, ToolCall
from unbraid.core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallStart
from unbraid.core.tools import Tools
from unbraid.plugins.common import BROKEN_CALLS, is_closed
from unbraid.plugins.sglang.text_streams import ToolStream
from unbraid.plugins.vllm.response_reader import ResponseReader

from .vllm.cases import WITH_TOOLS, encode, every_format_with_tools, qwen3, tokenizer_for

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "more": {"type": "object"}}}
TOOLS = Tools([{"name": name, "parameters": SCHEMA} for name in ("get_weather", "search")])
REQUEST = SimpleNamespace(stop=None, stop_token_ids=None, include_stop_str_in_output=False, skip_special_tokens=True)
Reply = tuple[str, str, list[tuple[str, str]]]


def broken_calls(format: Format) -> Iterator[str]:
    """A call as the format writes it, with a bracket, quote, colon or comma left out, and with what models write that
    is no JSON."""
    arguments = '{"city": "Paris", "more": {"a": 1}}'
    text = unbraid.render(format, Message((ToolCall("get_weather", arguments, "abcdefghi"),)))
    begin, end = text.index("city"), text.rindex("1") + 1
    places = {character: text.find(character, begin) for character in '{}[]":,'}
    yield from (text[:at] + text[at + 1 :] for at in places.values() if at >= 0)
    for old, new in (("Paris", "Pa\nris"), ("1", "NaN"), ("1", "1,"), ("1", ""), ("1", "1}"), ('"a"', "a"), ("1", '"')):
        inside = text[begin:end].replace(old, new, 1)
        yield text[:begin] + inside + text[end:]


def folded(events: Sequence[Event]) -> Reply:
    calls: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            calls.append((event.name, ""))
        elif isinstance(event, ToolCallArguments):
            calls[event.index] = (calls[event.index][0], calls[event.index][1] + event.fragment)
    content, reasoning = ("".join(one.text for one in events if isinstance(one, kind)) for kind in (Content, Reasoning))
    return content, reasoning, calls


def reader(format: Format, tokenizer: Any, *, whole: bool) -> ResponseReader:
    start = None if format.headers else ""
    return ResponseReader(format, tokenizer, REQUEST, tools=TOOLS, separate_reasoning=True, prompt=start, whole=whole)


@every_format_with_tools
def test_in_vllm(format: Format) -> None:
    tokenizer = tokenizer_for(format)
    for text in broken_calls(format):
        ids = [*encode(tokenizer, text), tokenizer.eos_token_id]
        stream = reader(format, tokenizer, whole=False)
        events = [one for at in range(len(ids)) for one in stream.feed("", ids[at : at + 1], at == len(ids) - 1)]
        assert folded(reader(format, tokenizer, whole=True).whole(text, ids)) == folded(events), text


def tool_stream(format: Format, *, whole: bool = False) -> ToolStream:
    """As a detector has it: calls only."""
    return ToolStream(unbraid.compose(tools=format.name), TOOLS, whole=whole)


@every_format_with_tools
def test_in_sglang(format: Format) -> None:
    for text in broken_calls(format):
        stream, whole = tool_stream(format), tool_stream(format, whole=True)
        steps = [*map(stream.feed, text), stream.finish()]
        calls = [(call.name, call.text) for call in stream.calls]
        content, pieces = whole.whole(text)
        if stream.cut_off:  # nothing has closed it: it is text
            assert stream.cut_off == {len(calls) - 1}
            assert not is_closed(calls.pop()[1])
        else:
            assert content == "".join(text for text, _ in steps)
        assert [(name, arguments) for _, name, arguments in pieces] == calls, text


def test_every_kind_of_call_can_break() -> None:
    """So that the two tests above have something to compare."""
    with_calls = [format for format in WITH_TOOLS if any(whole(format, text) for text in broken_calls(format))]
    assert list(map(attrgetter("name"), WITH_TOOLS)) == list(map(attrgetter("name"), with_calls))


def whole(format: Format, text: str) -> list[tuple[str, str]]:
    pieces = tool_stream(format, whole=True).whole(text)[1]
    return [(str(name), arguments) for _, name, arguments in pieces]


NAN = '<tool_call>\n{"name": "search", "arguments": {"more": NaN}}\n</tool_call>'
NEXT = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'


def test_an_operator_may_want_them_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    hermes = unbraid.find("hermes")
    assert whole(hermes, NAN + NEXT) == [("search", '{"more": NaN}'), ("search", "{}")]
    monkeypatch.setenv(BROKEN_CALLS.name, "text")
    assert whole(hermes, NAN + NEXT) == [("search", "{}")]
    content = tool_stream(hermes, whole=True).whole(NAN + NEXT)[0]
    assert "NaN" in content
    ids = [*encode(qwen3(), NAN), qwen3().eos_token_id]
    assert folded(reader(hermes, qwen3(), whole=True).whole(NAN, ids)) == (NAN, "", [])
