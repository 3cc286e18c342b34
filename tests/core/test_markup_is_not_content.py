"""What a reader does not want to see: markers of nothing, markup in speech, and calls that are only drafted."""

from __future__ import annotations

import itertools

import pytest

import unbraid
from unbraid import Format, Message, Speech, Text, ToolCall, diagnostics
from unbraid.core import grammar

from ..support import strategies
from ..support.cases import each_format
from ..support.parsing import parse

REASONING = [format for format in strategies.FORMATS if format.reasoning is not None]
CALLING = [format for format in strategies.FORMATS if format.tools is not None]
between_markers = each_format(format for format in REASONING if format.headers is None)
taken_apart = each_format(format for format in REASONING if format.headers is None and not format.reasoning_in_content)


def written_body(tools: grammar.Calls) -> grammar.Call | grammar.CallList:
    """The body that the renderer writes."""
    body = tools.body
    while isinstance(body, grammar.Either):
        body = body.second
    return body


def marked_calls(format: Format) -> grammar.Calls | None:
    """The calls of a format, if a marker of their own opens them."""
    tools = format.tools
    return None if tools is None or tools.bare or format.headers is not None else tools


def kinds(message: Message) -> list[str]:
    return [diagnostic.kind for diagnostic in message.diagnostics]


# --- A turn without reasoning --------------------------------------------------------------------------------------


@between_markers
@pytest.mark.parametrize("before", ["", "\n", " \n\n"])
def test_what_closes_a_reasoning_that_nobody_opened_is_markup_at_the_start(format: Format, before: str) -> None:
    """Templates write it for a turn without reasoning."""
    assert format.reasoning is not None
    for close in (format.reasoning.close, *(close for _, close in format.reasoning.also)):
        message = parse(format, before + close + "Hello", prompt="")
        assert message.parts == (Text("content", "Hello"),)
        assert message.diagnostics == ()


@taken_apart
@pytest.mark.parametrize("before", ["", "\n", " \n\n"])
def test_what_opens_the_reasoning_may_come_once_more_after_the_prompt(format: Format, before: str) -> None:
    assert format.reasoning is not None
    open, close = format.reasoning.open, format.reasoning.close
    message = parse(format, f"{before}{open}why{close}so", prompt=open)
    assert message.parts == (Text("reasoning", "why"), Text("content", "so"))


@taken_apart
@pytest.mark.parametrize("between", ["", "\n", " \n\n"])
def test_what_opens_the_reasoning_may_come_twice(format: Format, between: str) -> None:
    assert format.reasoning is not None
    open, close = format.reasoning.open, format.reasoning.close
    message = parse(format, f"{open}{between}{open}why{close}so", prompt="")
    assert message.parts == (Text("reasoning", "why"), Text("content", "so"))


def test_later_it_is_text_where_an_answer_may_have_it() -> None:
    message = parse("qwen3", "so</think>yes")
    assert message.content == "so</think>yes"
    assert kinds(message) == [diagnostics.STRAY_CLOSER]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("gemma-4", "He<channel|>llo"),
        ("kimi-k2", "He<|tool_calls_section_end|>llo"),
        ("kimi-vl", "He◁/think▷llo"),
    ],
)
def test_later_it_is_markup_where_no_answer_has_it(format: str, text: str) -> None:
    message = parse(format, text)
    assert message.content == "Hello"
    assert kinds(message) == [diagnostics.STRAY_CLOSER]


# --- Nothing where a call should be --------------------------------------------------------------------------------


def closed_calls(format: Format) -> list[grammar.Calls]:
    """The calls of a format that stand between two markers."""
    every = [] if format.headers is not None else [format.tools, *format.other_tools]
    return [tools for tools in every if tools and tools.close and tools.close_written and not tools.bare]


@each_format(filter(closed_calls, strategies.FORMATS))
@pytest.mark.parametrize("inside", ["", "\n", " \n\t"])
def test_a_call_with_nothing_in_it_is_markup(format: Format, inside: str) -> None:
    for tools in closed_calls(format):
        for open, close in itertools.product((tools.open, *tools.also), tools.closes):
            message = parse(format, f"Hello{open}{inside}{close}", prompt="")
            assert message.parts == (Text("content", "Hello"),)
            assert kinds(message) == [diagnostics.EMPTY_CALL]


