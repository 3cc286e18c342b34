"""The parser where output goes wrong: malformed calls, unknown tools, prompts, limits, snapshots, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import unbraid
from unbraid import (
    Content,
    Diagnostic,
    Format,
    InvalidSnapshot,
    Limits,
    Part,
    Speech,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UnbraidError,
)
from unbraid.core.grammar import Call, CallList, Calls, Either, Name
from unbraid.core.notations import Arguments

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


# --- Unknown tools -------------------------------------------------------------------------------------------------

TOOLS = [{"name": "f"}]
U = '{"name": "u", "arguments": {}}'


def test_an_unknown_tool_is_text() -> None:
    text = f"a\n{hermes(U)}\nb"
    message = parse("hermes", text, tools=TOOLS)
    assert message.parts == (content(text),)
    assert kinds(message) == ["unknown_tool"]


def test_an_unknown_tool_is_passed_on_when_asked() -> None:
    message = parse("hermes", f"a\n{hermes(U)}\nb", tools=TOOLS, unknown_tools="emit")
    assert message.parts == (content("a"), call("u"), content("b"))
    assert kinds(message) == ["unknown_tool"]


def test_no_tools_given_and_no_tools_there() -> None:
    assert parse("hermes", hermes(U)).parts == (call("u"),)
    assert parse("hermes", hermes(U), tools=[]).parts == (content(hermes(U)),)


@pytest.mark.parametrize("unknown", ["text", "emit"])
def test_a_broken_call_to_an_unknown_tool(unknown: str) -> None:
    text = hermes('{"name": "u", "arguments": {"a": True}}')
    message = parse("hermes", text, tools=TOOLS, unknown_tools=unknown)
    expected = content(text) if unknown == "text" else broken("u", '{"a": True}')
    assert message.parts == (expected,)


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        ([F, U], (call("f"), content(f", {U}"), content("x"))),
        ([U, F], (content(f"[TOOL_CALLS][{U}"), call("f"), content("x"))),
        ([U, U], (content(f"[TOOL_CALLS][{U}, {U}]x"),)),
        ([F, U, F], (call("f"), content(f", {U}"), call("f"), content("x"))),
    ],
)
def test_unknown_tools_in_a_list(listed: list[str], parts: tuple[Part, ...]) -> None:
    message = parse("mistral", f"[TOOL_CALLS][{', '.join(listed)}]x", tools=TOOLS)
    assert message.settled().parts == unbraid.Message(parts).settled().parts
    assert kinds(message) == ["unknown_tool"] * listed.count(U)


def test_an_unknown_tool_stays_in_its_strand_but_is_not_spoken() -> None:
    in_reasoning = parse("qwen3", f"<think>\nhm\n{hermes(U)}\nso\n</think>\n\nok", tools=TOOLS)
    assert in_reasoning.parts == (reasoning(f"hm\n{hermes(U)}\nso"), content("ok"))
    in_speech = parse("step-audio-2", f"<tts_start>hi{step('u')}yo<tts_end>ok", tools=TOOLS)
    assert in_speech.parts == (Speech("hi"), content(step("u")), Speech("yo"), content("ok"))
    in_both = parse("step-audio-2", f"<tts_start>hi<think>a{step('u')}b</think>yo", tools=TOOLS)
    assert in_both.parts == (Speech("hi"), reasoning(f"a{step('u')}b"), Speech("yo"))


# --- Prompts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["<think>\n", "<think>", "\n<think>\n", " <think>\n  ", "Hi<|im_end|>\n<think>\n"])
def test_a_prompt_that_opens_the_reasoning(prompt: str) -> None:
    message = parse("qwen3", "why\n</think>\n\nso", prompt=prompt)
    assert message.parts == (reasoning("why"), content("so"))
    assert kinds(message) == []


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "<think>\n</think>\n\n",
        "<think>\n\n</think>\n\n",
        "What does <think> mean?",
        "<think>\nlong ago\n</think>\n\nand then",
        "<think",
        "think>",
        "Hello",
    ],
)
def test_a_prompt_that_opens_nothing(prompt: str) -> None:
    message = parse("qwen3", "<think>\nwhy\n</think>\n\nyes", prompt=prompt)
    assert message.parts == (reasoning("why"), content("yes"))
    assert parse("qwen3", "so", prompt=prompt).parts == (content("so"),)


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        ("<think>", "\nwhy", "why"),
        ("<think>", "why", "why"),
        ("<think>\n", "\nwhy", "\nwhy"),
        ("<think>\n\n", "\nwhy", "\nwhy"),
        (" <think>\n  ", "\nwhy", "\nwhy"),
    ],
)
def test_the_line_break_of_a_marker_is_written_once(prompt: str, output: str, expected: str) -> None:
    """By the prompt or by the model; what comes after it is the model's own."""
    assert parse("qwen3", output, prompt=prompt).reasoning == expected


