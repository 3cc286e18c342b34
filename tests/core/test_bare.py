"""Arguments with bare keys and quotes of their own, by example and by property."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Limits, Message, ToolCall, ToolCallArguments
from unbraid.core import diagnostics

from ..constraints.walks import constraint_accepts
from ..formats.vendors.rendering import Template, written
from ..formats.vendors.turns import TOOLS as TEMPLATE_TOOLS
from ..formats.vendors.turns import TURNS, Turn
from ..support import strategies
from ..support.parsing import kinds, parse, stream

GEMMA = unbraid.find("gemma-4")
CALL = "<|tool_call>call:f{}<tool_call|>"


def tools(**types: Any) -> list[dict[str, Any]]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return [{"name": "f", "parameters": {"type": "object", "properties": properties}}]


def arguments(text: str) -> str:
    """`'` stands for the quote."""
    return text.replace("'", '<|"|>')


# What the model writes, and the JSON it is.
ARGUMENTS: list[tuple[str, str]] = [
    ("{}", "{}"),
    ("{ \n}", "{}"),
    ("{n:1}", '{"n": 1}'),
    ("{s:'a',n:1,b:true,z:None}", '{"s": "a", "n": 1, "b": true, "z": null}'),
    (
        "{ s : 'a' ,\n n : 1 , b : false , z : null , }",
        '{"s": "a", "n": 1, "b": false, "z": null}',
    ),
    ("{b:True,c:False}", '{"b": true, "c": false}'),
    ("{n:-1.50e-3,m:12345678901234567890.10}", '{"n": -1.50e-3, "m": 12345678901234567890.10}'),
    ("{l:[1,'x',[],{},],o:{k:'v',n:{d:None}}}", '{"l": [1, "x", [], {}], "o": {"k": "v", "n": {"d": null}}}'),
    ("{l:[{a:1},{a:2,b:3}]}", '{"l": [{"a": 1}, {"a": 2, "b": 3}]}'),
    # A string is all that stands between the quotes.
    ("{s:''}", '{"s": ""}'),
    ("{s:' a\n\"b\" \\n '}", '{"s": " a\\n\\"b\\" \\\\n "}'),
    ("{s:'a,b:c}]{<|tool_call><tool_call|> <|'}", '{"s": "a,b:c}]{<|tool_call><tool_call|> <|"}'),
    # What stands bare and is nothing else is a string.
    ("{s:Paris}", '{"s": "Paris"}'),
    ("{s:New York , t:x<y}", '{"s": "New York", "t": "x<y"}'),
    ("{s:007,t:1.,u:-,v:12 34}", '{"s": "007", "t": "1.", "u": "-", "v": "12 34"}'),
    ("{s:nul,t:truer,u:tru e}", '{"s": "nul", "t": "truer", "u": "tru e"}'),
    ("{l:[a b,c],o:{k:d e}}", '{"l": ["a b", "c"], "o": {"k": "d e"}}'),
    # Keys are trimmed, and may stand between quotes as well.
    ("{my key:1,'a:b':2,o:{'}':3, é :4}}", '{"my key": 1, "a:b": 2, "o": {"}": 3, "é": 4}}'),
    ("{:1,o:{:b}}", '{"": 1, "o": {"": "b"}}'),
    ("{'':2}", '{"": 2}'),
    ("{user-id:1,$x.y:2}", '{"user-id": 1, "$x.y": 2}'),
    # Brackets of a call in Python.
    ("(s:'a',n:1)", '{"s": "a", "n": 1}'),
    ("(s:a)", '{"s": "a"}'),
]


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS)
def test_arguments(text: str, expected: str) -> None:
    message = parse("gemma-4", f"<|tool_call>call:f{arguments(text)}<tool_call|>!")
    assert message.tool_calls == (ToolCall("f", expected),)
    assert message.content == "!"
    assert message.diagnostics == ()
    escaped = text.replace("'", "<escape>")
    if "<|" not in text:
        message = parse("functiongemma", f"<start_function_call>call:f{escaped}<end_function_call>!")
        assert message.tool_calls == (ToolCall("f", expected),)


# Other notations that models fall into.
OTHERS: list[tuple[str, str]] = [
    ('{l:["a, b","c]"],o:{"mode": "fast"}}', '{"l": ["a, b", "c]"], "o": {"mode": "fast"}}'),
    ("{l:['a', 'it\\'s']}", '{"l": ["a", "it\'s"]}'),
    ('{"s": "has } brace", "n": 1}', '{"s": "has } brace", "n": 1}'),
    ('{s:"a\\n\\u00e9\\"",t:""}', '{"s": "a\\né\\"", "t": ""}'),
    ("{s='a',t=\"b\",n=3}", '{"s": "a", "t": "b", "n": 3}'),
    ("(s='a', l=['b'])", '{"s": "a", "l": ["b"]}'),
]


@pytest.mark.parametrize(("text", "expected"), OTHERS)
def test_other_quotes(text: str, expected: str) -> None:
    for schema in (None, tools(s="string", t="string", l="array")):
        message = parse("gemma-4", CALL.replace("{}", text) + "!", tools=schema)
        assert message.tool_calls == (ToolCall("f", expected),)
        assert (message.content, message.diagnostics) == ("!", ())


def test_other_quotes_that_do_not_close() -> None:
    for text, said in (("{s:'tis}", '{"s": "tis}'), ('{s:"a\\u00', '{"s": "a\\u00')):
        message = parse("gemma-4", f"<|tool_call>call:f{text}<tool_call|>{CALL}!")
        assert message.tool_calls == (ToolCall("f", said, complete=False), ToolCall("f", "{}"))
        assert message.content == "!"
        assert kinds(message) == [diagnostics.MALFORMED_JSON]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("string", "12345", '"12345"'),
        ("string", "true", '"true"'),
        ("string", "None", '"None"'),
        (["string", "integer"], "12345", "12345"),
        ("integer", "'twenty'", '"twenty"'),
        ("string", "[1]", "[1]"),
        ("integer", "many", '"many"'),
    ],
)
def test_a_bare_value_is_a_string_where_it_can_be_nothing_else(schema: Any, text: str, value: str) -> None:
    call = CALL.replace("{}", arguments(f"{{a:{text},o:{{a:1}}}}"))
    message = parse("gemma-4", call, tools=tools(a=schema))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}, "o": {{"a": 1}}}}'),)
    assert message.diagnostics == ()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("integer", "20", "20"),
        ("number", " -1.5e3", "-1.5e3"),
        ("boolean", "True", "true"),
        (["integer", "null"], "None", "null"),
    ],
)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_around_what_is_no_string_by_the_schema(schema: Any, text: str, value: str, quote: str) -> None:
    call = CALL.replace("{}", arguments(f"{{a:{quote}{text}{quote},o:{{a:{quote}1{quote}}}}}"))
    message = parse("gemma-4", call, tools=tools(a=schema))
    assert message.tool_calls == (ToolCall("f", f'{{"a": {value}, "o": {{"a": "1"}}}}'),)
    assert kinds(message) == [diagnostics.REPAIRED]


# What breaks: passed on as it is, up to a marker.
BROKEN: list[tuple[str, str, str]] = [
    ("{n:1", '{"n": 1', diagnostics.MALFORMED_JSON),
    ("{l:[1", '{"l": [1', diagnostics.MALFORMED_JSON),
    ("{n}", "n}", diagnostics.MALFORMED_JSON),
    ("{n:}", '{"n": }', diagnostics.MALFORMED_JSON),
    ("{n:,m:1}", '{"n": ,m:1}', diagnostics.MALFORMED_JSON),
    ("{n::1}", '{"n": :1}', diagnostics.MALFORMED_JSON),
    ("{l:[1}", '{"l": [1}', diagnostics.MALFORMED_JSON),
    ("{s:'a' b}", '{"s": "a"b}', diagnostics.MALFORMED_JSON),
    ("{s:a'b'}", '{"s": "a"<|"|>b<|"|>}', diagnostics.MALFORMED_JSON),
    ("{o:{a:1,{}}}", '{"o": {"a": 1, {}}}', diagnostics.MALFORMED_JSON),
    ("{a:1,,}", '{"a": 1,}', diagnostics.MALFORMED_JSON),
    ("{" + "a" * 300 + ":1}", "a" * 300 + ":1}", diagnostics.TOO_LONG),
    ("{'" + "a" * 300 + "':1}", '<|"|>' + "a" * 300 + '<|"|>:1}', diagnostics.TOO_LONG),
    ("{l:" + "[" * 600 + "}", '{"l": ' + "[" * 600 + "}", diagnostics.TOO_DEEP),
]


@pytest.mark.parametrize(("text", "said", "kind"), BROKEN, ids=[text[:20] for text, _, _ in BROKEN])
def test_what_breaks(text: str, said: str, kind: str) -> None:
    message = parse("gemma-4", f"<|tool_call>call:f{arguments(text)}<tool_call|>{CALL}!")
    assert message.tool_calls == (ToolCall("f", said, complete=False), ToolCall("f", "{}"))
    assert arguments(text) in message.tool_calls[0].raw
    assert message.content == "!"
    assert kinds(message) == [kind]


def test_no_brackets_are_no_arguments() -> None:
    message = parse("gemma-4", "<|tool_call>call:f<tool_call|>!")
    assert message.tool_calls == (ToolCall("f", "{}"),)
    assert message.content == "!"
    assert kinds(message) == [diagnostics.MALFORMED_CALL]


def test_no_call() -> None:
    """What begins as a call is not shown: law 16. In a line, an answer may name it."""
    for text, shown in (
        ("<|tool_call>nonsense<tool_call|>", "nonsense"),
        ("<|tool_call>{a:1}<tool_call|>", ""),
        ("<|tool_call>call:f x<tool_call|>", ""),
    ):
        message = parse("gemma-4", text)
        assert message.content == shown
        assert not message.tool_calls
        named = f"It looks like {text} in the end."
        assert parse("gemma-4", named).content == named


def test_output_that_ends_inside_a_call() -> None:
    text = arguments("<|tool_call>call:f{a:{b:'x',c:[1,Paris")
    for size in range(len("<|tool_call>call:f{"), len(text) + 1):
        message = parse("gemma-4", text[:size])
        assert [call.complete for call in message.tool_calls] == [False]
        assert kinds(message) == [diagnostics.UNFINISHED_CALL]
    message = parse("gemma-4", text)
    assert message.tool_calls[0].arguments == '{"a": {"b": "x", "c": [1, "Paris"'


def test_a_bracket_that_begins_a_marker() -> None:
    format = unbraid.compose(reasoning="mistral", tools="gemma-4")
    message = parse(format, "<|tool_call>call:f{x:[THINK]hm[/THINK]")
    assert message.tool_calls == (ToolCall("f", '{"x": ', complete=False),)
    assert message.reasoning == "hm"


@given(data=st.data())
def test_round_trip(data: st.DataObject) -> None:
    """With a schema or without: a string between quotes is one, whatever it looks like."""
    like_others = st.sampled_from(["3", "true", "None", "[1]", "{}", "", " ", "a:b", "call:f{}"])
    values = st.dictionaries(st.text(max_size=3), strategies.json_values(GEMMA) | like_others, max_size=4)
    value = data.draw(values.filter(lambda value: not any('<|"|>' in text for text in strategies.strings_of(value))))
    message = Message((ToolCall("f", json.dumps(value, ensure_ascii=False)),))
    text = unbraid.render(GEMMA, message)
    given = data.draw(st.sampled_from([None, tools(a="string", n="integer")]))
    parsed, _ = stream(GEMMA, data.draw(st.composite(strategies.cuts)(text)), tools=given)
    assert parsed == message
    assert parsed.diagnostics == ()


def test_rendered_as_the_template_does() -> None:
    call = ToolCall("f", '{"b": true, "f": 1.50, "l": [1, "x"], "o": {"e": [], "k": "v"}, "s": "a\\nb", "z": null}')
    expected = "{b:true,f:1.50,l:[1,'x'],o:{e:[],k:'v'},s:'a\nb',z:None}"
    assert unbraid.render(GEMMA, Message((call,))) == CALL.replace("{}", arguments(expected))
    call = ToolCall("f", '{"a:b": 1, "o": {" ": 2}}')
    assert unbraid.render(GEMMA, Message((call,))) == CALL.replace("{}", arguments("{'a:b':1,o:{' ':2}}"))


TEMPLATE = Template(
    "google-gemma-4-31B-it",
    ("gemma-4",),
    ("<|turn>model\n",),
    ("<|tool_response>",),
    options={"enable_thinking": True},
    reasoning="field",
)


@pytest.mark.parametrize("name", [name for name, turn in TURNS.items() if turn.calls])
def test_what_the_template_writes(name: str) -> None:
    """It sorts the arguments, and writes the content after the calls."""
    turn = Turn(calls=TURNS[name].calls, reasoning=TURNS[name].reasoning)
    prompt, output = written(TEMPLATE, turn, "object")
    message = parse("gemma-4", output, tools=TEMPLATE_TOOLS, prompt=prompt)
    assert message.reasoning == turn.reasoning
    assert [call.name for call in message.tool_calls] == [name for name, _ in turn.calls]
    for call, (_, expected) in zip(message.tool_calls, turn.calls, strict=True):
        assert json.loads(call.arguments) == json.loads(expected)
    assert not message.content
    assert not message.diagnostics
    assert constraint_accepts(unbraid.constraint("gemma-4", tools=TEMPLATE_TOOLS, prompt=prompt), output)


# --- Promptness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ""),
        ("{a", ""),
        ("{a:", '{"a": '),
        ("{a:'", '{"a": "'),
        ("{a:'x", '{"a": "x'),
        ("{a:'x<|", '{"a": "x'),
        ("{a:'x<|b", '{"a": "x<|b'),
        ("{a:1", '{"a": '),
        ("{a:1,", '{"a": 1'),
        ("{a:Pa", '{"a": "Pa'),
        ("{a:t", '{"a": '),
        ("{a:to", '{"a": "to'),
        ("{a:Pa ", '{"a": "Pa'),
        ("{a:Pa x", '{"a": "Pa x'),
        ("{a:[1,[", '{"a": [1, ['),
        ("{a:{b:", '{"a": {"b": '),
        ("{a:{'b':", '{"a": {"b": '),
    ],
)
def test_what_is_known_is_said(text: str, said: str) -> None:
    events = unbraid.parser("gemma-4").feed(f"<|tool_call>call:f{arguments(text)}")
    assert "".join(event.fragment for event in events if isinstance(event, ToolCallArguments)) == said


def test_limits() -> None:
    limits = Limits(number=3, name=4, depth=3)
    for text, kind, said in [
        ("{x:123}", None, '{"x": 123}'),
        ("{x:1234}", None, '{"x": "1234"}'),
        ("{abcd:1}", None, '{"abcd": 1}'),
        ("{abcde:1}", diagnostics.TOO_LONG, "abcde:1}"),
        ("{x:[[1]]}", None, '{"x": [[1]]}'),
        ("{x:[[[1]]]}", diagnostics.TOO_DEEP, '{"x": [[[1]]]}'),
        ("{x:a" + " " * 12 + "}", None, '{"x": "a          "}'),
    ]:
        message = parse("gemma-4", CALL.replace("{}", text), limits=limits)
        assert message.tool_calls == (ToolCall("f", said, complete=kind is None),)
        assert kinds(message) == ([] if kind is None else [kind])


def test_an_audio_code_in_a_string_is_data() -> None:
    format = unbraid.compose(tools="gemma-4", audio="step-audio-2")
    call = CALL.replace("{}", arguments("{x:'<audio_1>'}"))
    message = parse(format, f"<tts_start>a{call}<audio_2><tts_end>")
    assert message.tool_calls == (ToolCall("f", '{"x": "<audio_1>"}'),)
    assert [part.codes for part in message.speech] == [(2,)]


# --- Constraints ---------------------------------------------------------------------------------------------------


def test_the_constraint_knows_the_schema_at_every_depth() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Paris", "Rome"]},
            "when": {
                "type": "object",
                "properties": {"day": {"type": "integer"}, "a:b": {"type": ["boolean", "null"]}},
                "required": ["day"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 2},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    strict = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}]
    constraint = unbraid.constraint("gemma-4", tools=strict, tool_choice="required")
    assert constraint.unenforced("lark") == []
    for text in (
        "{city:'Paris'}",
        "{city:'Rome',when:{day:1,'a:b':None},tags:['a','bc']}",
        "{ city : 'Rome', when: {day: 1, 'a:b': true}}",
    ):
        assert constraint_accepts(constraint, CALL.replace("{}", arguments(text))), text
    for text in (
        "{}",
        "{city:'Oslo'}",
        "{city:Paris}",
        "{city:'Rome',when:{}}",
        "{city:'Rome',when:{day:'1'}}",
        "{city:'Rome',when:{day:1,x:2}}",
        "{city:'Rome',tags:['A']}",
        "{city:'Rome',tags:['a','b','c']}",
        "{city:'Rome',x:1}",
    ):
        assert not constraint_accepts(constraint, CALL.replace("{}", arguments(text))), text
    bad = {"type": "object", "properties": {"s": {"enum": ['a<|"|>']}}}
    with pytest.raises(unbraid.InvalidTools, match="between this format's quotes"):
        unbraid.constraint("gemma-4", tools=[{"name": "f", "strict": True, "parameters": bad}])


@pytest.mark.parametrize("before", [":", " : "])
def test_a_call_without_its_word_is_repaired(before: str) -> None:
    message = parse("gemma-4", f"<|tool_call>{before}caller{{a:1}}<tool_call|>")
    assert message.tool_calls == (ToolCall("caller", '{"a": 1}'),)
    assert kinds(message) == [diagnostics.REPAIRED]


def test_a_string_with_the_quote_in_it_is_refused() -> None:
    for value in ('<|"|>', 'a <|"|> b', ['<|"|>'], {"k": '<|"|>'}):
        with pytest.raises(unbraid.UnbraidError, match="it ends there"):
            unbraid.render(GEMMA, Message((ToolCall("f", json.dumps({"s": value})),)))
