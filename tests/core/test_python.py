"""Arguments in Python's notation, by example and against Python itself."""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
import warnings
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
from unbraid import Limits, ToolCall, ToolCallArguments
from unbraid.core import diagnostics
from unbraid.core.notations.python_values import literal_as_json

from ..support import strategies
from ..support.parsing import kinds, parse

ORDERED = [{"name": "f", "parameters": {"properties": {"x": {}, "y": {}}}}]

# What stands between the brackets, and the JSON it is.
ARGUMENTS: list[tuple[str, str]] = [
    ("", "{}"),
    (" \n", "{}"),
    ("x=1", '{"x": 1}'),
    (" x = 1 ,\n y = 2 , ", '{"x": 1, "y": 2}'),
    ("user-id='a'", '{"user-id": "a"}'),
    ("x=True, y=False, z=None", '{"x": true, "y": false, "z": null}'),
    ("x=true, y=false, z=null", '{"x": true, "y": false, "z": null}'),
    ("x=1_000, y=+1, z=-0x10, a=0b11, b=0o17", '{"x": 1000, "y": 1, "z": -16, "a": 3, "b": 15}'),
    ("x=.5, y=5., z=-1.5e-3, a=1e5, b=007", '{"x": 0.5, "y": 5.0, "z": -1.5e-3, "a": 1e5, "b": 7}'),
    ("x=12345678901234567890.10", '{"x": 12345678901234567890.10}'),
    ("x=nan, y=-inf", '{"x": "nan", "y": "-inf"}'),
    ("x=[], y=(), z={}", '{"x": [], "y": [], "z": {}}'),
    ("x=[1, (2, 3), [4,],]", '{"x": [1, [2, 3], [4]]}'),
    ("x={'a': 1, \"b\": {'c': [None]}, 3: 4, None: 5,}", '{"x": {"a": 1, "b": {"c": [null]}, "3": 4, "null": 5}}'),
    ("x='', y=\"\", z='''''', a=\"\"\"\"\"\"", '{"x": "", "y": "", "z": "", "a": ""}'),
    ("x='it\\'s', y=\"it's\", z='say \"hi\"'", '{"x": "it\'s", "y": "it\'s", "z": "say \\"hi\\""}'),
    ('x="""a "b" ""c\n""", y=1', '{"x": "a \\"b\\" \\"\\"c\\n", "y": 1}'),
    ("x='a\nb'", '{"x": "a\\nb"}'),
    (r"x='\n\t\\\x41\101\u00e9\U0001F600\0'", '{"x": "\\n\\t\\\\AAé😀\\u0000"}'),
    ("x='a\\\nb'", '{"x": "ab"}'),
    (r"x='\d \/ \x4 \u12 \N{DASH} \U00110000'", r'{"x": "\\d \\/ \\x4 \\u12 \\N{DASH} \\U00110000"}'),
    (r"x='\ud83d\ude00'", r'{"x": "\ud83d\ude00"}'),
    ("x='<|tool_call_end|>', y=')]'", '{"x": "<|tool_call_end|>", "y": ")]"}'),
]


@pytest.mark.parametrize(("text", "arguments"), ARGUMENTS)
def test_arguments(text: str, arguments: str) -> None:
    message = parse("lfm2", f"<|tool_call_start|>[f({text}), g(y=1)]<|tool_call_end|>!")
    assert message.tool_calls == (ToolCall("f", arguments), ToolCall("g", '{"y": 1}'))
    assert message.content == "!"
    assert message.diagnostics == ()


# What is no literal: kept, reported, and the next call is still found.
BROKEN: list[tuple[str, str, str]] = [
    ("x=foo", '{"x": foo', diagnostics.MALFORMED_JSON),
    ("x=g(1, ')'), y=2", "{\"x\": g(1, ')'), y=2", diagnostics.MALFORMED_JSON),
    ("x=1 + 2", '{"x": 1+ 2', diagnostics.MALFORMED_JSON),
    ("x=10**5", '{"x": 10**5', diagnostics.MALFORMED_JSON),
    ("x=[1, 2 for]", '{"x": [1, 2for]', diagnostics.MALFORMED_JSON),
    ("x=['a' 'b']", '{"x": ["a"\'b\']', diagnostics.MALFORMED_JSON),
    ("x={[1]: 2}", '{"x": {[1]: 2}', diagnostics.MALFORMED_JSON),
    ("x=r'a'", "{\"x\": r'a'", diagnostics.MALFORMED_JSON),
    ("x=[1, *y, 2]", '{"x": [1, *y, 2]', diagnostics.MALFORMED_JSON),
    ("x=1, **y", '{"x": 1**y', diagnostics.MALFORMED_CALL),
    ("x==1", '{"x": =1', diagnostics.MALFORMED_JSON),
    ("=1", "=1", diagnostics.MALFORMED_JSON),
    ("'Paris'", "'Paris'", diagnostics.MALFORMED_CALL),
    ("x=1, 2", '{"x": 12', diagnostics.MALFORMED_CALL),
    ("x=1 y=2", '{"x": 1y=2', diagnostics.MALFORMED_JSON),
    ("x=" + "1" * 5000, '{"x": ' + "1" * 5000, diagnostics.TOO_LONG),
    ("x=0x" + "f" * 4090, '{"x": 0x' + "f" * 4090, diagnostics.MALFORMED_JSON),
    ("x=" + "[" * 600 + "]" * 600, '{"x": ' + "[" * 600 + "]" * 600, diagnostics.TOO_DEEP),
    ("x" * 300 + "=1", "x" * 300 + "=1", diagnostics.TOO_LONG),
]


