"""The fast path: what most deltas are does not run the machine, and comes to the same."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import unbraid
from unbraid import Message, Text, ToolCall, ToolCallArguments
from unbraid.core.machine.machine import Machine

WORDS = "the quick brown fox, and a lazy dog. "
ITEMS = [{"id": n, "on": n > 4, "xy": [n, -n * 1.5, None], "tag": "a b", "in": {"k": "v", "z": []}} for n in range(9)]
TOOLS: list[dict[str, Any]] = [
    {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}}}
]
FORMATS = ("hermes", "mistral", "kimi_k2", "qwen3_coder", "glm45", "deepseek_v32", "minimax_m2", "gemma4", "pythonic")


def tokens(text: str) -> list[str]:
    """Deltas as tokenizers cut them: words, and runs of signs."""
    return re.findall(r"\s?\w+|\s?[^\w\s]+|\s+", text)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often the machine runs."""
    count = [0]
    run = Machine.run

    def counted(machine: Machine) -> None:
        count[0] += 1
        run(machine)

    monkeypatch.setattr(Machine, "run", counted)
    return count


def share(format: str, message: Message, runs: list[int], **options: Any) -> float:
    """The share of the deltas for which the machine runs."""
    deltas = tokens(unbraid.render(format, message))
    parser = unbraid.Parser(format, tools=TOOLS, **options)
    for delta in deltas:
        parser.feed(delta)
    parser.finish()
    calls = [[json.loads(call.arguments) for call in each.tool_calls] for each in (parser.message, message)]
    assert calls[0] == calls[1]
    return runs[0] / len(deltas)


@pytest.mark.parametrize("format", FORMATS)
def test_plain_content(format: str, runs: list[int]) -> None:
    assert share(format, Message((Text("content", WORDS * 20),)), runs) < 0.05


@pytest.mark.parametrize("format", FORMATS)
def test_the_inside_of_a_string(format: str, runs: list[int]) -> None:
    call = ToolCall("f", json.dumps({"a": WORDS * 50}))
    assert share(format, Message((call,)), runs) < 0.15


@pytest.mark.parametrize(("format", "most"), [("hermes", 0.25), ("qwen3_coder", 0.1), ("gemma4", 0.2)])
def test_a_short_call(format: str, most: float, runs: list[int]) -> None:
    """Its markers, its name, where its values begin and end."""
    call = ToolCall("f", json.dumps({"a": "the quick brown fox"}))
    assert share(format, Message((Text("content", "One moment. "), call)), runs) <= most


@pytest.mark.parametrize("format", FORMATS[:-2])  # what is not JSON is rewritten
def test_json_that_is_structure(format: str, runs: list[int]) -> None:
    call = ToolCall("f", json.dumps({"b": ITEMS}))
    assert share(format, Message((call,)), runs) < 0.15


def test_a_comma_that_waits_is_sent_with_what_follows() -> None:
    parser = unbraid.Parser("qwen3_coder", tools=TOOLS)
    for delta in tokens("<tool_call>\n<function=f>\n<parameter=b>\n[0"):
        parser.feed(delta)
    said = [parser.feed(delta) for delta in [", 1", ",", " ", "\n", '"x', ",", '",', " 2", ",", "]"]]
    fragments = [[event.fragment for event in events if isinstance(event, ToolCallArguments)] for events in said]
    assert fragments == [[", 1"], [], [], [], [', \n"x'], [","], ['"'], [", 2"], [], ["]"]]
    assert parser.holds_back is False
