"""What a request may ask for: what is refused, what a syntax cannot say, what is kept, and what stays small."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import unbraid
import unbraid.tokens
from unbraid import (
    InvalidSchema,
    InvalidTools,
    Message,
    NotRegular,
    ToolCall,
    UnbraidError,
)

from ..support import real_tokenizers
from .cases import NOW, TOOLS, tool
from .grammar_engines import LlamaCppGrammar
from .walks import constraint_accepts


def test_what_a_syntax_cannot_say_is_loosened_and_listed() -> None:
    schema = {"type": "array", "items": {"type": "number", "minimum": 0.5}, "uniqueItems": True}
    one = tool("f", True, properties={"a": schema}, required=["a"], additionalProperties=False)
    constraint = unbraid.constraint("qwen3", tools=[one])
    call = '<tool_call>{"name": "f", "arguments": {"a": [%s]}}</tool_call>'
    assert constraint_accepts(constraint, call % "1, 1")
    assert not constraint_accepts(constraint, call % "0.2")
    assert any("uniqueItems" in loose.what for loose in constraint.unenforced("lark"))
    assert all(loose.where.startswith("tool 'f': parameters.properties.a") for loose in constraint.unenforced("lark"))
    assert not any("bounds" in loose.what for loose in constraint.unenforced("lark"))
    assert any("bounds" in loose.what for loose in constraint.unenforced("gbnf"))
    assert unbraid.constraint("qwen3", tools=TOOLS).unenforced("lark") == []


def test_tools_that_take_the_same_share_a_rule() -> None:
    many = [tool(f"f{n}", False, properties={"q": {"type": "string"}}) for n in range(100)]
    assert unbraid.constraint("hermes", tools=many).to_lark().count("%json") == 1


BAD: dict[str, tuple[dict[str, Any], type[UnbraidError], str]] = {
    "tool_choice": (
        {"tools": TOOLS, "tool_choice": "maybe"},
        InvalidTools,
        'tool_choice is "none", "auto", "required"',
    ),
    "unknown function": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}},
        InvalidTools,
        "'nope', which is not among the tools: 'get_weather'",
    ),
    "required without tools": ({"tool_choice": "required"}, InvalidTools, "there are no tools"),
    "response_format": ({"response_format": {"type": "xml"}}, UnbraidError, "response_format is"),
    "not a boolean": ({"parallel_tool_calls": "no"}, UnbraidError, "parallel_tool_calls is true, false or null"),
    "no schema": ({"response_format": {"type": "json_schema"}}, UnbraidError, '"schema"'),
    "contradiction": (
        {"tools": [tool("f", True, properties={"n": {"type": "integer", "minimum": 5, "maximum": 3}})]},
        InvalidSchema,
        r"tool 'f': parameters.properties.n",
    ),
    "reference to nothing": (
        {"tools": [tool("f", True, properties={"n": {"$ref": "#/$defs/missing"}})]},
        InvalidSchema,
        r"tool 'f': parameters.properties.n",
    ),
    "answer that nothing satisfies": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "enum": []}}}},
        InvalidSchema,
        "response_format.json_schema.schema",
    ),
    "enormous": (
        {"tools": [tool("f", True, properties={f"p{n}": {"type": "string"} for n in range(50_000)})]},
        InvalidSchema,
        "tool 'f'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_say_what_to_change(name: str) -> None:
    request, error, message = BAD[name]
    with pytest.raises(error, match=message):
        unbraid.constraint("qwen3", **request)


def test_bad_requests_for_a_format() -> None:
    with pytest.raises(InvalidTools, match="'think' has no tool calls"):
        unbraid.constraint("think", tools=TOOLS)
    with pytest.raises(UnbraidError, match="'hermes' has no reasoning"):
        unbraid.constraint("hermes", reasoning=True)
    with pytest.raises(InvalidTools, match="cannot be called in this format"):
        unbraid.constraint("mistral-v13", tools=[tool("my tool", False)])
    with pytest.raises(UnbraidError, match="tokenizer="):
        unbraid.constraint("qwen3").masks()
    with pytest.raises(NotRegular, match="nest in another without end"):
        unbraid.constraint("qwen3", tools=TOOLS).to_regex()


def test_a_schema_that_is_too_much_for_the_engine_is_named() -> None:
    patterns = [{"pattern": f"^.*{letter}.{{{90 + at}}}$"} for at, letter in enumerate("abc")]
    bad = tool("f", True, properties={"a": {"type": "string"}, "b": {"type": "string", "allOf": patterns}})
    constraint = unbraid.constraint("qwen3", tools=[NOW, bad], tokenizer=real_tokenizers.qwen3_huggingface())
    with pytest.raises(InvalidSchema, match=r"tool 'f': parameters.properties.b is too complex"):
        constraint.masks()


def test_what_was_made_is_kept() -> None:
    one = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")
    assert unbraid.constraint("qwen3", tools=json.loads(json.dumps(TOOLS)), tool_choice="required") is one
    assert unbraid.constraint("qwen3", tools=TOOLS) is not one


def test_what_is_kept_does_not_change_with_the_callers_tools() -> None:
    def make() -> dict[str, Any]:
        return tool("f", True, properties={"x": {"type": "string"}}, additionalProperties=False)

    mine = [make()]
    for tools in (mine, unbraid.Tools(mine)):
        unbraid.constraint("hermes", tools=tools)
        mine[0]["function"]["parameters"]["properties"]["y"] = {"type": "integer"}
        assert '"y"' not in unbraid.constraint("hermes", tools=[make()]).to_lark()
        mine[0]["function"]["parameters"]["properties"].pop("y")


def test_names_that_a_format_cannot_write() -> None:
    awkward = {"user-id": {"type": "string"}, "ok": {"type": "string"}}
    constraint = unbraid.constraint("lfm2", tools=[tool("f", False, properties=awkward)])
    assert [loose.where for loose in constraint.unenforced("lark")] == ["tool 'f': parameters.properties.user-id"]
    with pytest.raises(InvalidTools, match="'user-id' cannot be written in this format"):
        unbraid.constraint("lfm2", tools=[tool("f", True, properties=awkward, required=["user-id"])])


@pytest.mark.parametrize("name", ["glm-4.7", "qwen3-coder", "minimax-m3", "pythonic", "gemma-4"])
def test_a_schema_without_other_arguments_is_taken_at_its_word(name: str) -> None:
    """Also that of a tool that is not strict, where arguments are written one by one."""
    for properties, accepted in (({"city": {"type": "integer"}}, ['{"city": 3}', "{}"]), ({}, ["{}"])):
        closed = tool("f", False, properties=properties, additionalProperties=False)
        made = unbraid.constraint(name, tools=[closed], tool_choice="required", reasoning=False).to_regex()
        for arguments in ('{"city": 3}', '{"ctiy": 3}', "{}"):
            text = unbraid.render(name, Message((ToolCall("f", arguments),)))
            assert bool(re.fullmatch(made, text)) is (arguments in accepted)


def test_names_that_a_pattern_admits_are_other_arguments() -> None:
    patterned = tool("f", False, properties={}, additionalProperties=False, patternProperties={"^c": {}})
    made = unbraid.constraint("glm-4.7", tools=[patterned], tool_choice="required", reasoning=False).to_regex()
    assert re.fullmatch(made, unbraid.render("glm-4.7", Message((ToolCall("f", '{"city": 3}'),))))


def test_many_optional_arguments_stay_small() -> None:
    """Every argument may follow every one before it: written out, these would be 7,260 pairs, with as many names."""
    many = tool("f", True, properties={f"p{n}": {"type": "string"} for n in range(120)}, additionalProperties=False)
    for name in ("qwen3-coder", "lfm2", "hermes"):
        constraint = unbraid.constraint(name, tools=[many])
        assert len(json.dumps(constraint.to_structural_tag())) < 90_000
        assert len(constraint.to_gbnf()) < 90_000
        assert len(constraint.to_lark()) < 90_000


# Whitespace

WORDS = ["{", '"a"', ":", "1", ",", '"b"', ":", "[", "1", ",", "2", "]", "}"]
A_AND_B = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "integer"}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("format", ["hermes", "qwen3", "step-audio-2"])
@pytest.mark.parametrize("space", ["\n", " ", "\t"])
def test_a_model_cannot_lose_itself_in_whitespace(format: str, space: str) -> None:
    """Before an answer in JSON and inside of it there is some, and an end to it, in every syntax."""
    answer = {"type": "json_schema", "json_schema": {"name": "x", "schema": A_AND_B}}
    constraint = unbraid.constraint(format, response_format=answer)
    gbnf = LlamaCppGrammar(constraint.to_gbnf())
    few, lines = (
        ["".join([*WORDS[:at], some, *WORDS[at:]]) for at in range(len(WORDS))] for some in ("\n  ", 100 * space)
    )
    assert set(gbnf.judge_all(few)) == {"complete"}
    assert set(gbnf.judge_all(lines)) == {"refused"}
    for text in few:
        assert constraint_accepts(constraint, text)
    for text in lines:
        assert not constraint_accepts(constraint, text)
    tag = json.dumps(constraint.to_structural_tag())
    assert tag.count('"type": "json_schema"') == tag.count('"max_whitespace_cnt": 22')