@each_format(
    format
    for format in CALLING
    if format.tools and format.headers and format.tools.open.endswith(format.headers.closes)
)
@pytest.mark.parametrize("inside", ["", "\n", " \n\t"])
def test_a_message_of_calls_with_nothing_in_it_is_markup(format: Format, inside: str) -> None:
    """Where the header has no name: with one, it is a call without arguments."""
    headers, tools = format.headers, format.tools
    assert headers is not None
    assert tools is not None
    for end in headers.ends:
        message = parse(format, f"{tools.open}{inside}{end}", prompt="")
        assert message.parts == ()
        assert kinds(message) == [diagnostics.EMPTY_CALL]


def closed_list(format: Format) -> grammar.CallList | None:
    """The list that a format writes its calls in, if a marker opens the calls and a bracket closes the list."""
    tools = marked_calls(format)
    body = None if tools is None else written_body(tools)
    return body if isinstance(body, grammar.CallList) and body.close else None


@each_format(filter(closed_list, CALLING))
def test_a_list_with_nothing_in_it_is_markup(format: Format) -> None:
    tools, body = format.tools, closed_list(format)
    assert tools is not None
    assert body is not None
    message = parse(format, f"Hello{tools.open}{body.open}{body.close}{tools.close}", prompt="")
    assert message.parts == (Text("content", "Hello"),)
    assert kinds(message) == [diagnostics.EMPTY_CALL]


@each_format(format for format in CALLING if (tools := marked_calls(format)) and tools.close)
@pytest.mark.parametrize("between", ["", "\n", " \n\n"])
def test_what_opens_calls_may_come_twice(format: Format, between: str) -> None:
    tools = format.tools
    assert tools is not None
    call = ToolCall("f", '{"a": "b"}', "abcdefghi")
    message = parse(format, tools.open + between + unbraid.render(format, Message((call,))), prompt="")
    assert message.parts == (call,)
    assert kinds(message) == [diagnostics.REPAIRED]


def test_an_empty_list_is_an_answer_where_calls_have_no_marker() -> None:
    assert parse("xlam", "[]").content == "[]"


# --- Speech --------------------------------------------------------------------------------------------------------

CALL = "<tool_call>function\nf\n{}</tool_call>"


@pytest.mark.parametrize(
    ("text", "spoken", "kept"),
    [
        (f"Hi{CALL} there", "Hi there", CALL),
        ("Hi<tool_call>function\n", "Hi", ""),
        ("Hi<tool_call>oops</tool_call> there", "Hi there", "<tool_call>oops</tool_call>"),
    ],
)
def test_what_is_spoken_holds_no_markup(text: str, spoken: str, kept: str) -> None:
    message = parse("step-audio-2", f"<tts_start>{text}", tools=[])
    assert "".join(part.text for part in message.parts if isinstance(part, Speech)) == spoken
    assert message.content == kept
    assert message.diagnostics


def test_an_opener_in_what_it_opened_is_not_spoken() -> None:
    message = parse("step-audio-2", "<tts_start>Hi <tts_start>there<tts_end>")
    assert message.parts == (Speech("Hi there"),)
    assert kinds(message) == [diagnostics.STRAY_CLOSER]


def test_reasoning_that_is_not_taken_apart_is_not_spoken() -> None:
    message = parse("step-audio-2", "<tts_start><think>\nhm\n</think>\n\nHi<tts_end>", separate_reasoning=False)
    assert [part.text for part in message.parts if isinstance(part, Speech)] == ["\n\nHi"]
    assert message.content == "<think>\nhm\n</think>"


def test_a_closer_of_nothing_is_not_spoken() -> None:
    message = parse("step-audio-2", "<tts_start>Hi</tool_call> there<tts_end>")
    assert message.parts == (Speech("Hi there"),)
    assert kinds(message) == [diagnostics.STRAY_CLOSER]


# --- Sections ------------------------------------------------------------------------------------------------------


def section_of(format: Format) -> grammar.Calls | None:
    """The section that calls stand in, each with markers of its own."""
    tools = marked_calls(format)
    if tools is None:
        return None
    body = written_body(tools)
    own = isinstance(body, grammar.CallList) and not body.open and isinstance(body.call.parts[0], str)
    return tools if own else None


