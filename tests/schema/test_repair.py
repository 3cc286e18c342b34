"""Malformed schemas: what they are read as, what is said of them, and that no junk is refused by the parser."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.errors import InvalidSchema, SchemaWarning, UnbraidError
from unbraid.schema.keywords import read_type
from unbraid.schema.repair import repair

STRING = {"type": "string"}

# What people write, what it is read as, and the place that is named.
MISTAKES: dict[str, tuple[Any, Any, str]] = {
    "float": ({"type": "float"}, {"type": "number"}, "p.type"),
    "double": ({"type": "double"}, {"type": "number"}, "p.type"),
    "dict": ({"type": "dict"}, {"type": "object"}, "p.type"),
    "list": ({"type": "list"}, {"type": "array"}, "p.type"),
    "tuple": ({"type": "tuple"}, {"type": "array"}, "p.type"),
    "int": ({"type": "int"}, {"type": "integer"}, "p.type"),
    "str": ({"type": "str"}, STRING, "p.type"),
    "bool": ({"type": "bool"}, {"type": "boolean"}, "p.type"),
    "none": ({"type": "none"}, {"type": "null"}, "p.type"),
    "None": ({"type": "None"}, {"type": "null"}, "p.type"),
    "upper case": ({"type": "OBJECT"}, {"type": "object"}, "p.type"),
    "a generic": ({"type": "list[str]"}, {"type": "array"}, "p.type"),
    "any": ({"type": "any"}, {}, "p.type"),
    "null itself": ({"type": None}, {}, "p.type"),
    "an unknown word": ({"type": "date", "minLength": 1}, {"minLength": 1}, "p.type"),
    "an object": ({"type": {"a": 1}}, {}, "p.type"),
    "a list of types": ({"type": ["STRING", "none"]}, {"type": ["string", "null"]}, "p.type"),
    "a list with an unknown word": ({"type": ["string", "x"]}, {}, "p.type"),
    "a list in a list": ({"type": [["string"]]}, {}, "p.type"),
    "an empty list of types": ({"type": []}, {}, "p.type"),
    "required is true": ({"required": True}, {}, "p.required"),
    "required is a name": ({"required": "a"}, {"required": ["a"]}, "p.required"),
    "required holds a number": ({"required": ["a", 5]}, {"required": ["a"]}, "p.required"),
    "enum is a string": ({"enum": "abc"}, {}, "p.enum"),
    "enum is null": ({"enum": None}, {}, "p.enum"),
    "properties are a list": ({"properties": []}, {}, "p.properties"),
    "a property is a type": (
        {"properties": {"a": "float"}},
        {"properties": {"a": {"type": "number"}}},
        "p.properties.a",
    ),
    "a property is null": ({"properties": {"a": None}}, {"properties": {"a": True}}, "p.properties.a"),
    "items are a type": ({"items": "string"}, {"items": STRING}, "p.items"),
    "items are a number": ({"items": 5}, {"items": True}, "p.items"),
    "one of many is null": ({"anyOf": [STRING, None]}, {"anyOf": [STRING, True]}, "p.anyOf[1]"),
    "anyOf is an object": ({"anyOf": STRING}, {}, "p.anyOf"),
    "anyOf is empty": ({"anyOf": []}, {}, "p.anyOf"),
    "$ref is an object": ({"$ref": {}}, {}, "p.$ref"),
    "a length is negative": ({"minLength": -1, **STRING}, STRING, "p.minLength"),
    "a length is text": ({"minLength": "3", **STRING}, STRING, "p.minLength"),
    "a length is a fraction": ({"maxLength": 1.5, **STRING}, STRING, "p.maxLength"),
    "a bound is text": ({"minimum": "0"}, {}, "p.minimum"),
    "multiples of zero": ({"multipleOf": 0}, {}, "p.multipleOf"),
    "a pattern is a number": ({"pattern": 5}, {}, "p.pattern"),
    "deep inside": (
        {"$defs": {"x": {"not": {"items": [{"type": "Float"}]}}}},
        {"$defs": {"x": {"not": {"items": [{"type": "number"}]}}}},
        "p.$defs.x.not.items[0].type",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_read_as_what_they_mean(name: str) -> None:
    schema, meant, where = MISTAKES[name]
    before = copy.deepcopy(schema)
    repaired, [found] = repair(schema, "p")
    assert repaired == meant
    assert found.where == where
    assert schema == before
    assert repair(repaired, "p") == (repaired, [])


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "enum": [], "required": [], "properties": {}, "items": [STRING, True]},
        {"properties": {"type": {"type": "string"}, "required": {"enum": [1]}}, "default": {"type": "float"}},
        {"exclusiveMinimum": True, "nullable": True, "x-unknown": {"type": "dict"}, "const": "int"},
    ],
)
def test_what_is_well_formed_stays_the_same_object(schema: Any) -> None:
    assert repair(schema, "p")[0] is schema
    assert repair(schema, "p")[1] == []


@pytest.mark.parametrize("schema", [5, None, "string", [], [STRING]])
def test_what_is_no_schema_at_all_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match=r"^p must be a JSON schema \(an object or a boolean\), not"):
        repair(schema, "p")


def test_what_nests_too_deep_is_read_as_any_value() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    circle: dict[str, Any] = {"type": "array"}
    circle["items"] = circle["contains"] = circle
    for schema in (deep, circle):
        found: Any
        found, [what, *_] = repair(schema, "p")
        assert "nests deeper than 200; read as any value" in str(what)
        for _ in range(201):
            assert found["type"] == "array"
            found = found["items"]
        assert found is True


def test_shared_parts_cost_no_more_than_they_are() -> None:
    shared: Any = {"type": "float"}
    for _ in range(100):
        shared = {"anyOf": [shared, shared]}
    assert len(repair(shared, "p")[1]) == 1


def test_types_are_read_in_any_spelling() -> None:
    assert read_type(" String ") == ["string"]
    assert read_type("Dict<String, Any>") == ["object"]
    assert read_type(["int", "INTEGER", "float"]) == ["integer", "number"]
    assert read_type("thing") is None


# --- At the door ---------------------------------------------------------------------------------------------------


def tool(parameters: Any, strict: bool = False) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}


def test_every_reader_sees_the_repaired_schema() -> None:
    """The parser, and every syntax, also where the tool is strict."""
    wrong = tool({"type": "dict", "properties": {"n": {"type": "float"}}, "required": ["n"]}, strict=True)
    right = tool({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}, strict=True)
    with pytest.warns(SchemaWarning) as caught:
        tools = unbraid.Tools([wrong])
    places = [str(warning.message).partition(": ")[0] for warning in caught]
    assert places == [
        "tools[0].function ('f').parameters.type",
        "tools[0].function ('f').parameters.properties.n.type",
    ]
    assert all(warning.filename == __file__ for warning in caught)
    assert dict(tools) == dict(unbraid.Tools([right]))
    assert [repair.where for repair in tools.repairs] == places
    assert tools.only(["f"]).repairs == tools.copy().repairs == tools.repairs
    for format in ("hermes", "qwen3-coder", "lfm2"):
        one, other = unbraid.constraint(format, tools=tools), unbraid.constraint(format, tools=[right])
        assert one.to_lark() == other.to_lark()
        assert one.to_structural_tag() == other.to_structural_tag()
        assert one.to_gbnf() == other.to_gbnf()
    text = "<tool_call>\n<function=f>\n<parameter=n>\n1.5\n</parameter>\n</function>\n</tool_call>"
    assert unbraid.parse("qwen3-coder", text, tools=tools).tool_calls[0].arguments == '{"n": 1.5}'


def test_the_answers_schema_is_repaired_too() -> None:
    def asked(schema: Any) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    wrong = asked({"type": "list", "items": {"type": "float"}})
    with pytest.warns(SchemaWarning, match=r"^response_format\.json_schema\.schema\.items\.type: 'float'"):
        found = unbraid.constraint("hermes", response_format=wrong)
    right = unbraid.constraint("hermes", response_format=asked({"type": "array", "items": {"type": "number"}}))
    assert found.to_lark() == right.to_lark()


def test_one_warning_for_each_place_but_not_for_thousands() -> None:
    with pytest.warns(SchemaWarning) as caught:
        tools = unbraid.Tools([tool({"properties": {f"p{at}": {"type": "float"} for at in range(1_000)}})])
    assert len(tools.repairs) == 1_000
    assert len(caught) == 9
    assert "992 more" in str(caught[-1].message)


def test_what_was_warned_of_is_forgotten_in_time() -> None:
    """The names in warnings are chosen by clients."""
    from unbraid.schema import repair as module

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default", SchemaWarning)
        for at in range(3_000):
            unbraid.Tools([tool({"properties": {f"q{at}": {"type": "float"}}})])
        assert len(module._shown_before) < 2_000


# --- Any junk ------------------------------------------------------------------------------------------------------

_KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "enum", "const", "items", "prefixItems", "additionalProperties", "anyOf",
     "oneOf", "allOf", "not", "if", "then", "$ref", "$defs", "pattern", "format", "minLength", "maxLength", "minItems",
     "maxItems", "minimum", "exclusiveMaximum", "multipleOf", "nullable", "propertyNames", "patternProperties",
     "minProperties", "uniqueItems", "dependentSchemas", "contains", "a", "b"]
)  # fmt: skip
_WORDS = st.sampled_from(
    ["string", "str", "float", "dict", "any", "OBJECT", "null", "None", "number", "integer", "array", "object",
     "boolean", "date", "#/$defs/a", "#", "#/properties/b", "#/anyOf/0", "a", "b", "^a+$", "(", "abc"]
)  # fmt: skip
_JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=True), _WORDS, st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_KEYWORDS, inner, max_size=4), st.lists(_WORDS, max_size=3)
    ),
    max_leaves=12,
)
_SCHEMAS = st.dictionaries(_KEYWORDS, _JUNK, max_size=4)
_TEXTS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "minimax-m3": ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>]<]minimax[>[<item>1',
    "lfm2": "<|tool_call_start|>[f(a=1)]<|tool_call_end|>",
}


@given(schema=_SCHEMAS, whole=st.booleans())
def test_junk_in_a_schema_never_raises_from_the_parser(schema: dict[str, Any], whole: bool) -> None:
    parameters = schema if whole else {"type": "object", "properties": {"a": schema}}
    before = copy.deepcopy(parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        tools = unbraid.Tools([tool(parameters)])
    for name, text in _TEXTS.items():
        message = unbraid.parse(name, text, tools=tools)
        assert message.tool_calls or message.content
    assert repr(parameters) == repr(before)


@given(schema=_SCHEMAS, strict=st.booleans(), format=st.sampled_from(sorted(_TEXTS)), whole=st.booleans())
def test_constraints_on_junk_raise_nothing_but_our_errors(
    schema: dict[str, Any], strict: bool, format: str, whole: bool
) -> None:
    parameters = schema if whole else {"type": "object", "properties": {"a": schema}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        try:
            constraint = unbraid.constraint(format, tools=[tool(parameters, strict)])
        except UnbraidError:
            assert strict
            return
    for syntax in ("lark", "gbnf", "ebnf", "structural_tag", "regex"):
        try:
            constraint.printed(syntax)
        except UnbraidError:
            assert strict or syntax == "regex"
