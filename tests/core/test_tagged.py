"""Arguments between tags, by example and by property: which value a text is, and when that is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Diagnostic, Event, Limits, Message, ToolCall, ToolCallArguments
from unbraid.core import diagnostics

from ..support import strategies
from ..support.parsing import kinds, parse, stream

CODER = unbraid.find("qwen3-coder")
CALL = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
NOTATION = strategies.notation_of(CODER)
assert NOTATION is not None
ENDS = NOTATION.ends(CODER)


def tools(**types: Any) -> list[dict[str, Any]]:
    """The tool `f`, with parameters of these types or schemas."""
    properties = {key: {"type": kind} if isinstance(kind, str | list) else kind for key, kind in types.items()}
    return [{"name": "f", "parameters": {"type": "object", "properties": properties}}]


def tagged(value: str, key: str = "a") -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


# Schema, what the model writes, the JSON it is.
VALUES: list[tuple[Any, str, str]] = [
    ("string", "Paris", '"Paris"'),
    ("string", "", '""'),
    ("string", "3", '"3"'),
    ("string", "null", '"null"'),
    ("string", '{"a": 1}', '"{\\"a\\": 1}"'),
    ("string", ' "é"\n\n\t\\n ', '" \\"é\\"\\n\\n\\t\\\\n "'),
    ("string", "a < b </b> <parameter x> </param", '"a < b </b> <parameter x> </param"'),
    ("string", "<tool_call> <function=f>", '"<tool_call> <function=f>"'),
    ("integer", "3", "3"),
    ("number", "-1.50e-3", "-1.50e-3"),
    ("integer", "9007199254740993", "9007199254740993"),
    ("boolean", "true", "true"),
    ("boolean", "True", "true"),
    ("boolean", " False ", "false"),
    ("null", "None", "null"),
    ("integer", "null", "null"),
    (["boolean", "null"], "None", "null"),
    ("array", "[1,  2]", "[1,  2]"),
    ("array", ' ["</parameter>", "</tool_call>"]\n', ' ["</parameter>", "</tool_call>"]'),
    ("object", '{"a": {"b": "<parameter=c>"}}', '{"a": {"b": "<parameter=c>"}}'),
    # As Python writes it.
    ("array", "['a', \"b\"]", '["a", "b"]'),
    ("array", "[1, True]", "[1, true]"),
    ("array", "[\"a\", 'it\\'s', {'k': ('x', 1.5), 2: []}]", '["a", "it\'s", {"k": ["x", 1.5], "2": []}]'),
    ("array", "['</parameter>',]", '["</parameter>"]'),
    ("object", '{\'a\': {"b": [None]}, "c": 2}', '{"a": {"b": [null]}, "c": 2}'),
    # Where it may be a string and more, it is JSON if all of it is; but a string stands bare.
    (None, "3", "3"),
    (None, "3 ", "3 "),
    (None, "3 apples", '"3 apples"'),
    (None, "-", '"-"'),
    (None, "01", '"01"'),
    (None, "1.5", "1.5"),
    (None, "1.", '"1."'),
    (None, "true", "true"),
    (None, "True", '"True"'),
    (None, "no", '"no"'),
    (None, "nul", '"nul"'),
    (None, '"quoted"', '"\\"quoted\\""'),
    (None, '[1, {"a": null}]', '[1, {"a": null}]'),
    (None, "[1, 2", '"[1, 2"'),
    (None, "[link](there)", '"[link](there)"'),
    (None, "{} {}", '"{} {}"'),
    (None, '["a\nb"]', '"[\\"a\\nb\\"]"'),
    (None, "\n  \n", '"\\n  \\n"'),
    (["string", "integer"], "3", "3"),
    (["string", "integer"], "true", '"true"'),
    (["string", "null"], "[1]", '"[1]"'),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),
]


@pytest.mark.parametrize(("schema", "text", "value"), VALUES)
def test_values(schema: Any, text: str, value: str) -> None:
    given = tools() if schema is None else tools(a=schema)
    message = parse("qwen3-coder", CALL.format(tagged(text) + tagged("last", "z")), tools=given)
    assert message.parts == (ToolCall("f", f'{{"a": {value}, "z": "last"}}'),)
    assert message.diagnostics == ()


# Values that are not what the schema says: kept, and reported.
MISFITS: list[tuple[str, str, str, bool]] = [
    ("integer", "many", '"many"', True),
    ("integer", "12 or so", '"12 or so"', True),
    ("integer", "", '""', True),
    ("boolean", "yes", '"yes"', True),
    ("boolean", "3", '"3"', True),
    ("object", '"{}"', '"\\"{}\\""', True),
    ("array", "[1, 2", "[1, 2\n", False),
    ("array", "[1, oops]", "[1, oops]", False),
    ("array", "[1] [2]", "[1][2]", False),
    ("array", "['a', oops, 'b']", "[\"a\", oops, 'b']", False),
    ("array", "['a' 'b']", "[\"a\"'b']", False),
    ("array", "[Truth]", "[Truth]", False),
    ("object", "{'a': 1", '{"a": 1', False),
    ("object", "{a: 1}", '"{a: 1}"', True),
    ("object", '{"a": "x\ny"}', '{"a": "x\ny"}', False),
]


@pytest.mark.parametrize(("schema", "text", "value", "complete"), MISFITS)
def test_misfits(schema: str, text: str, value: str, complete: bool) -> None:
    message = parse("qwen3-coder", CALL.format(tagged(text) + tagged("last", "z")), tools=tools(a=schema))
    assert message.parts == (ToolCall("f", f'{{"a": {value}, "z": "last"}}', complete=complete),)
    assert kinds(message) == [diagnostics.MALFORMED_JSON]


NUMBERS = {"018956": "18956", "+5": "5", "-.5": "-0.5", "5.": "5.0", "1_000": "1000", "0x1F": "31", " 007 ": "7"}
"""Numbers that JSON writes otherwise."""


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_that_json_writes_otherwise(text: str) -> None:
    """Where the schema leaves no string: `007` may as well be an agent."""
    message = parse("qwen3-coder", CALL.format(tagged(text)), tools=tools(a="number"))
    assert message.parts == (ToolCall("f", f'{{"a": {NUMBERS[text]}}}'),)
    assert kinds(message) == [diagnostics.REPAIRED]
    others: list[Any] = ["string", ["string", "number"], {}]
    for schema in others:
        message = parse("qwen3-coder", CALL.format(tagged(text)), tools=tools(a=schema))
        assert message.parts == (ToolCall("f", json.dumps({"a": text})),)
        assert not message.diagnostics


# Tags that are missing or out of place: text, arguments, whether the call is complete, diagnostics, content.
TAGS: dict[str, tuple[str, str, bool, list[str], str]] = {
    "no whitespace": ("<parameter=a>x</parameter><parameter=b>y</parameter>", '{"a": "x", "b": "y"}', True, [], ""),
    "more whitespace": (
        "\n <parameter=a>\n\n x \n\n</parameter>\n\n <parameter=b>y</parameter> ",
        '{"a": "\\n x \\n", "b": "y"}',
        True,
        [],
        "",
    ),
    "none": ("", "{}", True, [], ""),
    "an odd name": (tagged("x", 'a "b" c='), '{"a \\"b\\" c=": "x"}', True, [], ""),
    "twice": (tagged("x") * 2, '{"a": "x", "a": "x"}', True, [diagnostics.DUPLICATE_KEY], ""),
    "not closed before the next": (
        "<parameter=a>\nx\n<parameter=b>\ny\n</parameter>\n",
        '{"a": "x", "b": "y"}',
        True,
        [diagnostics.MALFORMED_CALL],
        "",
    ),
    "the last not closed": ("<parameter=a>\n12\n", '{"a": 12}', True, [diagnostics.MALFORMED_CALL], ""),
    "the tag of an argument that the schema has not": (
        "<parameter=a>\nx\n<parameter=c>\ny\n</parameter>\n",
        '{"a": "x\\n<parameter=c>\\ny"}',
        True,
        [],
        "",
    ),
    "the tag of a later argument inside a line": (
        "<parameter=a>\nx <parameter=b>\ny\n</parameter>\n",
        '{"a": "x <parameter=b>\\ny"}',
        True,
        [],
        "",
    ),
    "the tag of an earlier argument": (
        "<parameter=b>\nx\n<parameter=a>\ny\n</parameter>\n",
        '{"b": "x\\n<parameter=a>\\ny"}',
        True,
        [],
        "",
    ),
    "text between": (
        tagged("x") + "and",
        '{"a": "x"',
        False,
        [diagnostics.MALFORMED_CALL],
        "and</function>",
    ),
    "a broken tag": ("<parameter=a<b>", "", False, [diagnostics.MALFORMED_CALL], "<parameter=a<b></function>"),
    "a name without end": (
        f"<parameter={'a' * 300}>",
        "",
        False,
        [diagnostics.TOO_LONG],
        f"<parameter={'a' * 300}></function>",
    ),
}


@pytest.mark.parametrize(("text", "arguments", "complete", "reported", "content"), TAGS.values(), ids=TAGS)
def test_tags(text: str, arguments: str, complete: bool, reported: list[str], content: str) -> None:
    message = parse("qwen3-coder", CALL.format(text), tools=tools(a={}, b={}), end_of_turn=True)
    assert message.tool_calls == (ToolCall("f", arguments, complete=complete),)
    assert kinds(message) == reported
    assert message.content == content


@pytest.mark.parametrize(
    ("text", "arguments", "complete"),
    [
        ("", "{}", False),
        ("</function>", "{}", True),
        ("<param", "", False),
        ("<parameter=a", "", False),
        ("<parameter=a>", '{"a": ""}', False),
        ("<parameter=a>\nPar", '{"a": "Par"}', False),
        ("<parameter=a>\nPar\n</para", '{"a": "Par', False),
        ("<parameter=a>\nPar\n</function>", '{"a": "Par"}', False),
        ("<parameter=a>\nPar\n</tool_call>", '{"a": "Par"}', False),
        ("<parameter=a>\nPar\n</function>\n</tool_call>\n", '{"a": "Par"}', True),
        ("<parameter=a>\n12", '{"a": 12}', False),
        ("<parameter=l>\n[1, ", '{"l": [1, ', False),
        ("<parameter=l>\n[1]", '{"l": [1]}', False),
        ("<parameter=l>\n[1]</function></tool_call>", '{"l": [1]}', True),
        (tagged("x"), '{"a": "x"}', False),
        (tagged("x") + "</func", '{"a": "x"}', False),
        (tagged("x") + "</function>", '{"a": "x"}', True),
    ],
)
def test_output_that_ends_inside_a_call(text: str, arguments: str, complete: bool) -> None:
    text = f"<tool_call>\n<function=f>\n{text}"
    message = parse("qwen3-coder", text, tools=tools(l="array"), end_of_turn=True)
    assert message.tool_calls == (ToolCall("f", arguments, complete=complete),)
    # Where the model has not ended its turn, more would have come.
    (cut_off,) = parse("qwen3-coder", text, tools=tools(l="array")).tool_calls
    assert cut_off.complete == ("Par" not in text and "</function>" in text)
    assert arguments.startswith(cut_off.arguments)


def test_a_call_that_is_not_closed_loses_nothing() -> None:
    message = parse("qwen3-coder", f"<tool_call>\n<function=f>\n{tagged('x')}</tool_call>ok")
    assert message.tool_calls == (ToolCall("f", '{"a": "x"}'),)
    assert kinds(message) == [diagnostics.MALFORMED_CALL]
    assert message.content == "ok"


def test_a_call_to_no_tool_of_the_request_is_text() -> None:
    text = CALL.format(tagged("3") + tagged("[1, 2]", "b") + tagged("x")).replace("=f>", "=g>")
    message = parse("qwen3-coder", text, tools=tools())
    assert message.content == text
    assert not message.tool_calls


@given(data=st.data())
def test_round_trip_with_a_schema(data: st.DataObject) -> None:
    """With its type known, a string may look like anything but the end of it; and in arrays and objects all is data."""
    values = data.draw(st.dictionaries(st.sampled_from("abcde"), strategies.json_values(CODER), max_size=4))
    numbers = st.sampled_from(["3", "true", "null", "[1]", "{}", '"', " 3\n", "\n"])
    values = {key: data.draw(numbers) if value == "" else value for key, value in values.items()}
    ends = ENDS
    values = {k: v for k, v in values.items() if not (isinstance(v, str) and any(end in v for end in ends))}
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    given = tools(**{key: names.get(type(value), "null") for key, value in values.items()})
    message = Message((ToolCall("f", json.dumps(values, ensure_ascii=False)),))
    text = unbraid.render(CODER, message)
    parsed, _ = stream(CODER, data.draw(st.composite(strategies.cuts)(text)), tools=given)
    assert parsed == message
    assert parsed.diagnostics == ()


# --- XML -----------------------------------------------------------------------------------------------------------


def xml(value: str, key: str = "a") -> str:
    return f'<function name="f"><param name="{key}">{value}</param></function>'


# Schema, what the model writes, the JSON it is.
XML: list[tuple[Any, str, str]] = [
    ("string", "a &lt; b &amp;&amp; c &gt; d", '"a < b && c > d"'),
    ("string", "&quot;&apos;&#65;&#x1F600;&#10;", '"\\"\'A😀\\n"'),
    ("string", "&amp;lt;", '"&lt;"'),
    # An ampersand that begins no entity is one.
    ("string", "a & b &c; &; &# &#x; &#xD800; &#9999999; &lt", '"a & b &c; &; &# &#x; &#xD800; &#9999999; &lt"'),
    ("string", "<![CDATA[<a href='x'>&lt;</param></function>]]>", "\"<a href='x'>&lt;</param></function>\""),
    ("string", "<![CDATA[a]]]]><![CDATA[>b]]>", '"a]]>b"'),
    ("string", "x<![CDATA[]]>y<![CDATA[ ]] > ]]>\n", '"xy ]] > \\n"'),
    ("string", "]]> <![CDAT", '"]]> <![CDAT"'),
    ("integer", "<![CDATA[3]]>", "3"),
    ("boolean", "<![CDATA[True]]>", "true"),
    ("array", '[&quot;a&quot;, "&lt;"]', '["a", "<"]'),
    ("object", '<![CDATA[{"a": "</param>"}]]>', '{"a": "</param>"}'),
    (None, "3", "3"),
    (None, "<![CDATA[[1, 2]]]>", "[1, 2]"),
    (None, "[1, <![CDATA[&]]>]", '"[1, &]"'),
    (None, "&#51;", "3"),
    (None, "&#51; apples", '"3 apples"'),
    (None, "&#32;&#10;", '" \\n"'),
    (None, "<![CDATA[]]>", '""'),
]


@pytest.mark.parametrize(("schema", "text", "value"), XML)
def test_xml(schema: Any, text: str, value: str) -> None:
    given = tools() if schema is None else tools(a=schema)
    message = parse("minicpm-5", xml(text) + "!", tools=given)
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}'),)
    assert message.content == "!"
    assert message.diagnostics == ()


@pytest.mark.parametrize(
    ("schema", "text", "value", "complete"),
    [
        ("integer", "a &lt; b", '"a < b"', True),
        ("array", "[1, 2", "[1, 2", False),
        ("array", "[1, &oops]", "[1, &oops]", False),
        ("array", "[1]&lt;", "[1]<", False),
        ("object", "{&quot;a&quot;: &quot;x\ny&quot;}", '{"a": "x\ny"}', False),
    ],
)
def test_xml_that_is_not_what_the_schema_says(schema: str, text: str, value: str, complete: bool) -> None:
    message = parse("minicpm-5", xml(text), tools=tools(a=schema))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}', complete=complete),)
    assert kinds(message) == [diagnostics.MALFORMED_JSON]


def test_xml_calls() -> None:
    text = (
        '<think>\nhm\n</think>\n\nLook:\n<function name="f"><param name="s">北京</param><param name="n">3</param>'
        '</function>\n<function name="g"></function>\n<function name="h"><arguments>\n<param name="a &quot;b&quot;">'
        "x</param>\n</arguments></function> Done."
    )
    message = parse("minicpm-5", text)
    assert message.reasoning == "hm"
    assert message.tool_calls == (
        ToolCall("f", '{"s": "北京", "n": 3}'),
        ToolCall("g", "{}"),
        ToolCall("h", '{"a \\"b\\"": "x"}'),
    )
    assert message.content == "Look: Done."
    assert message.diagnostics == ()


def test_xml_output_that_ends_inside_a_value() -> None:
    for text, value in {
        "a &l": "a &l",
        "<![CDATA[a]": "a]",
        "a<![CDA": "a<![CDA",
        "<![CDATA[a</param>": "a</param>",
    }.items():
        message = parse("minicpm-5", f'<function name="f"><param name="a">{text}', end_of_turn=True)
        assert message.tool_calls == (ToolCall("f", json.dumps({"a": value}), complete=False),)
        assert kinds(message) == [diagnostics.UNCLOSED]
        assert not parse("minicpm-5", f'<function name="f"><param name="a">{text}').tool_calls[0].complete


def test_xml_that_says_nothing_is_not_held_back_for_ever() -> None:
    limits = Limits(held=50)
    for text, value in [("<![CDATA[]]>" * 3 + "1", "1"), ("<![CDATA[]]>" * 9 + "1", '"1"')]:
        message = parse("minicpm-5", xml(text), limits=limits)
        assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}'),)


@given(data=st.data())
def test_xml_round_trip_with_a_schema(data: st.DataObject) -> None:
    """With its type known, a string may look like anything at all."""
    format = unbraid.find("minicpm-5")
    bits = ["3", "]]>", "]", ">", "&", "&lt;", "<", "</param>", "</function>", "<![CDATA[", '"', "\n", "é", "&#65;"]
    text = st.lists(st.sampled_from(bits), max_size=6).map("".join)
    key = st.text(st.sampled_from('a&<>"; é'), max_size=4)
    value = data.draw(st.dictionaries(key, text | st.lists(text, max_size=2), max_size=3))
    given = tools(**{key: "string" if isinstance(inner, str) else "array" for key, inner in value.items()})
    message = Message((ToolCall("f", json.dumps(value, ensure_ascii=False)),))
    written = unbraid.render(format, message)
    parsed, _ = stream(format, data.draw(st.composite(strategies.cuts)(written)), tools=given)
    assert parsed == message
    assert parsed.diagnostics == ()


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ("string", "a &l", '"a '),
        ("string", "a &lt;", '"a <'),
        ("string", "a &x", '"a &x'),
        ("string", "a <![CDAT", '"a '),
        ("string", "<![CDATA[a]", '"a'),
        ("string", "<![CDATA[a]b&lt;</param>", '"a]b&lt;</param>'),
        ("array", "[1, ", "[1"),
        ("array", "[1, &quot;", '[1, "'),
        ("array", "<![CDATA[[1, ", "[1"),
        (None, "[1, &quot;", ""),
        (None, "&lt;", '"<'),
    ],
)
def test_of_xml_only_an_entity_or_a_section_waits(schema: Any, text: str, said: str) -> None:
    parser = unbraid.parser("minicpm-5", tools=tools() if schema is None else tools(a=schema))
    events = parser.feed(f'<function name="f"><param name="a">{text}')
    fragments = [event.fragment for event in events if isinstance(event, ToolCallArguments)]
    assert "".join(fragments) == '{"a": ' + said


# --- Promptness ----------------------------------------------------------------------------------------------------


def said_after(text: str, given: list[dict[str, Any]] | None = None) -> str:
    parser = unbraid.parser("qwen3-coder", tools=given)
    events = parser.feed("<tool_call>\n<function=f>\n<parameter=a>\n" + text)
    return "".join(event.fragment for event in events if isinstance(event, ToolCallArguments))


@given(
    value=st.lists(st.sampled_from(["x", "\n", "<", "</", "param", "</parameter", "<tool_call>", "é", '"']), max_size=8)
)
def test_a_string_waits_only_for_what_may_be_its_end(value: list[str]) -> None:
    text = "".join(value)
    ends = ["\n" * n + end for end in ENDS for n in (0, 1)]
    for size in range(len(text) + 1):
        said = said_after(text[:size], tools(a="string"))
        passed = json.loads(said.removeprefix('{"a": ') + '"')
        waiting = text[len(passed) : size]
        assert text.startswith(passed)
        assert not waiting or any(end.startswith(waiting) and end != waiting for end in ends)


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ("string", "3", '"3'),
        ("array", "[1, ", "[1"),
        ("array", "[1, t", "[1, t"),
        ("object", '{"a": "x', '{"a": "x'),
        (None, "H", '"H'),
        (None, "no", '"no'),
        (None, "n", ""),
        (None, "12", ""),
        (None, "12a", '"12a'),
        (None, "12 b", '"12 b'),
        (None, "[1, 2", ""),
        (None, "[a", '"[a'),
        (None, "[1] a", '"[1] a'),
        (None, '"', '"\\"'),
        (["string", "null"], "[", '"['),
        ("integer", "m", '"m'),
    ],
)
def test_a_value_waits_only_while_it_may_be_two_things(schema: Any, text: str, said: str) -> None:
    assert said_after(text, tools() if schema is None else tools(a=schema)) == '{"a": ' + said


# --- Limits --------------------------------------------------------------------------------------------------------


def test_limits() -> None:
    limits = Limits(number=5, held=40, depth=3, arguments=2)
    for text, value in [
        ("12345", "12345"),
        ("123456", '"123456"'),
        ("[" + "1, " * 4 + "1]", "[" + "1, " * 4 + "1]"),
        ("[" + "1, " * 20 + "1]", '"[' + "1, " * 20 + '1]"'),
        (" " * 60 + "1", '"' + " " * 60 + '1"'),
        ("[[[[1]]]]", '"[[[[1]]]]"'),
    ]:
        message = parse("qwen3-coder", CALL.format(tagged(text)), limits=limits)
        assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}'),)
    many = "".join(tagged("x", key) for key in "abcc")
    assert kinds(parse("qwen3-coder", CALL.format(many), limits=limits)) == []


def test_what_waits_is_not_read_again() -> None:
    """An array of unknown kind is held to its end; each piece is scanned once, and kept as it came."""
    parser = unbraid.parser("qwen3-coder", keep_message=False)
    parser.feed("<tool_call>\n<function=f>\n<parameter=a>\n[1")
    for _ in range(1000):
        parser.feed(", 1")
        assert len(parser._machine.buffer) - parser._machine.position < 10
    events = parser.feed("]\n</parameter>")
    assert [len(e.fragment) for e in events if isinstance(e, ToolCallArguments)] == [3003]


@pytest.mark.parametrize(
    ("format", "open", "close"),
    [
        ("glm-4.7", "<tool_call>", "</tool_call>"),
        ("ling-3", "<tool_call>", "</tool_call>"),
        ("spark-2.5", "<tool_call>", "</tool_call>"),
        ("iquest-q1", "<iquest_tool_call>", "</iquest_tool_call>"),
        ("hunyuan-4", "<tool_calls><tool_call>", "</tool_call></tool_calls>"),
    ],
)
def test_whitespace_between_tags_says_nothing(format: str, open: str, close: str) -> None:
    pair = "\n<arg_key> a\n</arg_key> \n<arg_value>b</arg_value>\n"
    message = parse(format, f"{open}\nf{pair}{close}")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", '{"a": "b"}')]
    assert not message.diagnostics


def test_whitespace_inside_a_tag_says_nothing() -> None:
    text = '<minimax:tool_call> <invoke  name = "f" ><parameter\nname= "a" >b</parameter></invoke></minimax:tool_call>'
    message = parse("minimax-m2", text, prompt="")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", '{"a": "b"}')]
    assert not message.diagnostics


def test_entities_in_names_and_keys_of_kimi_k3_are_undone() -> None:
    call = ToolCall('f&"g', '{"a\\"&quot;b": "&amp;", "&": 1}')
    text = unbraid.render("kimi-k3", Message((call,)))
    assert 'tool="f&amp;&quot;g"' in text
    assert 'key="a&quot;&amp;quot;b"' in text
    assert parse("kimi-k3", text).tool_calls == (call,)
    assert parse("kimi-k3", text, tools=[{"name": 'f&"g'}]).tool_calls == (call,)
    grammar = unbraid.constraint("kimi-k3", tools=[{"name": 'f&"g'}], tool_choice="required").to_structural_tag()
    assert "f&amp;&quot;g" in json.dumps(grammar)


def test_a_key_that_no_tag_can_hold_is_refused() -> None:
    with pytest.raises(unbraid.UnbraidError, match="cannot be written in this format"):
        unbraid.render("minimax-m2", Message((ToolCall("f", '{"a\\"b": 1}'),)))


INVOKE = '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n{}</｜DSML｜invoke>\n</｜DSML｜function_calls>'


@pytest.mark.parametrize(
    ("schema", "said", "value", "arguments", "reported"),
    [
        ("integer", "true", "3", '{"a": 3}', [diagnostics.REPAIRED]),
        ("object", "true", '{"b": 1}', '{"a": {"b": 1}}', [diagnostics.REPAIRED]),
        ("integer", "true", "three", '{"a": "three"}', [diagnostics.REPAIRED, diagnostics.MALFORMED_JSON]),
        ("string", "false", "null", '{"a": "null"}', [diagnostics.REPAIRED]),
        (["string", "integer"], "true", "3", '{"a": "3"}', []),
        (["string", "integer"], "false", "3", '{"a": 3}', []),
        (["string", "integer"], "false", "three", '{"a": "three"}', [diagnostics.MALFORMED_JSON]),
        ("integer", "maybe", "3", '{"a": 3}', [diagnostics.MALFORMED_CALL]),
    ],
)
def test_where_the_tag_contradicts_the_schema_the_schema_wins(
    schema: Any, said: str, value: str, arguments: str, reported: list[str]
) -> None:
    parameter = f'<｜DSML｜parameter name="a" string="{said}">{value}</｜DSML｜parameter>\n'
    message = parse("deepseek-v3.2", INVOKE.format(parameter), tools=tools(a=schema))
    assert message.tool_calls == (ToolCall("f", arguments),)
    assert kinds(message) == reported


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ("[1, 2,]", "[1, 2]"),
        ('["a" ,\n ]', '["a" ]'),
        ('[{"a": 1,},\t]', '[{"a": 1}]'),
        (r"[{\"a\": \"b\\n\"}, 1]", r'[{"a": "b\n"}, 1]'),
        (r"[\"C:\\\\x\", []]", r'["C:\\x", []]'),
    ],
)
def test_an_array_that_is_not_quite_json_is_repaired(value: str, arguments: str) -> None:
    message = parse("qwen3-coder", CALL.format(tagged(value)), tools=tools(a="array"))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {arguments}}}'),)
    assert set(kinds(message)) == {diagnostics.REPAIRED}


def test_a_comma_waits_for_no_more_than_what_follows_it() -> None:
    parser = unbraid.parser("qwen3-coder", tools=tools(a="array"))
    parser.feed("<tool_call>\n<function=f>\n<parameter=a>\n[1")
    assert fragments(parser.feed(", ")) == ""
    assert fragments(parser.feed('"x')) == ', "x'


def fragments(events: list[Event]) -> str:
    return "".join(event.fragment for event in events if isinstance(event, ToolCallArguments))


WRAPPED = '<｜DSML｜parameter name="arguments" string="true">{}</｜DSML｜parameter>\n'


@pytest.mark.parametrize(
    ("value", "arguments", "reported"),
    [
        ('{"a": 1, "b": [1,  2]}', '{"a": 1, "b": [1,  2]}', [diagnostics.REPAIRED]),
        ("{}", "{}", [diagnostics.REPAIRED]),
        ('{"c": 1}', '{"arguments": "{\\"c\\": 1}"}', []),
        ('{"a": 1', '{"arguments": "{\\"a\\": 1"}', []),
        ("3", '{"arguments": "3"}', []),
        ("", '{"arguments": ""}', []),
    ],
)
def test_arguments_inside_of_one_argument_are_the_arguments(value: str, arguments: str, reported: list[str]) -> None:
    message = parse("deepseek-v3.2", INVOKE.format(WRAPPED.format(value)), tools=tools(a="integer", b="array"))
    assert message.tool_calls == (ToolCall("f", arguments),)
    assert kinds(message) == reported


@pytest.mark.parametrize(
    ("value", "arguments", "reported"),
    [
        ('{"a": 1, "b": ["&lt;x&gt;"]}', '{"a": 1, "b": ["<x>"]}', [diagnostics.REPAIRED]),
        ('<![CDATA[{"a": 1, "b": ["</param>"]}]]>', '{"a": 1, "b": ["</param>"]}', [diagnostics.REPAIRED]),
        ("{'a': 1.10, 'b': ('x', None,)}", '{"a": 1.10, "b": ["x", null]}', [diagnostics.REPAIRED]),
        ('{"a": \'it\\\'s\', "b": True}', '{"a": "it\'s", "b": true}', [diagnostics.REPAIRED]),
        ("{'c': 1}", '{"properties": "{\'c\': 1}"}', []),
        ("{'a': 1", '{"properties": "{\'a\': 1"}', []),
        ("{'a': f(1)}", '{"properties": "{\'a\': f(1)}"}', []),
        ("['a', 1]", '{"properties": "[\'a\', 1]"}', []),
        ("{'a': " + "[" * 200 + "]" * 200 + "}", '{"properties": "{\'a\': ' + "[" * 200 + "]" * 200 + '}"}', []),
    ],
)
def test_xml_may_hold_them_too_and_as_python_writes_them(value: str, arguments: str, reported: list[str]) -> None:
    text = f'<function name="f"><param name="properties">{value}</param></function>'
    message = parse("minicpm-5", text, tools=tools(a="integer", b="array"))
    assert message.tool_calls == (ToolCall("f", arguments),)
    assert kinds(message) == reported


def test_a_space_that_is_missing_inside_of_tags() -> None:
    message = parse("minicpm-5", '<functionname="f"><paramname="a">x</param></function>')
    assert message.parts == (ToolCall("f", '{"a": "x"}'),)


@pytest.mark.parametrize("missing", ["function", "<｜tool_sep｜>", "function<｜tool_sep｜>"])
def test_words_of_a_call_that_are_missing(missing: str) -> None:
    text = unbraid.render("step-3", Message((ToolCall("f", '{"a": "x"}'),)))
    message = parse("step-3", text.replace(missing, ""), prompt="")
    assert message.tool_calls == (ToolCall("f", '{"a": "x"}'),)
    assert set(kinds(message)) == {diagnostics.REPAIRED}


def test_a_tool_that_has_such_an_argument_gets_it() -> None:
    text = INVOKE.format(WRAPPED.format('{"a": 1}'))
    for given_tools in (None, tools(arguments="string")):
        message = parse("deepseek-v3.2", text, tools=given_tools)
        assert message.tool_calls == (ToolCall("f", '{"arguments": "{\\"a\\": 1}"}'),)
        assert not message.diagnostics


def test_json_where_tags_should_be_is_the_arguments() -> None:
    for format, text in (("deepseek-v3.2", INVOKE), ("qwen3-coder", CALL)):
        message = parse(format, text.replace("{}", '{"a": "</x>"}'))
        assert message.tool_calls == (ToolCall("f", '{"a": "</x>"}'),)
        assert kinds(message) == [diagnostics.REPAIRED]


def test_a_call_may_be_one_tag() -> None:
    text = '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f"/>\n<｜DSML｜invoke name="g" />\n</｜DSML｜tool_calls>'
    message = parse("deepseek-v4", text)
    assert message.tool_calls == (ToolCall("f", "{}"), ToolCall("g", "{}"))
    assert kinds(message) == [diagnostics.MALFORMED_CALL] * 2


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("array", "['x', True, None,]", '["x", true, null]'),
        ("object", "{'a': (1, 2)}", '{"a": [1, 2]}'),
        ("object", "{'a&lt;': &quot;&amp;quot;&quot;}", '{"a<": "&quot;"}'),
        ("array", "<![CDATA[['</param>', ]]]>", '["</param>"]'),
        ("array", "[1,<![CDATA[ 2]]]> ", "[1, 2]"),
        ("boolean", "True", "true"),
        ("integer", "None", "null"),
    ],
)
def test_xml_holds_what_python_writes(schema: str, text: str, value: str) -> None:
    message = parse("minicpm-5", f'<function name="f"><param name="a">{text}</param></function>', tools=tools(a=schema))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}'),)
    assert set(kinds(message)) <= {diagnostics.REPAIRED}


@pytest.mark.parametrize(
    ("text", "value", "at"),
    [
        ("[1, foo]", "[1, foo]", 7),
        ("[1] x", "[1]x", 4),
        ("[1, 2", "[1, 2", 5),
        ("&#91;1, &lt;]", "[1, <]", 8),
    ],
)
def test_the_place_of_what_is_wrong_in_xml_does_not_depend_on_cuts(text: str, value: str, at: int) -> None:
    before = '<function name="f"><param name="a">'
    message = parse("minicpm-5", f"{before}{text}</param></function>", tools=tools(a="array"))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}}}', complete=False),)
    assert [(one.kind, one.start - len(before)) for one in message.diagnostics] == [(diagnostics.MALFORMED_JSON, at)]


@pytest.mark.parametrize(
    ("written", "read"), [("True", "true"), ("False", "false"), ("None", "null"), ("Truely", '"Truely"')]
)
def test_what_a_template_of_xml_writes_as_python_does(written: str, read: str) -> None:
    text = f'<function name="f"><param name="a">{written}</param></function>'
    assert parse("minicpm-5", text).tool_calls[0].arguments == f'{{"a": {read}}}'
    typed = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
    assert parse("minicpm-5", text, tools=typed).tool_calls[0].arguments == f'{{"a": "{written}"}}'


@pytest.mark.parametrize("format", ["qwen3-coder", "glm-4.7", "minimax-m2", "deepseek-v3.2"])
def test_a_tag_that_has_begun_shows_that_the_turn_is_not_over(format: str) -> None:
    """A stop text ends an output as the model does, as far as some engines tell."""
    text = unbraid.render(format, unbraid.Message((unbraid.ToolCall("f", '{"a": "/srv/data"}'),)))
    close = text.index("/srv/data") + len("/srv/data")
    tag = text.index("</", close)
    for size in range(tag + 1, text.index(">", tag)):
        (call,) = parse(format, text[:size], end_of_turn=True).tool_calls
        assert not call.complete
    (call,) = parse(format, text[:close], end_of_turn=True).tool_calls
    assert not call.complete
    (call,) = parse(format, text[:close] + text[text.index(">", tag) + 1 :], end_of_turn=True).tool_calls
    assert call.complete


GLM = unbraid.find("glm-4.7")
PAIR = "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        ("<arg_key>a</arg_key>", "{}"),
        ("<arg_key>a</arg_key>\n" + PAIR.format("b", "3"), '{"b": 3}'),
        (PAIR.format("b", "3") + "<arg_key>a</arg_key>", '{"b": 3}'),
        (r"\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n", '{"a": "x"}'),
    ],
)
def test_what_is_repaired_between_tags(inside: str, arguments: str, size: int) -> None:
    """A name without a value is left out, and line breaks may be written as in a string."""
    text = f"<tool_call>f{inside}</tool_call>"
    parser = unbraid.Parser(GLM, tools=tools(a="string", b="integer"))
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.finish()
    assert [(call.name, call.arguments, call.complete) for call in parser.message.tool_calls] == [
        ("f", arguments, True)
    ]
    assert diagnostics.REPAIRED in [event.kind for event in events if isinstance(event, Diagnostic)]


@pytest.mark.parametrize("text", ["{1, 2, 3}", "{ a: 1}", "{1: 2}"])
def test_an_object_that_is_none_is_a_string(text: str) -> None:
    """Nothing of it has gone out before that is told."""
    whole = f"<tool_call>f{PAIR.format('a', text)}</tool_call>"
    [call] = unbraid.parse(GLM, whole, tools=tools(a="object")).tool_calls
    assert (json.loads(call.arguments), call.complete) == ({"a": text}, True)
