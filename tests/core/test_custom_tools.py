"""Custom tools: their definitions, and their input in the arguments of a call."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import CustomInput, InvalidTools, Tools, all_formats, render
from unbraid.core.custom_tools import Grammar, arguments_of, input_of
from unbraid.core.message import Message, ToolCall

from ..support.examples import examples
from ..support.parsing import parse

LARK = {"syntax": "lark", "definition": "start: /a+/"}
PATCH = "*** Begin Patch\n*** Add File: a b.py\n+print(\"ä😀\\n\", {1: 'x'})\n+\t3\n*** End Patch\n"


def custom(**fields: Any) -> dict[str, Any]:
    return {"type": "custom", **fields}


@pytest.mark.parametrize(
    ("definition", "grammar"),
    [
        (custom(name="f"), None),
        (custom(name="f", format={"type": "text"}), None),
        (custom(name="f", description=None, format=None), None),
        (custom(custom={"name": "f", "description": "…"}), None),
        (custom(name="f", format={"type": "grammar", **LARK}), Grammar("lark", "start: /a+/")),
        (custom(custom={"name": "f", "format": {"type": "grammar", "grammar": LARK}}), Grammar("lark", "start: /a+/")),
        (
            custom(custom={"name": "f", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}),
            Grammar("regex", "a+"),
        ),
    ],
)
def test_every_way_to_define_one(definition: dict[str, Any], grammar: Grammar | None) -> None:
    tools = Tools([{"name": "g"}, definition])
    assert list(tools["f"]["properties"]) == list(tools["f"]["required"]) == ["input"]
    found = tools.custom("f")
    assert found is not None
    assert found.grammar == grammar
    assert tools.strict("f") is (grammar is not None)
    assert tools.custom("g") is tools.custom("h") is None
    assert tools.copy().custom("f") == tools.only(["f"]).custom("f") == found
    assert tools.only(["g"]).custom("f") is None


BAD: list[tuple[Any, str]] = [
    (custom(), "tools[0].name"),
    (custom(custom="f"), "tools[0].custom"),
    (custom(custom={"name": " "}), "tools[0].custom.name"),
    (custom(name="f", description=3), "tools[0].description"),
    (custom(name="f", format="text"), "tools[0].format"),
    (custom(name="f", format={"type": "json"}), "tools[0].format.type"),
    (custom(custom={"name": "f", "format": {}}), "tools[0].custom.format.type"),
    (custom(name="f", format={"type": "grammar", "grammar": 3}), "tools[0].format.grammar"),
    (custom(name="f", format={"type": "grammar", "syntax": "gbnf", "definition": "a"}), "tools[0].format.syntax"),
    (custom(name="f", format={"type": "grammar", "grammar": {**LARK, "definition": 5}}), "tools[0].format.grammar.def"),
    (custom(name="f", format={"type": "grammar", **LARK, "definition": "a" * 100_001}), "tools[0].format.definition"),
]


@pytest.mark.parametrize(("definition", "field"), BAD, ids=[str(at) for at in range(len(BAD))])
def test_what_is_wrong_with_one_is_said(definition: Any, field: str) -> None:
    with pytest.raises(InvalidTools) as raised:
        Tools([definition])
    assert (raised.value.field or "").startswith(field)
    assert "tools[0]" in str(raised.value)


def test_defined_twice() -> None:
    same = [custom(name="f", description="a"), custom(custom={"name": "f"})]
    assert list(Tools(same)) == ["f"]
    function = {"name": "f", "parameters": Tools(same)["f"]}
    for other in (custom(name="f", format={"type": "grammar", **LARK}), function):
        with pytest.raises(InvalidTools, match=r"tools\[1\]: 'f' is defined twice"):
            Tools([same[0], other])
        with pytest.raises(InvalidTools, match=r"tools\[1\]: 'f' is defined twice"):
            Tools([other, same[0]])


def test_a_prompt_shows_a_function() -> None:
    tool = Tools([custom(name="f", description="Does it.", format={"type": "grammar", **LARK})]).custom("f")
    assert tool is not None
    function = tool.as_function()["function"]
    assert function["name"] == "f"
    assert function["parameters"] == tool.parameters
    assert function["description"].startswith("Does it.\n\n")
    assert "Lark:\nstart: /a+/" in function["description"]


@pytest.mark.parametrize("format", [format.name for format in all_formats() if format.tools is not None])
def test_the_input_comes_back_in_every_format(format: str) -> None:
    tools = [custom(name="apply_patch"), {"name": "other"}]
    text = render(format, Message((ToolCall("apply_patch", arguments_of(PATCH), "abcdefghi"),)))
    (call,) = parse(format, text, tools=tools, prompt="").tool_calls
    assert input_of(call.arguments) == PATCH


# --- The input, decoded ------------------------------------------------------------------------------------------


def decoded(fragments: list[str]) -> tuple[str, bool]:
    decoder = CustomInput()
    text = "".join(map(decoder.feed, fragments)) + decoder.finish()
    return text, decoder.complete


def cut(text: str, at: list[int]) -> list[str]:
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in at)})
    return [text[a:b] for a, b in pairwise(places)]


characters = st.one_of(
    st.sampled_from('"\\/\n\t\r\b\f\x00 {}:,éu😀\U0010ffff'), st.characters(exclude_categories=["Cs"])
)
cuts = st.lists(st.integers(0, 10_000), max_size=8)
spaces = st.text(" \t\n\r", max_size=3)


@st.composite
def written(draw: st.DrawFn) -> str:
    """An object with the one string, in any of the ways that JSON has to write it."""
    said = ""
    for char in draw(st.text(characters, max_size=12)):
        units = char.encode("utf-16-be").hex()
        escapes = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        ways = [json.dumps(char)[1:-1], json.dumps(char, ensure_ascii=False)[1:-1], escapes, escapes.upper()]
        said += draw(st.sampled_from([way.replace("\\U", "\\u") for way in ways]))
    parts = [
        draw(spaces),
        "{",
        draw(spaces),
        '"input"',
        draw(spaces),
        ":",
        draw(spaces),
        f'"{said}"',
        draw(spaces),
        "}",
    ]
    return "".join([*parts, draw(spaces)])


@examples(20)
@given(written(), cuts)
def test_the_input_is_what_the_string_says_however_it_is_cut(arguments: str, at: list[int]) -> None:
    said = json.loads(arguments)["input"]
    assert decoded(cut(arguments, at)) == (said, True)
    assert decoded(list(arguments)) == (said, True)
    assert input_of(arguments_of(said)) == said


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(characters, max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
members = st.dictionaries(st.one_of(st.just("input"), st.text(max_size=3)), values, max_size=3)


@examples(20)
@given(st.one_of(members, values).map(json.dumps), cuts)
def test_other_arguments_are_the_input_as_they_are_written(arguments: str, at: list[int]) -> None:
    said = json.loads(arguments)
    text, complete = decoded(cut(arguments, at))
    first = next(iter(said.items()), ("", "")) if isinstance(said, dict) else ("", "")
    is_text = first[0] == "input" and isinstance(first[1], str)
    assert complete is (is_text and len(said) == 1)
    if not is_text:
        assert text == ("" if said == {} else arguments)
    elif not complete:
        assert text.startswith(first[1])
        assert arguments.endswith(text[len(first[1]) :])
        assert text.endswith("}")
    assert decoded(list(arguments)) == (text, complete)


@examples(20)
@given(st.one_of(written(), st.text('{}"input:\\ud8dc0 a', max_size=30)), st.integers(0, 10_000), cuts)
def test_arguments_that_are_cut_off_are_not_complete(arguments: str, end: int, at: list[int]) -> None:
    arguments = arguments[: end % (len(arguments) + 1)]
    text, complete = decoded(cut(arguments, at))
    assert decoded(list(arguments)) == decoded([arguments]) == (text, complete)
    try:
        whole = json.loads(arguments)
    except ValueError:
        assert not complete or any(sign in arguments for sign in "\\\n\r\t")
    else:
        assert complete is (isinstance(whole, dict) and list(whole) == ["input"] and isinstance(whole["input"], str))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ("{}", ""),
        (' { } "x"', ' { } "x"'),
        ('{"inp', '{"inp'),
        ('{"input": 3}', '{"input": 3}'),
        ('{"input": "a", "b": 1}', 'a", "b": 1}'),
        ('{"input": "a"} more', 'a"} more'),
        ('{"input": "a\\', "a\\"),
        ('{"input": "a\\u00', "a\\u00"),
        ('{"input": "\\ud83d', "\\ud83d"),
        ('{"input": "a\\qb"}', "a\\qb"),
        ('{"input": "\\ud83dx\\ude00"}', "\\ud83dx\\ude00"),
        ('{"input": "two\nlines"}', "two\nlines"),
    ],
)
def test_what_is_not_as_it_should_be_is_kept(arguments: str, text: str) -> None:
    for size in range(1, len(arguments) + 2):
        assert decoded([arguments[at : at + size] for at in range(0, len(arguments), size)])[0] == text
