"""Arguments as elements, by example and by property: what an element holds, and when that is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Limits, Message, ToolCall, ToolCallArguments
from unbraid.core import diagnostics
from unbraid.schema.kinds import ANY_KIND, ITEMS, kinds_among, schemas_inside

from ..constraints.walks import constraint_accepts
from ..formats.vendors.rendering import Template, written
from ..formats.vendors.turns import TOOLS as TEMPLATE_TOOLS
from ..formats.vendors.turns import TURNS
from ..support import strategies
from ..support.parsing import kinds, parse, stream

M3 = unbraid.find("minimax-m3")
MARK = "]<]minimax[>["


def marked(text: str) -> str:
    """`§` stands for what comes before every tag."""
    return text.replace("§", MARK)


def call(inside: str) -> str:
    return marked(f'§<tool_call>\n§<invoke name="f">{inside}§</invoke>\n§</tool_call>')


def tools(**schemas: Any) -> list[dict[str, Any]]:
    """The tool `f`, with parameters of these types or schemas."""
    properties = {key: {"type": kind} if isinstance(kind, str | list) else kind for key, kind in schemas.items()}
    return [{"name": "f", "parameters": {"type": "object", "properties": properties}}]


POINT = {"type": "object", "properties": {"x": {"type": "number"}, "label": {"type": "string"}}}
NODE = {"type": "object", "properties": {"v": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}

# Schema of `a`, what the model writes, the JSON it is.
VALUES: list[tuple[Any, str, str]] = [
    ("string", "§<a>Paris§</a>", '"Paris"'),
    ("string", "§<a>§</a>", '""'),
    ("string", "§<a>3§</a>", '"3"'),
    ("string", "§<a> <b>\n</b> ]<] §§</a>", f'" <b>\\n</b> ]<] {MARK}"'),
    ("string", "§<a>\n§</a>", '"\\n"'),
    ("integer", "§<a> 3 §</a>", " 3 "),
    ("boolean", "§<a>True§</a>", "true"),
    ("array", "§<a>§</a>", "[]"),
    ("object", "§<a>§</a>", "{}"),
    (["array", "null"], "§<a>null§</a>", "null"),
    (["array", "string"], "§<a>§</a>", '""'),
    ("array", "§<a>§<item>1§</item>§<item>x§</item>§</a>", '[1, "x"]'),
    ("array", "§<a>§<tag>1§</tag>§</a>", "[1]"),
    ("object", "§<a>§<item>1§</item>§</a>", '{"item": 1}'),
    ("array", "§<a>[1,  2]§</a>", "[1,  2]"),
    ("object", '§<a>{"k": "v"}§</a>', '{"k": "v"}'),
    # Inside, the schema says what is what as well.
    (POINT, "§<a>§<x>1§</x>§<label>2§</label>§</a>", '{"x": 1, "label": "2"}'),
    ({"type": "array", "items": POINT}, "§<a>§<item>§<label>1§</label>§</item>§</a>", '[{"label": "1"}]'),
    (
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        "§<a>§<item>1§</item>§</a>",
        '["1"]',
    ),
    ({"type": "object", "additionalProperties": {"type": "string"}}, "§<a>§<k>1§</k>§</a>", '{"k": "1"}'),
    ({"anyOf": [POINT, {"type": "null"}]}, "§<a>§<label>1§</label>§</a>", '{"label": "1"}'),
    ({"$ref": "#/$defs/node"}, "§<a>§<next>§<v>1§</v>§</next>§</a>", '{"next": {"v": "1"}}'),
    # Without one, a text is JSON if all of it is, and items make an array.
    (None, "§<a>3§</a>", "3"),
    (None, "§<a>3 apples§</a>", '"3 apples"'),
    (None, "§<a>§</a>", '""'),
    (None, "§<a>§<item>§<k>1§</k>§</item>§<item>§</item>§</a>", '[{"k": 1}, ""]'),
    (None, "§<a>§<k>1§</k>§<item>x§</item>§</a>", '{"k": 1, "item": "x"}'),
    (None, "§<a>{}§</a>", "{}"),
    # Whitespace between tags says nothing.
    (None, "\n§<a>\n §<k>\n§<item>1§</item>\n§</k>\n§</a>\n", '{"k": [1]}'),
    (None, "§\n<a>§ <k> §\n\t<item>1§\n</item>§\n</k>§ </a>", '{"k": [1]}'),
    ("string", "§<a>x §\n§\n</a>", f'"x {MARK}\\n"'),
    # Odd names.
    (None, "§<a>§<my key>1§</my key>§<é/1>2§</é/1>§<>3§</>§</a>", '{"my key": 1, "é/1": 2, "": 3}'),
]


@pytest.mark.parametrize(("schema", "text", "value"), VALUES)
def test_values(schema: Any, text: str, value: str) -> None:
    given = tools() if schema is None else tools(a=schema)
    given[0]["parameters"]["$defs"] = {"node": NODE}
    message = parse("minimax-m3", call(text + "§<z>last§</z>") + "!", tools=given)
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}, "z": "last"}}'),)
    assert message.content == "!"
    assert message.diagnostics == ()


def test_several_calls() -> None:
    calls = '§<tool_call>\n§<invoke name="f">§<a>1§</a>§</invoke>\n§<invoke name="g">§</invoke>\n§</tool_call>'
    message = parse("minimax-m3", marked(f"<mm:think>hm</mm:think>Hello.{calls}"))
    assert message.reasoning == "hm"
    assert message.content == "Hello."
    assert message.tool_calls == (ToolCall("f", '{"a": 1}'), ToolCall("g", "{}"))
    assert message.diagnostics == ()


def test_whitespace_between_the_mark_and_its_tag_says_nothing() -> None:
    calls = '§<tool_call>\n§<invoke name="f">§<a>1§</a>§</invoke>\n§<invoke name="g">§</invoke>\n§</tool_call>'
    for text in (calls, calls.removeprefix("§<tool_call>\n")):
        for space in ("\n", " ", "\n\t "):
            message = parse("minimax-m3", marked(f"Hello.{text}!".replace("§<", f"§{space}<")))
            assert message.content == "Hello.\n!"
            assert message.tool_calls == (ToolCall("f", '{"a": 1}'), ToolCall("g", "{}"))
            assert message.diagnostics == ()


# Tags that are missing or out of place: arguments, whether the call is complete, diagnostics, content.
TAGS: dict[str, tuple[str, str, bool, list[str], str]] = {
    "not closed before the next": ("§<a>x§<b>y§</b>", '{"a": "x", "b": "y"}', True, [diagnostics.MALFORMED_CALL], ""),
    "the last not closed": ("§<a>12", '{"a": 12}', True, [diagnostics.MALFORMED_CALL], ""),
    "two not closed": ("§<a>§<b>x", '{"a": {"b": "x"}}', False, [diagnostics.MALFORMED_CALL] * 2, ""),
    "closed by what is around it": ("§<o>§<n>1§</o>", '{"o": {"n": 1}}', True, [diagnostics.MALFORMED_CALL], ""),
    "a tag that the schema has not": ("§<a>x§<q>y§</a>", '{"a": "x§<q>y"}', True, [], ""),
    "a closing tag that closes nothing": ("§<a>x§</q>y§</a>", '{"a": "x§</q>y"}', True, [], ""),
    "not closed, and empty": ("§<a>", '{"a": ""}', True, [diagnostics.MALFORMED_CALL], ""),
    "one too many": ("§<a>x§</a>§</a>", '{"a": "x"', False, [diagnostics.MALFORMED_CALL], "§</a>§</invoke>"),
    "text between": ("§<a>x§</a>and", '{"a": "x"', False, [diagnostics.MALFORMED_CALL], "and§</invoke>"),
    "text after members": (
        "§<a>§<b>x§</b>and§</a>",
        '{"a": {"b": "x"',
        False,
        [diagnostics.MALFORMED_CALL],
        "and§</a>§</invoke>",
    ),
    "no JSON of its type": ("§<n>many§</n>", '{"n": "many"}', True, [diagnostics.MALFORMED_JSON], ""),
    "no JSON of its type inside": (
        "§<o>§<n>many§</n>§</o>",
        '{"o": {"n": "many"}}',
        True,
        [diagnostics.MALFORMED_JSON],
        "",
    ),
    "a broken tag": ("§<a<b>", "", False, [diagnostics.MALFORMED_CALL], "§<a<b>§</invoke>"),
}


@pytest.mark.parametrize(("text", "arguments", "complete", "reported", "content"), TAGS.values(), ids=TAGS)
def test_tags(text: str, arguments: str, complete: bool, reported: list[str], content: str) -> None:
    number = {"type": "number"}
    given = tools(a={}, b={}, n=number, o={"type": "object", "properties": {"n": number}})
    message = parse("minimax-m3", call(text), tools=given, end_of_turn=True)
    assert message.tool_calls == (ToolCall("f", marked(arguments), complete=complete),)
    assert kinds(message) == reported
    assert message.content == marked(content)


def test_a_call_that_is_not_closed_loses_nothing() -> None:
    text = '§<tool_call>§<invoke name="f">§<a>x§</a>§<invoke name="g">§<b>y§</b>§</tool_call>ok'
    message = parse("minimax-m3", marked(text))
    assert message.tool_calls == (ToolCall("f", '{"a": "x"}'), ToolCall("g", '{"b": "y"}'))
    assert message.content == "ok"
    assert diagnostics.MALFORMED_CALL in kinds(message)


def test_a_closing_marker_that_goes_wrong_is_text() -> None:
    for rest in ("</tool", "\n", "</x>", " x"):
        message = parse("minimax-m3", call("").removesuffix("</tool_call>") + rest)
        assert message.tool_calls == (ToolCall("f", "{}"),)
        assert message.content == ("" if rest in ("</tool", "\n") else MARK + rest)
        assert kinds(message) == [diagnostics.UNCLOSED]


def test_a_section_that_begins_again() -> None:
    text = marked("§<tool_call>oops") + call("§<a>1§</a>")
    message = parse("minimax-m3", text)
    assert message.tool_calls == (ToolCall("f", '{"a": 1}'),)
    assert message.content == "oops"
    assert kinds(message) == [diagnostics.MALFORMED_CALL]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("§<a>x§</a>§<a>y§</a>", '["x", "y"]'),
        ("§<a>x§</a>", '["x"]'),
        ("§<a>x§</a>\n§<a>[1]§</a>", '["x", [1]]'),
        ("§<a>x§</a>§<a>§<item>y§</item>§</a>", '["x", ["y"]]'),
    ],
)
def test_an_element_for_each_item_of_an_array(text: str, value: str) -> None:
    for rest, said in (("", ""), ("§<z>last§</z>", ', "z": "last"')):
        message = parse("minimax-m3", call(text + rest), tools=tools(a="array"))
        assert message.tool_calls == (ToolCall("f", f'{{"a": {value}{said}}}'),)
        assert kinds(message) == [diagnostics.REPAIRED]


@pytest.mark.parametrize(
    ("text", "arguments", "complete"),
    [
        ("", "{}", False),
        ("§<", "", False),
        ("§<a", "", False),
        ("§<a>", '{"a": ""}', False),
        ("§<a>Par", '{"a": "Par"}', False),
        ("§<a>12]<]mini", '{"a": 12', False),
        ("§<a>x§</a>", '{"a": "x"}', False),
        ("§<a>x§</", '{"a": "x', False),
        ("§<a>§<b>x", '{"a": {"b": "x"', False),
        ("§<a>§<b>x§</b>", '{"a": {"b": "x"', False),
    ],
)
def test_output_that_ends_inside_a_call(text: str, arguments: str, complete: bool) -> None:
    text = marked(f'§<tool_call>\n§<invoke name="f">{text}')
    message = parse("minimax-m3", text, end_of_turn=True)
    assert message.tool_calls == (ToolCall("f", arguments, complete=complete),)
    # Where the model has not ended its turn, more would have come.
    (cut_off,) = parse("minimax-m3", text).tool_calls
    assert not cut_off.complete
    if "]<]mini" not in arguments:  # then what comes is a tag
        assert arguments.startswith(cut_off.arguments)


@given(data=st.data())
def test_round_trip_with_a_schema(data: st.DataObject) -> None:
    """With its type known, a string may look like anything but a tag, however deep it is."""
    texts = st.lists(st.sampled_from(["3", "true", "[1]", "{}", '"', " ", "\n", "<a>", "é", "]<]"]), max_size=4)
    text = texts.map("".join).filter(lambda text: MARK not in text)
    point = st.fixed_dictionaries({}, optional={"x": st.integers(), "label": text})
    value = data.draw(st.fixed_dictionaries({}, optional={"s": text, "p": point, "l": st.lists(point, max_size=3)}))
    given = tools(s="string", p=POINT, l={"type": "array", "items": POINT})
    message = Message((ToolCall("f", json.dumps(value, ensure_ascii=False)),))
    written = unbraid.render(M3, message)
    parsed, _ = stream(M3, data.draw(st.composite(strategies.cuts)(written)), tools=given)
    assert parsed == message
    assert parsed.diagnostics == ()


def test_rendered_as_the_template_does() -> None:
    value = {"s": "a\nb", "n": 1, "b": True, "l": [1, "x"], "o": {"k": "v"}}
    expected = "§<s>a\nb§</s>§<n>1§</n>§<b>true§</b>§<l>§<item>1§</item>§<item>x§</item>§</l>§<o>§<k>v§</k>§</o>"
    assert unbraid.render(M3, Message((ToolCall("f", json.dumps(value)),))) == call(expected)
    # What elements cannot say, JSON can.
    other = '{"e": [], "o": {"item": 1.50}, "p": {"<": {"k": [null]}}}'
    expected = '§<e>[]§</e>§<o>{"item": 1.50}§</o>§<p>{"<": {"k": [null]}}§</p>'
    assert unbraid.render(M3, Message((ToolCall("f", other),))) == call(expected)
    assert parse(M3, call(expected)).tool_calls == (ToolCall("f", other),)


TEMPLATE = Template(
    "MiniMax-M3",
    ("minimax-m3",),
    ("]~b]ai\n</mm:think>",),
    ("[e~[\n",),
    options={"thinking_mode": "disabled"},
)


@pytest.mark.parametrize("name", [n for n, turn in TURNS.items() if not turn.reasoning and n != "nested arguments"])
def test_what_the_template_writes(name: str) -> None:
    """But for what is null in the arguments: that it leaves out."""
    turn = TURNS[name]
    prompt, output = written(TEMPLATE, turn, "object")
    message = parse("minimax-m3", output, tools=TEMPLATE_TOOLS, prompt=prompt)
    assert message == turn.rewritten().message()
    assert not message.diagnostics
    assert constraint_accepts(unbraid.constraint("minimax-m3", tools=TEMPLATE_TOOLS, prompt=prompt), output)


# --- Promptness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("§<a", ""),
        ("§<a>", '{"a": '),
        ("§<a>P", '{"a": "P'),
        ("§<a>3", '{"a": '),
        ("§<a>3§<", '{"a": '),
        ("§<a>3§</a", '{"a": '),
        ("§<a>3§</a>", '{"a": 3'),
        ("§<a>Par]<]mini", '{"a": "Par'),
        ("§<a>Par]<]mino", '{"a": "Par]<]mino'),
        ("§<a>§<item>", '{"a": ['),
        ("§<a>§<k>", '{"a": {"k": '),
        ("§<a>§<k>x§</k>§<l>", '{"a": {"k": "x", "l": '),
        ("§<a>§<k>x§</k>§</a>", '{"a": {"k": "x"}'),
        ("§<s>", '{"s": '),
        ("§<s>3", '{"s": "3'),
        ("§<l>[1, ", '{"l": [1'),
        ("§<l>[1, t", '{"l": [1, t'),
    ],
)
def test_what_is_known_is_said(text: str, said: str) -> None:
    events = unbraid.parser("minimax-m3", tools=tools(s="string", l="array")).feed(
        marked(f'§<tool_call>§<invoke name="f">{text}')
    )
    assert "".join(event.fragment for event in events if isinstance(event, ToolCallArguments)) == said


def test_limits() -> None:
    limits = Limits(name=10, depth=3)
    for text, kind in [
        ("§<abcdefghij>1§</abcdefghij>", None),
        ("§<abcdefghijk>1§</abcdefghijk>", diagnostics.MALFORMED_CALL),
        ("§<a>§<b>§<c>1§</c>§</b>§</a>", None),
        ("§<a>§<b>§<c>§<d>1§</d>§</c>§</b>§</a>", diagnostics.TOO_DEEP),
        (f"§<a>{' ' * 10}§<b>1§</b>§</a>", None),
        (f"§<a>{' ' * 11}§<b>1§</b>", None),
    ]:
        assert kinds(parse("minimax-m3", call(text), limits=limits)) == ([] if kind is None else [kind])


def test_an_audio_code_in_a_text_is_data() -> None:
    format = unbraid.compose(tools="minimax-m3", audio="step-audio-2")
    message = parse(format, f"<tts_start>a{call('§<x>y<audio_1>§</x>')}<audio_2><tts_end>")
    assert message.tool_calls == (ToolCall("f", '{"x": "y<audio_1>"}'),)
    assert [part.codes for part in message.speech] == [(2,)]


# --- Schemas and constraints ---------------------------------------------------------------------------------------


def test_kinds_inside() -> None:
    schema = {
        "properties": {
            "o": {"allOf": [POINT, {"properties": {"y": {"type": "boolean"}}}]},
            "l": {"items": {"oneOf": [{"type": "string"}, POINT]}},
            "n": {"$ref": "#/$defs/node"},
            "loop": {"$ref": "#/properties/loop"},
        },
        "$defs": {"node": NODE},
    }
    for path, expected in [
        (["o", "x"], {"number"}),
        (["o", "y"], {"boolean"}),
        (["o", "z"], ANY_KIND),
        (["l", ITEMS], {"string", "object"}),
        (["l", ITEMS, "label"], {"string"}),
        (["n", "next", "next", "v"], {"string"}),
        (["loop", "x"], ANY_KIND),
        (["unknown", ITEMS, "x"], ANY_KIND),
    ]:
        schemas: list[object] = [schema]
        for key in path:
            schemas = schemas_inside(schema, schemas, key)
        assert kinds_among(schema, schemas) == expected, path


def test_the_constraint_knows_the_types_inside() -> None:
    given = tools(s={"enum": ["a", "b"]}, p=POINT, l={"type": "array", "items": {"type": "number"}})
    function = {**given[0], "strict": True}
    function["parameters"] |= {"required": ["s"], "additionalProperties": False}
    constraint = unbraid.constraint("minimax-m3", tools=[function], tool_choice="required")
    for text in (
        "§<s>a§</s>",
        "§<s>b§</s>§<p>§<x>1§</x>§<label>any text§</label>§</p>§<l>§<item>1§</item>§<item>2§</item>§</l>",
        "§<s>a§</s>§<p>§</p>§<l>§</l>",
        "§<s>a§</s>§<p>§<other>§<deep>x§</deep>§</other>§</p>",
    ):
        assert constraint_accepts(constraint, call(text)), text
    for text in (
        "",
        "§<s>c§</s>",
        "§<s>a§</t>",
        "§<s>a§</s>§<p>x§</p>",
        "§<s>a§</s>§<p>§<x>one§</x>§</p>",
        "§<s>a§</s>§<p>§<label>§<x>1§</x>§</label>§</p>",
        "§<s>a§</s>§<l>§<item>x§</item>§</l>",
        "§<s>a§</s>§<q>1§</q>",
    ):
        assert not constraint_accepts(constraint, call(text)), text
    where = {loose.where for loose in constraint.unenforced("lark")}
    assert where == {f"tool 'f': parameters.properties.{key}" for key in "pl"}