@pytest.mark.parametrize(("text", "arguments", "kind"), BROKEN, ids=[text[:20] for text, _, _ in BROKEN])
def test_no_literals(text: str, arguments: str, kind: str) -> None:
    message = parse("lfm2", f"<|tool_call_start|>[f({text}), g(y=1)]<|tool_call_end|>!")
    first, second = message.tool_calls
    assert first == ToolCall("f", arguments, complete=False)
    assert text in first.raw
    assert second == ToolCall("g", '{"y": 1}')
    assert message.content == "!"
    assert kinds(message) == [kind]


def test_a_missing_bracket_ends_at_the_marker() -> None:
    message = parse("lfm2", "<|tool_call_start|>[f(x=1, y=[2<|tool_call_end|>!")
    assert message.tool_calls == (ToolCall("f", '{"x": 1, "y": [2', complete=False),)
    assert message.content == "!"


def test_positional_arguments_take_the_order_of_the_schema() -> None:
    message = parse("lfm2", "<|tool_call_start|>[f('a', 2), f([1], y=True), f(None)]<|tool_call_end|>", tools=ORDERED)
    assert [call.arguments for call in message.tool_calls] == [
        '{"x": "a", "y": 2}',
        '{"x": [1], "y": true}',
        '{"x": null}',
    ]
    assert message.diagnostics == ()
    message = parse("lfm2", "<|tool_call_start|>[f(1, 2, 3), f(x=1, 2)]<|tool_call_end|>", tools=ORDERED)
    assert [call.complete for call in message.tool_calls] == [False, False]
    assert kinds(message) == [diagnostics.MALFORMED_CALL] * 2


def test_a_name_that_comes_twice() -> None:
    message = parse("lfm2", "<|tool_call_start|>[f(x=1, x=2)]<|tool_call_end|>")
    assert message.tool_calls == (ToolCall("f", '{"x": 1, "x": 2}'),)
    assert kinds(message) == [diagnostics.DUPLICATE_KEY]  # as where the model writes JSON


def test_a_bracket_that_begins_a_marker() -> None:
    format = unbraid.compose(reasoning="mistral", tools="lfm2")
    message = parse(format, "<|tool_call_start|>[f(x=[THINK]hm[/THINK]")
    assert message.tool_calls == (ToolCall("f", '{"x": ', complete=False),)
    assert message.reasoning == "hm"


def test_output_that_ends_inside_a_call() -> None:
    text = "<|tool_call_start|>[f(x='a\\x4"
    for size in range(len("<|tool_call_start|>[f("), len(text)):
        message = parse("lfm2", text[:size])
        assert [call.complete for call in message.tool_calls] == [False]
        assert kinds(message) == [diagnostics.UNFINISHED_CALL]


# --- Against Python ------------------------------------------------------------------------------------------------


def value_of(text: str, **options: Any) -> Any:
    """The value of a literal, as we read it; an error where we do not."""
    message = unbraid.parse("lfm2", f"<|tool_call_start|>[f(x={text})]<|tool_call_end|>", **options)
    [call] = message.tool_calls
    if not call.complete:
        raise ValueError(call.raw)
    return json.loads(call.arguments)["x"]


def literal(text: str) -> object:
    """What Python reads; None where it reads no literal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that Python does not know, and keeps
            value: object = ast.literal_eval(text)
            return value
    except (SyntaxError, ValueError):
        return None


def is_text(value: str) -> bool:
    """Whether no half of a surrogate pair is in it."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


@given(
    body=st.text(st.sampled_from("\\\\\\'\"nxuU01789abN\n é"), max_size=12),
    quotes=st.sampled_from(["'", '"', "'''", '"""']),
)
def test_strings_are_what_python_says(body: str, quotes: str) -> None:
    text = quotes + body + quotes
    expected = literal(text)
    assume(isinstance(expected, str) and is_text(expected))
    # Python joins strings that stand side by side; models do not write that.
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    assume(sum(token.type == tokenize.STRING for token in tokens) == 1)
    assert value_of(text) == expected


@given(text=st.text(st.sampled_from("0123456789._eExXoObBaf+-"), min_size=1, max_size=8))
def test_numbers_are_what_python_says(text: str) -> None:
    expected = literal(text)
    assume(isinstance(expected, int) or (isinstance(expected, float) and math.isfinite(expected)))
    assert value_of(text) == expected