@pytest.mark.parametrize(
    ("prompt", "output"),
    [("<think>\n</think>\n\n", "\nso"), ("</think>", "\n\n\nso"), ("</think>\n", "\n\nso"), ("</think> ", "\nso")],
)
def test_the_line_breaks_after_a_closed_reasoning(prompt: str, output: str) -> None:
    assert parse("qwen3", output, prompt=prompt).content == "\nso"


@pytest.mark.parametrize(
    ("prompt", "output", "parts"),
    [
        ("…<tts_start>", "hi<audio_1><tts_end>ok", (Speech("hi", (1,)), content("ok"))),
        ("<tts_start>\n", "hi", (Speech("hi"),)),
        ("<tts_start><think>\n", "why</think>hi", (reasoning("why"), Speech("hi"))),
        ("<tts_start>\n<think>\n", "why</think>hi", (reasoning("why"), Speech("hi"))),
        ("<tts_start>hi<tts_end>", "ok", (content("ok"),)),
        ("<tts_start><think>\n\n</think>\n\n", "hi", (Speech("hi"),)),
    ],
)
def test_a_prompt_that_opens_speech(prompt: str, output: str, parts: tuple[Part, ...]) -> None:
    message = parse("step-audio-2", output, prompt=prompt)
    assert message.parts == parts
    assert kinds(message) == []


@pytest.mark.parametrize(
    ("format", "prompt", "output"),
    [
        ("deepseek-r1", None, "<think>\nwhy\n</think>\n\nso"),
        ("qwen3", "<think>\n", "<think>\nwhy\n</think>\n\nso"),
        ("qwen3", "<think>", "<think>why\n</think>so"),
        ("mistral", "[THINK]", "[THINK]why[/THINK]so"),
    ],
)
def test_a_model_that_opens_the_reasoning_once_more(format: str, prompt: str | None, output: str) -> None:
    message = parse(format, output, prompt=prompt)
    assert message.parts == (reasoning("why"), content("so"))
    assert kinds(message) == []


def test_only_once_more() -> None:
    message = parse("qwen3", "<think>\n<think>\nwhy</think>", prompt="<think>\n")
    assert message.parts == (reasoning("<think>\nwhy"),)


def test_a_format_with_a_prompt_of_its_own() -> None:
    for format in ("deepseek-r1", "qwen3-thinking"):
        assert parse(format, "why</think>so").parts == (reasoning("why"), content("so"))
        stray = parse(format, "why</think>so", prompt="")
        assert stray.parts == (content("why</think>so"),)
        assert kinds(stray) == ["stray_closer"]


def test_a_prompt_of_ids_needs_a_tokenizer() -> None:
    with pytest.raises(UnbraidError, match="tokenizer"):
        unbraid.parser("qwen3", prompt=[1, 2, 3])


# --- Reasoning that is left where it is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "text", "parts"),
    [
        ("qwen3", f"<think>\nwhy\n</think>\n\nso{hermes(F)}", (content("<think>\nwhy\n</think>\n\nso"), call("f"))),
        ("qwen3", f"<think>\nwhy{hermes(F)}</think>so", (content("<think>\nwhy"), call("f"), content("</think>so"))),
        ("deepseek-r1", "why\n</think>\n\nso", (content("why\n</think>\n\nso"),)),
        ("mistral", "[THINK]why[/THINK]so[TOOL_CALLS]f{}", (content("[THINK]why[/THINK]so"), call("f"))),
        (
            "step-audio-2",
            "<tts_start>hi<think>why</think>yo<audio_1><tts_end><think>ok",
            (Speech("hi"), content("<think>why</think>"), Speech("yo", (1,)), content("<think>ok")),
        ),
    ],
)
def test_separate_reasoning_false(format: str, text: str, parts: tuple[Part, ...]) -> None:
    message = parse(format, text, separate_reasoning=False)
    assert message.parts == parts
    assert kinds(message) == []


