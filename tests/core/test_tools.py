"""Tool definitions: what is taken, and what is said of those that are wrong."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import pytest

from unbraid import InvalidTools, Tools
from unbraid.core.tools import read_tools
from unbraid.errors import SchemaWarning

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "東京"]},
        "days": {"type": ["integer", "null"], "minimum": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "any": True,
        "type": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string"}},
}


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "function", "function": {"name": "f", "description": "…", "parameters": PARAMETERS}},
        {"function": {"name": "f", "parameters": PARAMETERS, "strict": True}},
        {"name": "f", "parameters": PARAMETERS},
        {"type": "function", "name": "f", "parameters": PARAMETERS},
    ],
)
def test_every_way_to_define_a_tool(definition: dict[str, Any]) -> None:
    tools = Tools([definition])
    assert dict(tools) == {"f": PARAMETERS}


@pytest.mark.parametrize(
    "definition", [{"name": "f"}, {"name": "f", "parameters": None}, {"name": "f", "parameters": {}}]
)
def test_a_tool_without_parameters(definition: dict[str, Any]) -> None:
    assert dict(Tools([definition])) == {"f": {}}


def test_no_tools_and_the_same_tool_twice() -> None:
    assert len(Tools([])) == 0
    assert list(Tools([{"name": "f"}, {"name": "g"}, {"name": "f"}])) == ["f", "g"]


@pytest.mark.parametrize("definitions", ["f", b"f", {"name": "f"}, 5, None])
def test_not_a_list(definitions: Any) -> None:
    with pytest.raises(InvalidTools, match=f"must be a list.*{type(definitions).__name__}"):
        Tools(definitions)


def function(**schema: Any) -> dict[str, Any]:
    """A tool with this schema, second in the list."""
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


deep: dict[str, Any] = {}
for _ in range(300):
    deep = {"properties": {"a": deep}}

BAD: dict[str, tuple[Any, list[str]]] = {
    "a string": ("f", ["tools[1]", "str"]),
    "null": (None, ["tools[1]", "NoneType"]),
    "another type": ({"type": "retrieval"}, ["tools[1]", "'retrieval'"]),
    "function is no object": ({"type": "function", "function": "f"}, ["tools[1].function", "str"]),
    "no name": ({"type": "function", "function": {}}, ["tools[1].function", "no name"]),
    "empty name": ({"name": " "}, ["tools[1]", "no name"]),
    "name is no string": ({"name": 5}, ["tools[1]", "no name"]),
    "defined twice": ({"name": "ok", "parameters": PARAMETERS}, ["tools[1]", "'ok'", "twice"]),
}


def test_what_is_too_deep_is_read_as_any_value() -> None:
    with pytest.warns(SchemaWarning, match="nests deeper than 200; read as any value"):
        found: Any = Tools([{"name": "ok"}, function(**deep)])["f"]
    for _ in range(201):
        found = found["properties"]["a"]
    assert found is True


@pytest.mark.parametrize(("definition", "said"), BAD.values(), ids=BAD)
def test_what_is_wrong_and_where(definition: Any, said: list[str]) -> None:
    with pytest.raises(InvalidTools) as raised:
        Tools([{"name": "ok"}, definition])
    message = str(raised.value)
    assert re.match(r"tools\[1\]", message)
    assert [part for part in said if part not in message] == []


REPAIRED: dict[str, tuple[Any, Any, str]] = {
    "a list": ([], {}, ""),
    "true": (True, {}, ""),
    "a string": ({"type": "string"}, {"type": "object"}, ".type"),
    "an object or null": ({"type": ["object", "null"]}, {"type": "object"}, ".type"),
    "OBJECT": ({"type": "OBJECT"}, {"type": "object"}, ".type"),
    "null": ({"type": None}, {}, ".type"),
    "required is true": ({"required": True}, {}, ".required"),
}


@pytest.mark.parametrize(("parameters", "read", "where"), REPAIRED.values(), ids=REPAIRED)
def test_parameters_are_always_the_schema_of_an_object(parameters: Any, read: Any, where: str) -> None:
    with pytest.warns(SchemaWarning) as caught:
        tools = Tools([{"name": "ok"}, {"name": "f", "parameters": parameters}])
    assert tools["f"] == read
    [warning] = caught
    assert str(warning.message).startswith(f"tools[1] ('f').parameters{where}: ")


def test_tools_that_were_read_are_kept_by_what_they_say() -> None:
    definitions: list[dict[str, Any]] = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]
    tools = read_tools(definitions)
    assert read_tools([dict(definitions[0])]) is tools
    definitions[0]["parameters"]["properties"]["b"] = {"type": "integer"}
    assert list(tools["f"]["properties"]) == ["a"]
    assert list(read_tools(definitions)["f"]["properties"]) == ["a", "b"]


def test_tools_that_were_repaired_are_said_each_time() -> None:
    for _ in range(2):
        with pytest.warns(SchemaWarning):
            read_tools([{"name": "f", "parameters": {"properties": {"a": {"type": "text"}}}}])


def test_tools_that_are_no_plain_values_are_read() -> None:
    definitions = (MappingProxyType({"name": name}) for name in ("f", "g"))
    assert list(read_tools(definitions)) == ["f", "g"]