@given(data=st.data())
def test_values_are_what_python_says(data: st.DataObject) -> None:
    value = data.draw(strategies.json_values(unbraid.find("lfm2")))
    assert value_of(data.draw(strategies.python_literals(value))) == value


# --- Promptness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", ""),
        ("x=", '{"x": '),
        ("x='a", '{"x": "a'),
        ("x='a\\", '{"x": "a'),
        ("x='a\\x41", '{"x": "aA'),
        ("x='a\\1", '{"x": "a'),
        ("x='a\\1b", '{"x": "a\\u0001b'),
        ('x="""a"', '{"x": "a'),
        ("x=[1", '{"x": ['),
        ("x=[1,", '{"x": [1'),
        ("x=[1, [", '{"x": [1, ['),
        ("x={'k':", '{"x": {"k": '),
        ("x=foo(", '{"x": foo('),
    ],
)
def test_what_is_known_is_said(text: str, said: str) -> None:
    events = unbraid.parser("lfm2").feed(f"<|tool_call_start|>[f({text}")
    assert "".join(event.fragment for event in events if isinstance(event, ToolCallArguments)) == said


def test_limits() -> None:
    limits = Limits(number=3, name=4, depth=3)
    for text, kind in [
        ("x=1234", diagnostics.TOO_LONG),
        ("abcde=1", diagnostics.TOO_LONG),
        ("x=[[[1]]]", diagnostics.TOO_DEEP),
    ]:
        assert kinds(parse("lfm2", f"<|tool_call_start|>[f({text})]<|tool_call_end|>", limits=limits)) == [kind]


def test_an_audio_code_in_a_string_is_data() -> None:
    for tools, call in {
        "lfm2": "<|tool_call_start|>[f(x='<audio_1>')]<|tool_call_end|>",
        "qwen3-coder": "<tool_call><function=f><parameter=x><audio_1></parameter></function></tool_call>",
    }.items():
        message = parse(unbraid.compose(tools=tools, audio="step-audio-2"), f"<tts_start>a{call}<audio_2><tts_end>")
        assert message.tool_calls == (ToolCall("f", '{"x": "<audio_1>"}'),)
        assert [part.codes for part in message.speech] == [(2,)]


@pytest.mark.parametrize(
    ("text", "arguments", "count"),
    [
        ("x={1, 2}", '{"x": [1, 2]}', 1),
        ("x={'a'}, y={ (1,), }", '{"x": ["a"], "y": [[1]]}', 2),
        ("x=[{'a', 'b'}, {'a': {1}}]", '{"x": [["a", "b"], {"a": [1]}]}', 2),
        ("x='sed -n '1,9p' f.py'", '{"x": "sed -n \'1,9p\' f.py"}', 2),
        ('x="say "hi" now", y=1', '{"x": "say \\"hi\\" now", "y": 1}', 2),
        ("x=['it's', 'b']", '{"x": ["it\'s", "b"]}', 1),
        ("x='py -c \"print(f('a'))\"'", '{"x": "py -c \\"print(f(\'a\'))\\""}', 2),
    ],
)
def test_sets_and_quotes_inside_of_quotes_are_repaired(text: str, arguments: str, count: int) -> None:
    message = parse("lfm2", f"<|tool_call_start|>[f({text})]<|tool_call_end|>")
    assert message.tool_calls == (ToolCall("f", arguments),)
    assert kinds(message) == [diagnostics.REPAIRED] * count


def test_a_call_is_not_complete_before_its_bracket_is_known_to_close_it() -> None:
    """What follows may show that the string goes on."""
    begun = "<|tool_call_start|>[f(x='a')"
    for more in ("", ")", ")))"):
        (said,) = parse("lfm2", begun + more).tool_calls
        assert not said.complete
    for more in ("]", ")]", ", g()]", "]<|tool_call_end|>", ")))))))))"):
        assert parse("lfm2", begun + more).tool_calls[0] == ToolCall("f", '{"x": "a"}')
    parser = unbraid.parser("lfm2")
    parser.feed(begun)
    parser.finish(end_of_turn=True)
    assert parser.message.tool_calls == (ToolCall("f", '{"x": "a"}'),)


def test_python_tags_are_no_content() -> None:
    for format in ("pythonic", "llama-4-pythonic"):
        message = parse(format, "<|python_start|>[f(x=1)]<|python_end|>")
        assert message.parts == (ToolCall("f", '{"x": 1}'),)


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(LITERALS)
def test_a_whole_literal_is_the_same_json(value: object) -> None:
    for text in (repr(value), f" {value!r}\n"):
        assert json.loads(literal_as_json(text) or "") == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "text", ["", "f(1)", "[1", "[1 2]", "{1}", "{'a' 1}", "'a", "[,]", "1 2", "[" * 101 + "]" * 101]
)
def test_what_is_no_literal(text: str) -> None:
    assert literal_as_json(text) is None
