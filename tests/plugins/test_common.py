"""What both plug-ins need: tools that stay the same are read once; the environment chooses the format."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from unbraid import Message, ToolCall, find, parse, render
from unbraid.core.tools import Tools
from unbraid.errors import InvalidTools, SchemaWarning, UnbraidError
from unbraid.plugins.common import (
    CALLS_IN_REASONING,
    KEPT,
    UNTYPED_VALUES,
    OwnWays,
    TextTools,
    as_chosen,
    cached_by_content,
    own_ways,
)


class Function(BaseModel):
    name: str
    parameters: dict[str, Any]


class Tool(BaseModel):
    function: Function
    others: list[Function] = []


def tool(**parameters: Any) -> Tool:
    return Tool(function=Function(name="f", parameters={"type": "object", "properties": parameters}))


@pytest.fixture
def reads() -> list[int]:
    return []


@pytest.fixture
def read(reads: list[int]) -> Any:
    @cached_by_content
    def read(tools: Sequence[Any]) -> Tools:
        reads.append(len(tools))
        return Tools([{"name": tool.function.name, "parameters": tool.function.parameters} for tool in tools])

    return read


def test_equal_tools_are_read_once(read: Any, reads: list[int]) -> None:
    assert read([tool(a={"type": "string"})]) is read([tool(a={"type": "string"})])
    assert reads == [1]


@pytest.mark.parametrize("other", [True, 1.0, "1", None, [1]])
def test_what_python_takes_for_the_same_is_told_apart(read: Any, other: object) -> None:
    one, two = read([tool(a={"enum": [1]})]), read([tool(a={"enum": [other]})])
    assert repr(two["f"]["properties"]["a"]["enum"]) == repr([other])
    assert repr(one["f"]["properties"]["a"]["enum"]) == "[1]"


def test_a_tool_that_changes_is_another(read: Any) -> None:
    given = tool(a={"type": "string"})
    before = read([given])
    given.function.parameters["properties"]["a"]["type"] = "number"
    assert read([given])["f"]["properties"]["a"] == {"type": "number"}
    assert before["f"]["properties"]["a"] == {"type": "string"}
    assert read([tool(a={"type": "string"})]) is before


def test_models_inside_of_lists_count(read: Any, reads: list[int]) -> None:
    for parameters in ({}, {"a": 1}, {"a": True}):
        read([Tool(function=Function(name="f", parameters={}), others=[Function(name="g", parameters=parameters)])])
    assert reads == [1, 1, 1]


def test_what_is_kept_is_bounded(read: Any, reads: list[int]) -> None:
    for number in range(2 * KEPT + 1):
        read([tool(a={"const": number})])
    read([tool(a={"const": 0})])
    assert len(reads) == 2 * KEPT + 2


def test_a_mistake_is_told_every_time(read: Any) -> None:
    for _ in range(2):
        with pytest.raises(InvalidTools):
            read([tool(a={}), tool(b={})])


@pytest.mark.parametrize("depth", [150, 480, 5000])
def test_tools_that_nest_deep_are_read(read: Any, depth: int) -> None:
    """A schema, and a value in it, which nobody looks into."""
    schema: Any = {"type": "string"}
    value: Any = 0
    for _ in range(depth):
        schema, value = {"type": "object", "properties": {"a": schema}}, [value]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        for _ in range(2):
            found = read([tool(a={"type": "string"}, deep=schema, other={"default": value})])["f"]["properties"]
            assert found["a"] == {"type": "string"}
            assert found["deep"]["properties"]["a"]["type"] == "object"


@pytest.mark.parametrize(
    ("word", "expected"),
    [(None, True), ("", True), ("auto", True), ("yes", True), ("1", True), ("no", False), ("0", False)],
)
def test_calls_in_reasoning(word: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CALLS_IN_REASONING.name, raising=False)
    if word is not None:
        monkeypatch.setenv(CALLS_IN_REASONING.name, word)
    assert as_chosen(find("qwen3")).calls_in_reasoning is expected


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLS_IN_REASONING.name, "perhaps")
    with pytest.raises(UnbraidError, match="no, yes or auto"):
        as_chosen(find("qwen3"))


def test_untyped_values_are_what_the_engines_parser_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown a call; in quotes, or with its kind in the tag, a value says itself what it is."""
    text, value = ['{"a": "7"}'], ['{"a": 7}']
    assert own_ways(find("qwen3-coder"), lambda _: text) == OwnWays(True, "text")
    assert own_ways(find("qwen3-coder"), lambda _: value) == OwnWays(True, "json")
    assert own_ways(find("qwen3-coder"), lambda _: []) == OwnWays(False, "json")
    assert own_ways(find("qwen3-coder"), lambda _: ["[]"]) == OwnWays(True, "json")
    for name in ("hermes", "kimi-k3"):
        assert own_ways(find(name), lambda _: text) == OwnWays(True, "json")
    output = render(find("qwen3-coder"), Message((ToolCall("f", '{"a": "7", "b": "8"}'),)))
    tools = Tools([{"name": "f", "parameters": {"type": "object", "properties": {"b": {"type": "integer"}}}}])
    for setting, ways, read in (
        ("", OwnWays(True, "text"), '{"a": "7", "b": 8}'),
        ("", OwnWays(True, "json"), '{"a": 7, "b": 8}'),
        ("text", OwnWays(True, "json"), '{"a": "7", "b": 8}'),
        ("json", OwnWays(True, "text"), '{"a": 7, "b": 8}'),
    ):
        monkeypatch.setenv(UNTYPED_VALUES.name, setting)
        (call,) = parse("qwen3-coder", output, tools=ways.typed(tools)).tool_calls
        assert call.arguments == read
    (unknown,) = parse(
        "qwen3-coder", output.replace("f>", "g>", 1), tools=TextTools.of(tools), unknown_tools="emit"
    ).tool_calls
    assert (unknown.name, unknown.arguments) == ("g", '{"a": "7", "b": "8"}')