@each_format(filter(section_of, CALLING))
@pytest.mark.parametrize("closed", [False, True], ids=["not closed", "closed"])
def test_calls_are_read_without_the_section_around_them(format: Format, closed: bool) -> None:
    section = section_of(format)
    assert section is not None
    calls = tuple(ToolCall("f", f'{{"a": "{word}"}}') for word in ("b", "c"))
    text = unbraid.render(format, Message(calls)).replace(section.open, "").replace(section.open.strip(), "")
    text = text if closed else text.replace(section.close, "").replace(section.close.strip(), "")
    message = parse(format, text, prompt="")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [(c.name, c.arguments) for c in calls]
    assert all(call.complete for call in message.tool_calls)
    assert message.content == ""


def test_a_marker_before_a_call_without_one() -> None:
    for written in ('{"name": "f", "arguments": {}}', '[{"name": "f", "arguments": {}}]'):
        message = parse("xlam", f"[TOOL_CALLS]{written}")
        assert message.parts == (ToolCall("f", "{}"),)


# --- Calls in reasoning --------------------------------------------------------------------------------------------


@each_format(filter(marked_calls, REASONING))
@pytest.mark.parametrize("admitted", [True, False, None])
def test_whether_a_call_in_the_reasoning_is_a_call_is_a_choice(format: Format, admitted: bool | None) -> None:
    assert format.reasoning is not None
    call = ToolCall("f", '{"a": "b"}', "abcdefghi")
    written = unbraid.render(format, Message((call,)))
    text = f"{format.reasoning.open}why{written}{format.reasoning.close}so"
    message = parse(format, text, prompt="", calls_in_reasoning=admitted)
    if format.calls_in_reasoning if admitted is None else admitted:
        assert message.tool_calls == (call,)
        assert diagnostics.CALL_IN_REASONING not in kinds(message)
    else:
        assert message.tool_calls == ()
        assert diagnostics.CALL_IN_REASONING in kinds(message)
        if not format.reasoning_in_content:
            assert message.parts == (Text("reasoning", "why" + written), Text("content", "so"))


def test_after_the_reasoning_calls_are_calls() -> None:
    message = parse(
        "deepseek-r1",
        "hm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```",
    )
    assert [call.name for call in message.tool_calls] == ["f"]


# --- Reasoning that is left where it is ----------------------------------------------------------------------------


@each_format(REASONING)
def test_reasoning_that_is_not_taken_apart_stands_in_the_content_with_its_markers(format: Format) -> None:
    text = unbraid.render(format, Message((Text("reasoning", "why"), Text("content", "so"))))
    message = parse(format, text, prompt="", separate_reasoning=False)
    assert message.reasoning == ""
    reasoning = unbraid.render(format, Message((Text("reasoning", "why"),)))
    assert message.content.replace(" ", "").replace("\n", "") == reasoning.replace(" ", "").replace("\n", "") + "so"


def test_the_marker_that_the_prompt_wrote_is_put_back() -> None:
    assert parse("minimax-m2-append-think", "why\n</think>\n\nso").content == "<think>why\n</think>\n\nso"
    assert parse("minimax-m2-append-think", "<think>\nwhy\n</think>so").content == "<think>why\n</think>so"
    assert parse("minimax-m2-append-think", "<think>why</think>so", prompt="").content == "<think>why</think>so"
    assert parse("minimax-m2-append-think", "").content == "<think>"


# --- Prompts -------------------------------------------------------------------------------------------------------


PROMPTS = [
    ("<think>\nI'm", True),
    ("<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n<think>\nI'm", True),
    ("[INST]What?[/INST]<think>I'm <b>bold</b>", True),
    ("<|im_start|>assistant\n<think>\nOptions: [A] or M[I][J], <s>not</s> <|pad|>. I'm", True),
    ("<think>Say <|im_end|> in a word.<|im_end|>\n<|im_start|>assistant\n", False),
    ("<|im_start|>user\n<think>\nWhat?<|im_end|>\n<|im_start|>assistant\n", False),
    ("[INST]\n<think>\nWhat?[/INST]", False),
    ("What does <think> mean?", False),
    ("<think>\nlong ago\n</think>\n\nand then", False),
]


def test_a_prompt_that_breaks_off_inside_reasoning_in_speech() -> None:
    message = parse("step-audio-2", " well</think>so", prompt="<tts_start>Hello<think>\nHm")
    assert message.parts == (Text("reasoning", " well"), Speech("so"))


@pytest.mark.parametrize(
    ("prompt", "open"),
    PROMPTS,
)
def test_a_prompt_that_breaks_off_inside_the_reasoning(prompt: str, open: bool) -> None:
    message = parse("qwen3", " well", prompt=prompt)
    assert message.parts == (Text("reasoning" if open else "content", " well"),)