def test_separate_reasoning_false_after_a_prompt_that_opened_it() -> None:
    assert parse("qwen3", "why</think>so", prompt="<think>\n", separate_reasoning=False).content == "why</think>so"
    message = parse("step-audio-2", "why</think>hi", prompt="<tts_start><think>\n", separate_reasoning=False)
    assert message.parts == (content("why</think>"), Speech("hi"))


# --- Lists ---------------------------------------------------------------------------------------------------------


def test_a_call_that_begins_like_another_way_and_is_not() -> None:
    """Each of two ways to write calls is tried once where the text stands."""
    calls = Calls(
        "<calls>",
        Either(
            "<call",
            Call(('<call id="', Name(), '">', Arguments(), "</call>")),
            CallList(Call(('<call name="', Name(), '">', Arguments(), "</call>"))),
        ),
        "</calls>",
    )
    text = '<calls><call name="f">{}</call></calls>so'
    message = parse(Format("two-ways", tools=calls), text)
    assert message.content == text
    assert message.diagnostics


# --- Limits --------------------------------------------------------------------------------------------------------

FLOODS: dict[str, tuple[str, str, str, set[str]]] = {
    "brackets where a key should be": ("mistral-v11", "[TOOL_CALLS]f{", "{", {"malformed_json", "unfinished_call"}),
    "brackets in arguments": ("mistral-v11", '[TOOL_CALLS]f{"a":', "[", {"too_deep", "unfinished_call"}),
    "brackets in a JSON call": ("hermes", f"<tool_call>{F[:-3]}", '{"a":', {"too_deep", "unfinished_call"}),
    "brackets before the name": (
        "hermes",
        '<tool_call>{"arguments": ',
        "[",
        {"too_deep", "too_long", "unfinished_call"},
    ),
    "brackets in an ignored value": ("hermes", f'<tool_call>{F[:-1]}, "type": ', "[", {"too_deep", "unfinished_call"}),
    "brackets in a string": ("hermes", f'<tool_call>{F[:-3]}"', "[", {"unfinished_call"}),
    "backslashes in a string": ("hermes", f'<tool_call>{F[:-3]}"', "\\", {"unfinished_call"}),
    "brackets as content": ("mistral", "", "[", set()),
    "openers of reasoning": ("qwen3", "", "<think>", {"unclosed"}),
    "openers of two scopes": ("step-audio-2", "", "<think><tts_start>", {"unclosed", "stray_closer"}),
    "openers and closers": ("step-audio-2", "", "<tts_start><think><tts_end></think>", {"unclosed", "stray_closer"}),
    "closers": ("qwen3", "", "</think>", {"stray_closer"}),
    "openers of calls": ("hermes", "", "<tool_call>", {"malformed_call", "repaired", "too_long", "unfinished_call"}),
    "markers of calls": (
        "mistral-v13",
        "",
        "[TOOL_CALLS]",
        {"malformed_call", "repaired", "too_long", "unfinished_call"},
    ),
    "calls to unknown tools": ("mistral", "", "[TOOL_CALLS]u{}", {"unknown_tool"}),
    "a long name": ("mistral", "[TOOL_CALLS]", "n", {"too_long"}),
    "a long name in JSON": ("hermes", '<tool_call>{"name": "', "n", {"too_long"}),
    "a long name in escapes": ("hermes", '<tool_call>{"name": "', "\\u00e9", {"too_long"}),
    "a long id": ("mistral-v11", "[TOOL_CALLS]f[CALL_ID]", "n", {"too_long"}),
    "a long key": ("hermes", '<tool_call>{"', "n", {"too_long"}),
    "a long number": ("mistral-v11", '[TOOL_CALLS]f{"a": ', "1", {"too_long", "unfinished_call"}),
    "a name that does not come": ("hermes", '<tool_call>{"arguments": {"a": "', "x", {"too_long", "unfinished_call"}),
    "space where a call should be": ("hermes", "<tool_call>", " ", {"too_long", "unfinished_call"}),
    "space after a call": ("hermes", f"<tool_call>{F}", " ", {"unclosed"}),
    "brackets after a call": ("hermes", f"<tool_call>{F}", "}", {"malformed_call", "unclosed"}),
    "audio codes": ("step-audio-2", "<tts_start>", "<audio_17>", set()),
    "audio in a marker": ("step-audio-2", "<tts_start><tool", "<tts_pad>", set()),
}


