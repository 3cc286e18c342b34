"""Calls that go wrong: what is no call, what is cut off, and what stands around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import unbraid
from unbraid import Diagnostic, Format, Part, ToolCallArguments, ToolCallEnd, ToolCallStart

from ..support.cases import cases, each_format
from ..support.parsing import broken, call, content, kinds, parse, reasoning, stream


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def step(name: str, arguments: str = "{}") -> str:
    return f"<tool_call>function\n{name}\n{arguments}</tool_call>"


# --- Malformed calls -----------------------------------------------------------------------------------------------

F, G = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {}}'

NO_CALL = {
    "single quotes": "{'name': 'f', 'arguments': {}}",
    "key without quotes": '{name: "f", "arguments": {}}',
    "no name": '{"arguments": {"a": 1}}',
    "name is a number": '{"name": 5, "arguments": {"a": 1}}',
    "name is null": '{"name": null, "arguments": {"a": 1}}',
    "empty name": '{"name": "", "arguments": {"a": 1}}',
    "half a surrogate pair as name": '{"name": "\\ud83d", "arguments": {}}',
    "empty object": "{}",
    "a list": f"[{F}]",
    "text": "hello",
}


@pytest.mark.parametrize("body", NO_CALL.values(), ids=NO_CALL)
def test_what_never_became_a_call_is_text(body: str) -> None:
    text = f"a {hermes(body)} b"
    message = parse("hermes", text)
    assert message.parts == (content(text),)
    assert kinds(message) == ["malformed_call"]


BROKEN_ARGUMENTS = {
    "single quotes": "{'a': 1}",
    "trailing comma": '{"a": 1,}',
    "key without quotes": "{a: 1}",
    "Python's True": '{"a": True}',
    "NaN": '{"a": NaN}',
    "brackets do not match": '{"a": [1}]',
    "raw line break in a string": '{"a": "x\ny"}',
    "invalid escape": '{"a": "C:\\Users"}',
    "escape of another language": '{"a": "\\x41"}',
    "unknown word": "nope{}",
}


@pytest.mark.parametrize("arguments", BROKEN_ARGUMENTS.values(), ids=BROKEN_ARGUMENTS)
@pytest.mark.parametrize("format", ["mistral-v11", "step-audio-2"])
def test_arguments_that_are_not_json_are_passed_on_as_they_are(format: str, arguments: str) -> None:
    if not arguments.startswith("{"):
        arguments = '{"a": ' + arguments + "}"
    text = f"[TOOL_CALLS]f{arguments}" if format == "mistral-v11" else step("f", arguments)
    message = parse(format, text)
    assert message.parts == (broken("f", arguments),)
    assert kinds(message) == ["malformed_json"]
    assert message.tool_calls[0].raw == text


@pytest.mark.parametrize("arguments", BROKEN_ARGUMENTS.values(), ids=BROKEN_ARGUMENTS)
@pytest.mark.parametrize("order", ["name first", "arguments first"])
def test_the_same_in_a_json_call(order: str, arguments: str) -> None:
    if not arguments.startswith("{"):
        arguments = '{"a": ' + arguments + "}"
    pairs = ['"name": "f"', f'"arguments": {arguments}']
    text = hermes("{" + ", ".join(pairs if order == "name first" else pairs[::-1]) + "}")
    message = parse("hermes", text)
    assert message.parts == (broken("f", arguments),)
    assert kinds(message) == ["malformed_json"]


HERMES_CASES: dict[str, tuple[str, tuple[Part, ...], list[str]]] = {
    "no closing marker, then text": (
        f"<tool_call>\n{F}\nmore",
        (call("f"), content("more")),
        ["unclosed"],
    ),
    "no closing marker, then a call": (
        f"<tool_call>\n{F}\n{hermes(G)}",
        (call("f"), call("g")),
        ["unclosed"],
    ),
    "no closing marker, then the end": (f"<tool_call>\n{F}", (call("f"),), ["unclosed"]),
    "second opener at once": (
        "<tool_call>\n" + hermes(G),
        (call("g"),),
        ["repaired"],
    ),
    "second opener before the name": (
        "<tool_call>\n{" + hermes(G),
        (content("<tool_call>\n{"), call("g")),
        ["malformed_call"],
    ),
    "second opener after the name": (
        '<tool_call>\n{"name": "f", ' + hermes(G),
        (broken("f", ""), call("g")),
        ["malformed_call"],
    ),
    "second opener in the arguments": (
        '<tool_call>\n{"name": "f", "arguments": {"a": ' + hermes(G),
        (broken("f", '{"a": '), call("g")),
        ["malformed_json", "malformed_call"],
    ),
    "closing bracket too many": (hermes(F + "}"), (call("f"),), ["malformed_call"]),
    "two closing brackets too many": (hermes(F + "}]") + "x", (call("f"), content("x")), ["malformed_call"] * 2),
    "closing bracket missing": (hermes(F[:-1]), (call("f"),), ["malformed_call"]),
    "comma after the last pair": (
        hermes('{"name": "f", "arguments": {"a": 1},}'),
        (call("f", '{"a": 1}'),),
        ["malformed_call"],
    ),
    "keys twice": (
        hermes('{"name": "f", "name": "g", "arguments": {"a": 1}, "arguments": {"b": 2}}'),
        (call("f", '{"a": 1}'),),
        ["unexpected_key", "unexpected_key"],
    ),
    "keys twice in the arguments": (
        hermes('{"name": "f", "arguments": {"a": 1, "a": 2}}'),
        (call("f", '{"a": 1, "a": 2}'),),
        ["duplicate_key"],
    ),
    "a key that does not belong": (
        hermes('{"name": "f", "arguments": {}, "why": [1, {"name": "z"}]}'),
        (call("f"),),
        ["unexpected_key"],
    ),
    "arguments null": (hermes('{"name": "f", "arguments": null}'), (call("f"),), ["malformed_call"]),
    "arguments missing": (hermes('{"name": "f"}'), (call("f"),), ["malformed_call"]),
    "arguments empty string": (hermes('{"name": "f", "arguments": ""}'), (call("f"),), ["malformed_call"]),
    "arguments empty string, before the name": (
        hermes('{"arguments": "", "name": "f"}'),
        (call("f"),),
        ["malformed_call"],
    ),
    "arguments list": (
        hermes('{"name": "f", "arguments": [1]}'),
        (broken("f", "[1]"),),
        ["arguments_not_object"],
    ),
    "arguments number": (hermes('{"name": "f", "arguments": 5}'), (broken("f", "5"),), ["arguments_not_object"]),
    "arguments are no JSON in a string": (
        hermes('{"name": "f", "arguments": "hello"}'),
        (broken("f", "hello"),),
        ["malformed_json"],
    ),
    "arguments are half of JSON in a string": (
        hermes('{"name": "f", "arguments": "{\\"a\\": "}'),
        (broken("f", '{"a": '),),
        ["malformed_json"],
    ),
    "arguments in a string, and more": (
        hermes('{"name": "f", "arguments": "{} x"}'),
        (broken("f", "{} x"),),
        ["malformed_json"],
    ),
    "arguments in a string, and space that JSON does not know": (
        hermes('{"name": "f", "arguments": "{}\\f\\u00a0"}'),
        (broken("f", "{}\f\xa0"),),
        ["malformed_json"],
    ),
}


@pytest.mark.parametrize(("text", "parts", "diagnostics"), HERMES_CASES.values(), ids=HERMES_CASES)
def test_malformed_json_calls(text: str, parts: tuple[Part, ...], diagnostics: list[str]) -> None:
    message = parse("hermes", text)
    assert message.parts == parts
    assert kinds(message) == diagnostics


def test_much_space_before_the_closing_marker() -> None:
    """More than is worth waiting for, perhaps; but then so in every way that the text is cut."""
    message = parse("hermes", hermes(F + " " * 200) + "x")
    assert message.tool_calls == (call("f"),)
    assert message.content.strip() == "x"


OTHER_CASES: dict[str, tuple[str, str, tuple[Part, ...], list[str]]] = {
    "list without an end": ("mistral", f"[TOOL_CALLS][{F}", (call("f"),), ["unclosed"]),
    "list without a separator": (
        "mistral",
        f"[TOOL_CALLS][{F}{G}]",
        (call("f"), content(G + "]")),
        ["malformed_call"],
    ),
    "list with a comma at its end": (
        "mistral",
        f"[TOOL_CALLS][{F},]",
        (call("f"),),
        ["malformed_call"],
    ),
    "name, then text": ("mistral", "[TOOL_CALLS]f hello", (content("[TOOL_CALLS]f hello"),), ["malformed_call"]),
    "name, then a list": ("mistral", "[TOOL_CALLS]f[1]", (content("[TOOL_CALLS]f[1]"),), ["malformed_call"]),
    "name, then the end": ("mistral", "[TOOL_CALLS]f", (), ["unfinished_call"]),
    "name, then another call": (
        "mistral",
        "[TOOL_CALLS]f[TOOL_CALLS]g{}",
        (call("f"), call("g")),
        ["malformed_call"],
    ),
    "second marker at once": (
        "mistral",
        "[TOOL_CALLS][TOOL_CALLS]g{}",
        (call("g"),),
        ["repaired"],
    ),
    "a word too few": (
        "step-audio-2",
        "<tool_call>f\n{}</tool_call>",
        (content("<tool_call>f\n{}</tool_call>"),),
        ["malformed_call"],
    ),
    "no name": (
        "step-audio-2",
        "<tool_call>function\n{}</tool_call>",
        (content("<tool_call>function\n{}</tool_call>"),),
        ["malformed_call"],
    ),
    "no arguments": ("step-audio-2", step("f", ""), (call("f"),), ["malformed_call"]),
    "second opener in the arguments": (
        "step-audio-2",
        '<tool_call>function\nf\n{"a": 1' + step("g"),
        (broken("f", '{"a": 1'), call("g")),
        ["malformed_json", "unclosed"],
    ),
}


@pytest.mark.parametrize(("format", "text", "parts", "diagnostics"), OTHER_CASES.values(), ids=OTHER_CASES)
def test_malformed_named_calls_and_lists(
    format: str, text: str, parts: tuple[Part, ...], diagnostics: list[str]
) -> None:
    message = parse(format, text)
    assert message.parts == parts
    assert kinds(message) == diagnostics


CUT_TEXTS = {
    "hermes": 'So:\n<tool_call>\n{"name": "f", "arguments": {"a": ["é", 1.5], "b": "\\u00e9\\n"}}\n</tool_call>',
    "hermes, arguments first": 'So:<tool_call>{"arguments": {"a": "}"}, "name": "f"}</tool_call>',
    "hermes, a string": 'So:<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\ude00\\"}"}</tool_call>',
    "mistral-v11": 'So:[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": ["é", 1.5], "b": "\\u00e9\\n"}',
    "step-audio-2": 'So:<tool_call>function\nf\n{"a": ["é", 1.5], "b": "\\u00e9\\n"}</tool_call>',
}


@pytest.mark.parametrize(("name", "text"), CUT_TEXTS.items(), ids=CUT_TEXTS)
def test_cut_off_anywhere(name: str, text: str) -> None:
    """What is no complete call stands in the raw text of the call. Before its name it is not shown: law 16."""
    format = name.partition(",")[0]
    whole = parse(format, text)
    assert len(whole.tool_calls) == 1
    for end in range(len(text)):
        message = parse(format, text[:end])
        (one,) = message.tool_calls or [None]
        if one is not None and one.complete:
            # Of the closing marker, what came is text: it may be anything.
            assert one == whole.tool_calls[0]
            rest = message.content.removeprefix("So:")
            assert text[:end].endswith(rest)
            assert len(rest) < len("\n</tool_call>")
        elif one is not None:
            assert message.settled().content == text[:end]
            assert kinds(message)[-1] == "unfinished_call"
        else:
            left_out = text[:end].removeprefix(message.content)
            assert text[:end] == message.content + left_out
            assert not left_out or message.content == "So:"
            assert kinds(message) == (["unfinished_call"] if left_out else [])


@pytest.mark.parametrize("text", ['<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'])
def test_the_name_is_sent_before_the_arguments(text: str) -> None:
    for pieces in ([text], list(text)):
        _, events = stream("hermes", pieces)
        told = [event for event in events if not isinstance(event, Diagnostic)]
        assert isinstance(told[0], ToolCallStart)
        assert isinstance(told[-1], ToolCallEnd)
        fragments = [event.fragment for event in told[1:-1] if isinstance(event, ToolCallArguments)]
        assert "".join(fragments) == '{"a": 1}'


@pytest.mark.parametrize(
    "arguments",
    ['{"name": "x", "arguments": {"name": "y"}}', '{"arguments": {}, "id": "z"}', '{"name": {"name": 1}}'],
)
@pytest.mark.parametrize("body", ['{{"name": "f", "arguments": {}}}', '{{"arguments": {}, "name": "f"}}'])
def test_arguments_called_name_and_arguments(body: str, arguments: str) -> None:
    message = parse("hermes", hermes(body.format(arguments)))
    assert message.parts == (call("f", arguments),)
    assert kinds(message) == []


@each_format()
def test_what_was_seen_is_never_contradicted(format: Format) -> None:
    """What a client has seen at any point is the beginning of what it sees in the end."""
    for case in cases(format):
        check_what_was_seen(format, case.text)


def check_what_was_seen(format: Format, text: str) -> None:
    final, _ = stream(format, [text])
    parser = unbraid.parser(format, seed=7)
    for char in text:
        parser.feed(char)
        seen = parser.message
        assert final.content.startswith(seen.content)
        assert final.reasoning.startswith(seen.reasoning)
        assert final.diagnostics[: len(seen.diagnostics)] == seen.diagnostics
        for before, after in zip(seen.speech, final.speech, strict=False):
            assert after.text.startswith(before.text)
            assert after.codes[: len(before.codes)] == before.codes
        assert len(seen.tool_calls) <= len(final.tool_calls)
        for one, same in zip(seen.tool_calls, final.tool_calls, strict=False):
            assert (one.name, one.id) == (same.name, same.id)
            assert same.arguments.startswith(one.arguments)
            assert not one.complete or same == one


# --- What breaks must not take what is whole with it ---------------------------------------------------------------

AROUND_BROKEN_VALUES: dict[str, tuple[str, str, tuple[Part, ...]]] = {
    "a broken value before the arguments": (
        "hermes",
        hermes('{"name": "pay", "note": None, "arguments": {"amount": 5}}'),
        (call("pay", '{"amount": 5}'),),
    ),
    "a broken number before the arguments": (
        "hermes",
        hermes('{"name": "pay", "note": 1., "arguments": {"amount": 5}}'),
        (call("pay", '{"amount": 5}'),),
    ),
    "a broken value before the name": (
        "hermes",
        hermes('{"note": None, "name": "pay", "arguments": {"amount": 5}}'),
        (call("pay", '{"amount": 5}'),),
    ),
    "arguments that are a word": (
        "hermes",
        hermes('{"name": "a", "arguments": None}') + "ok",
        (broken("a", "None"), content("ok")),
    ),
    "a word in a list of calls": (
        "mistral",
        '[TOOL_CALLS][{"name": "a", "arguments": None}, {"name": "b", "arguments": {"x": 1}}]',
        (broken("a", "None"), call("b", '{"x": 1}')),
    ),
    "a key without its end": (
        "hermes",
        '<tool_call>{"name": "a", "pa</tool_call>\n<tool_call>{"name": "b", "arguments": {"x": 1}}</tool_call>bye',
        (broken("a", ""), content('"pa'), call("b", '{"x": 1}'), content("bye")),
    ),
    "a name without its end": (
        "hermes",
        '<tool_call>{"name": "a</tool_call>\n<tool_call>{"name": "b", "arguments": {"x": 1}}</tool_call>',
        (content('<tool_call>{"name": "a</tool_call>'), call("b", '{"x": 1}')),
    ),
    "a marker where an array could be": (
        "mistral",
        '[TOOL_CALLS]a{"x": [TOOL_CALLS]b{"y": [1, "[TOOL_CALLS]"]}',
        (broken("a", '{"x": '), call("b", '{"y": [1, "[TOOL_CALLS]"]}')),
    ),
    "a bracket where a key should be, and brackets open calls": (
        "llama-3",
        '{"name": "a", "parameters": {{"name": "b", "parameters": {"x": 1}}',
        (broken("a", "{"), call("b", '{"x": 1}')),
    ),
    "a bracket where nothing more should be, and brackets open calls": (
        "llama-3",
        '{"name": "a", "parameters": {"x": 1 {"y": 2}}}',
        (broken("a", '{"x": 1 '), content('{"y": 2}}}')),
    ),
}


@pytest.mark.parametrize(("format", "text", "parts"), AROUND_BROKEN_VALUES.values(), ids=AROUND_BROKEN_VALUES)
def test_what_stands_around_a_broken_value_is_kept(format: str, text: str, parts: tuple[Part, ...]) -> None:
    message = parse(format, text)
    assert message.parts == parts
    assert message.diagnostics


_MISTRAL = "[TOOL_CALLS][{}]"


@pytest.mark.parametrize(
    ("format", "around", "separator", "item", "calls"),
    [
        ("mistral", _MISTRAL, ",", '{"name":"a","arguments":{x}}', 1),
        ("mistral", _MISTRAL, ",", '{"arguments":{x},"name":"a"}', 1),
        ("mistral", _MISTRAL, ",", '{"name":"a","b":x}', 1),
        ("pythonic", "[{}]", ", ", "f(a x)", 1),
        ("lfm2", "{}", "", '<|tool_call_start|>[f(a="x y", b=[1, {"c"', 1),
        ("harmony", "{}", "", "<|start|>assistant<|channel|>comm", 0),
        ("inkling", "{}", "", "<|message_model|><|content_invoke_tool_json|>{x<|end_message|>", 0),
    ],
)
def test_many_broken_values_in_one_piece(format: str, around: str, separator: str, item: str, calls: int) -> None:
    """Each is looked at once, not to the end of the piece: quadratic work would not come to an end here."""
    count = 10_000
    parser = unbraid.parser(format, keep_message=False)
    events = parser.feed(around.replace("{}", separator.join([item] * count))) + parser.finish()
    assert sum(isinstance(event, unbraid.ToolCallEnd) for event in events) == count * calls


def test_a_call_without_an_id_is_written_without_one() -> None:
    message = unbraid.Message((unbraid.ToolCall("f", "{}"),))
    assert unbraid.render("mistral-v11", message) == "[TOOL_CALLS]f[ARGS]{}"
    assert unbraid.parse("mistral-v11", "[TOOL_CALLS]f[ARGS]{}") == message


def test_arguments_as_deep_as_the_limit_can_be_read() -> None:
    deep = '{"a": ' + "[" * 511 + "]" * 511 + "}"
    message = parse("mistral-v11", f"[TOOL_CALLS]f{deep}")
    assert message.tool_calls[0].complete
    json.loads(message.tool_calls[0].arguments)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: unbraid.parser("hermes", unknown_tools="keep"),  # type: ignore[arg-type]
        lambda: unbraid.parser("hermes").feed(b"bytes"),  # type: ignore[arg-type]
        lambda: unbraid.parser("hermes").feed(None),  # type: ignore[arg-type]
        lambda: unbraid.parser(None),  # type: ignore[arg-type]
        lambda: unbraid.parse("hermes", b"bytes"),
        lambda: unbraid.parser("hermes").restore(None),  # type: ignore[arg-type]
    ],
)
def test_misuse_is_told_in_a_sentence(misuse: Callable[[], object]) -> None:
    with pytest.raises(unbraid.UnbraidError):
        misuse()


def test_calls_after_half_a_header() -> None:
    """`to=tool` has gone out as reasoning when the header ends: what opens the calls is enough for them to be calls."""
    calls = '<atem:function_calls>\n<atem:invoke name="f">\n</atem:invoke>\n</atem:function_calls><|eom|>'
    message = parse("muse", f" to=self<|message|>Hm. to=tool<|message|>{calls}")
    assert [(part.name, part.complete) for part in message.tool_calls] == [("f", True)]
    assert message.content == ""


def test_a_namespace_that_is_no_tools_is_reported() -> None:
    call = (
        "<|start|>assistant to=tools<|message|><atem:function_calls>\n"
        '<atem:invoke name="{}.get_weather">\n</atem:invoke>\n</atem:function_calls><|eom|>'
    )
    own, foreign = (
        parse("muse", call.format(namespace), tools=[{"name": "get_weather"}], prompt="")
        for namespace in ("get_weather", "foo")
    )
    assert own.tool_calls[0].name == foreign.tool_calls[0].name == "get_weather"
    assert kinds(own) == []
    assert kinds(foreign) == ["repaired"]


COUNTED = (
    "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)
READ = {"name": "read", "parameters": {"properties": {"path": {}, "lines": {}}, "required": ["path"]}}
WRITE = {"name": "write", "parameters": {"properties": {"path": {}, "text": {}}, "required": ["path", "text"]}}


@pytest.mark.parametrize("word", ["3", "functions.:3"])
@pytest.mark.parametrize(
    ("tools", "arguments", "name"),
    [
        ([READ], '{"x": 1}', "read"),
        ([READ], "{}", "read"),
        ([READ, WRITE], '{"path": "a", "lines": 3}', "read"),
        ([READ, WRITE], '{"path": "a", "text": "b"}', "write"),
        ([READ, WRITE], '{"path": "a"}', "read"),
    ],
)
def test_a_call_that_has_a_number_for_its_name_is_told_by_its_arguments(
    tools: list[dict[str, Any]], arguments: str, name: str, word: str
) -> None:
    message = parse("kimi-k2", COUNTED.format(word, arguments), tools=tools)
    assert message.parts == (call(name, arguments),)
    assert kinds(message) == ["repaired"]


def test_an_id_with_a_name_in_it_is_kept_as_it_is_written() -> None:
    """The model looks for its own ids in the next prompt."""
    for id in ("functions.read:3", "read:3"):
        (said,) = parse("kimi-k2", COUNTED.format(id, "{}"), tools=[READ]).tool_calls
        assert (said.id, said.name) == (id, "read")


@pytest.mark.parametrize("arguments", ["{}", '{"x": 1}', '{"path": ', ""])
def test_a_call_that_has_a_number_for_its_name_may_be_none(arguments: str) -> None:
    message = parse("kimi-k2", COUNTED.format("3", arguments), tools=[READ, WRITE])
    assert not message.tool_calls
    assert message.diagnostics


@pytest.mark.parametrize(
    ("format", "text"), [("functionary-v3.1", "It is <function=>"), ("apertus", 'It is <|tools_prefix|>[{"":')]
)
def test_a_name_that_is_empty_is_not_waited_for(format: str, text: str) -> None:
    for pieces in ([text], list(text)):
        message, _ = stream(format, pieces)
        assert message.content == text
        assert kinds(message) == ["malformed_call"]


def test_the_first_magistral_reasons_in_tags() -> None:
    message = parse("magistral", "<think>\nHm.\n</think>\nHi.")
    assert message.parts == (reasoning("Hm."), content("Hi."))
