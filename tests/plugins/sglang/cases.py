"""Tools, messages and streams, for the tests of the plug-in."""

from __future__ import annotations

import json
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall

FORMATS = [format for format in unbraid.all_formats() if format.tools is not None or format.reasoning is not None]
every_format = pytest.mark.parametrize("format", FORMATS, ids=[format.name for format in FORMATS])
REPLACED = ["hermes", "qwen", "qwen25", "mistral", "qwen3_coder", "lfm2"]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
STEP_CALL = '<tool_call>function\nget_weather\n{"city": "上海"}</tool_call>'


def tools(sglang: Any, *names: str, strict: bool = False) -> list[Any]:
    functions = [{"name": name, "parameters": CITY, "strict": strict} for name in names or ("get_weather", "search")]
    return [sglang.Tool(type="function", function=function) for function in functions]


def fold(steps: list[tuple[str, list[Any]]]) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls of a stream. The name comes first."""
    calls: list[list[str]] = []
    for _, items in steps:
        for item in items:
            if item.name is not None:
                assert item.tool_index == len(calls)
                calls.append([item.name, item.parameters])
            else:
                assert item.tool_index == len(calls) - 1
                calls[-1][1] += item.parameters
    return "".join(text for text, _ in steps), [(name, arguments) for name, arguments in calls]


def streamed(parser: Any, text: str, size: int = 1) -> tuple[str, list[tuple[str, str]]]:
    steps = [parser.parse_stream_chunk(text[at : at + size]) for at in range(0, len(text), size)]
    return fold([*steps, parser.parse_stream_end()])


def a_turn(format: Format) -> Message:
    """A message with all that the format has."""
    parts: list[Any] = []
    if format.reasoning is not None and not format.reasoning_in_content:
        parts.append(Text("reasoning", "They ask for Paris."))
    parts.append(Text("content", "Let me look."))
    if format.tools is not None:
        marker = format.tools.open.strip()
        # Where strings stand bare between tags, some markers end them.
        marker = "marker" if format.name in ("minimax-m3", "deepseek-v4.1") else marker
        arguments = json.dumps({"city": f"a {marker} in a string"}, ensure_ascii=False)
        parts += [ToolCall("get_weather", arguments, "abcdefghi"), ToolCall("search", "{}", "abcdefghj")]
    return Message(tuple(parts))