@pytest.mark.parametrize(("format", "start", "flood", "expected"), FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize(("total", "size"), [(200_000, 20_000), (20_000, 1)], ids=["in pieces", "by characters"])
def test_floods(format: str, start: str, flood: str, expected: set[str], total: int, size: int) -> None:
    """Whatever comes without an end, the parser holds little, and says what is wrong."""
    limits = Limits(held=1000)
    parser = unbraid.parser(format, tools=TOOLS, keep_message=False, limits=limits, seed=7)
    text = start + flood * (total // len(flood))
    seen: set[str] = set()
    for at in range(0, len(text), size):
        events = parser.feed(text[at : at + size])
        seen |= {event.kind for event in events if isinstance(event, Diagnostic)}
        if at % 1000 == 0:
            assert len(json.dumps(parser.snapshot())) < 20_000
    seen |= {event.kind for event in parser.finish() if isinstance(event, Diagnostic)}
    assert seen == expected


def test_the_name_limit_is_exact() -> None:
    long = "n" * 256
    assert parse("mistral", f"[TOOL_CALLS]{long}{{}}").parts == (call(long),)
    assert kinds(parse("mistral", f"[TOOL_CALLS]{long}n{{}}")) == ["too_long"]
    assert parse("hermes", hermes(f'{{"name": "{long}", "arguments": {{}}}}')).parts == (call(long),)
    assert kinds(parse("hermes", hermes(f'{{"name": "{long}n", "arguments": {{}}}}'))) == ["too_long"]


def test_what_is_held_too_long_becomes_text() -> None:
    text = hermes('{"arguments": {"a": "' + "x" * 2000 + '"}, "name": "f"}')
    assert parse("hermes", text).parts[0] == call("f", '{"a": "' + "x" * 2000 + '"}')
    message = parse("hermes", text, limits=Limits(held=1000))
    assert message.parts == (content(text),)
    assert kinds(message) == ["too_long"]


@pytest.mark.parametrize(("depth", "diagnostics"), [(512, []), (513, ["too_deep"])])
def test_the_depth_limit_is_exact(depth: int, diagnostics: list[str]) -> None:
    """Arguments that are too deep are passed on, unchecked, up to their last bracket."""
    arguments = '{"a":' * depth + "1" + "}" * depth
    message = parse("mistral-v11", f"[TOOL_CALLS]f{arguments}x")
    assert message.parts == (
        unbraid.ToolCall("f", arguments, complete=not diagnostics),
        content("x"),
    )
    assert kinds(message) == diagnostics


def test_a_number_that_is_too_long() -> None:
    arguments = '{"a": 1234567}'
    message = parse("mistral-v11", f"[TOOL_CALLS]f{arguments}x", limits=Limits(number=6))
    assert message.parts == (broken("f", arguments), content("x"))
    assert kinds(message) == ["too_long"]


# --- What users can get wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"format": "mistral"}, {"version": 0}, {"version": None}],
)
def test_a_snapshot_of_another_parser_is_refused(change: dict[str, Any]) -> None:
    snapshot = unbraid.parser("qwen3").snapshot() | change
    with pytest.raises(InvalidSnapshot, match="qwen3"):
        unbraid.parser("qwen3").restore(snapshot)


@pytest.mark.parametrize("snapshot", [{}, {"version": 1, "format": "qwen3"}])
def test_what_is_no_snapshot_is_refused(snapshot: dict[str, Any]) -> None:
    with pytest.raises(InvalidSnapshot):
        unbraid.parser("qwen3").restore(snapshot)


SNAPSHOTS = {
    "content": ("qwen3", "a", "b"),
    "arguments": ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": ', "1}}</tool_call>"),
    "arguments first": ("qwen3", '<tool_call>{"arguments": {"a": ', '1}, "name": "f"}</tool_call>'),
    "broken": ("qwen3", '<tool_call>{"name": "f", "arguments": {a: ', "1}}</tool_call>"),
    "codes": ("step-audio-2", "<tts_start>a<audio_1>", "<audio_2>b<tts_end>"),
}


@pytest.mark.parametrize(("format", "before", "after"), SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_a_snapshot_does_not_change_when_the_parser_goes_on(format: str, before: str, after: str) -> None:
    first = unbraid.parser(format, seed=7)
    first.feed(before)
    snapshot = first.snapshot()
    first.feed(after)
    for _ in range(2):
        other = unbraid.parser(format, seed=7)
        other.restore(snapshot)
        other.feed(after)
        assert other.message == first.message


def test_a_finished_parser_takes_nothing() -> None:
    parser = unbraid.parser("qwen3")
    parser.feed("a")
    parser.finish()
    with pytest.raises(UnbraidError, match="finished"):
        parser.feed("b")
    with pytest.raises(UnbraidError, match="finished"):
        parser.feed_tokens([1])
    with pytest.raises(UnbraidError, match="finished"):
        parser.finish()
    assert parser.message.content == "a"


def test_a_restored_parser_can_be_finished_too() -> None:
    parser = unbraid.parser("qwen3")
    parser.finish()
    other = unbraid.parser("qwen3")
    other.restore(parser.snapshot())
    with pytest.raises(UnbraidError, match="finished"):
        other.feed("b")


def test_no_message_without_keep_message() -> None:
    parser = unbraid.parser("qwen3", keep_message=False)
    assert parser.feed("a") == [Content("a", 0, 1)]
    with pytest.raises(UnbraidError, match="keep_message"):
        _ = parser.message


def test_feed_tokens_needs_a_tokenizer() -> None:
    with pytest.raises(UnbraidError, match="tokenizer"):
        unbraid.parser("qwen3").feed_tokens([1])
    with pytest.raises(UnbraidError, match="tokenizer"):
        unbraid.parse("qwen3", [1])


# --- Ids -----------------------------------------------------------------------------------------------------------


def ids(format: str, text: str, **options: Any) -> list[str]:
    return [one.id for one in parse(format, text, **options).tool_calls]


def some_calls(format: str) -> Iterator[str]:
    return (hermes(F) if format == "hermes" else "[TOOL_CALLS]f{}" for _ in range(500))


@pytest.mark.parametrize(("format", "shape"), [("hermes", "call_[0-9A-Za-z]{24}"), ("mistral", "[0-9A-Za-z]{9}")])
def test_ids_are_unique(format: str, shape: str) -> None:
    made = ids(format, "".join(some_calls(format)))
    assert len(set(made)) == len(made) == 500
    assert all(re.fullmatch(shape, one) for one in made)


def test_ids_are_reproducible_with_a_seed_and_only_then() -> None:
    text = "[TOOL_CALLS]f{}" * 5
    assert ids("mistral", text, seed=1) == ids("mistral", text, seed=1)
    assert not {*ids("mistral", text, seed=1)} & {*ids("mistral", text, seed=2)}
    first, second = (unbraid.parse("mistral", text).tool_calls for _ in range(2))
    assert not {one.id for one in first} & {one.id for one in second}


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("mistral-v11", "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{}"),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abc123XYZ{}"),
        ("mistral", '[TOOL_CALLS][{"id": "abc123XYZ", "name": "f", "arguments": {}}]'),
        ("mistral", '[TOOL_CALLS][{"arguments": {}, "id": "abc123XYZ", "name": "f"}]'),
        ("hermes", hermes('{"id": "abc123XYZ", "type": "function", "name": "f", "arguments": {}}')),
    ],
)
def test_the_model_s_own_id_is_kept(format: str, text: str) -> None:
    message = parse(format, text)
    assert [one.id for one in message.tool_calls] == ["abc123XYZ"]
    assert kinds(message) == []


@pytest.mark.parametrize("id", ['"abc123XYZ"', "5", "null"])
def test_an_id_that_comes_after_the_name_is_too_late(id: str) -> None:
    """The call has been sent with an id by then."""
    message = parse("hermes", hermes(f'{{"name": "f", "id": {id}, "arguments": {{}}}}'))
    assert message.parts == (call("f"),)
    assert message.tool_calls[0].id.startswith("call_")


def test_an_id_that_comes_twice_is_replaced() -> None:
    message = parse("mistral-v11", "[TOOL_CALLS]f[CALL_ID]abc123XYZ{}[TOOL_CALLS]g[CALL_ID]abc123XYZ{}")
    first, second = message.tool_calls
    assert first.id == "abc123XYZ" != second.id
    assert re.fullmatch("[0-9A-Za-z]{9}", second.id)
    assert kinds(message) == ["duplicate_id"]


def test_a_model_s_id_that_was_already_made_up_is_replaced() -> None:
    (made,) = ids("mistral", "[TOOL_CALLS]f{}", seed=3)
    message = parse("mistral", f"[TOOL_CALLS]f{{}}[TOOL_CALLS]g[CALL_ID]{made}{{}}", seed=3)
    assert len({one.id for one in message.tool_calls}) == 2
    assert kinds(message) == ["duplicate_id"]


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


def test_the_first_magistral_reasons_in_tags() -> None:
    message = parse("magistral", "<think>\nHm.\n</think>\nHi.")
    assert message.parts == (reasoning("Hm."), content("Hi."))
