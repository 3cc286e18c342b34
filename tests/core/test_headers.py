"""Headers that the prompt has begun, or written whole."""

from __future__ import annotations

import pytest

import unbraid
from unbraid import Content, Diagnostic, Part, ToolCall
from unbraid.core import diagnostics

from ..support.parsing import content, parse, reasoning

FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>so<|return|>"


@pytest.mark.parametrize(
    ("format", "prompt", "output", "parts"),
    [
        (
            "harmony",
            "<|start|>assistant",
            f"<|channel|>analysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>",
            f"analysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>ana",
            f"lysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        ("harmony", "<|start|>assistant<|channel|>", "final<|message|>so<|return|>", (content("so"),)),
        (
            "harmony",
            "<|start|>assistant to=functions.get",
            '_f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
            (ToolCall("get_f", '{"a": 1}'),),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
            '{"a": 1}<|call|>',
            (ToolCall("f", '{"a": 1}'),),
        ),
        ("harmony", "<|start|>assistant", "Hello", (content("Hello"),)),
        ("functionary-v3.2", ">>>f\n", '{"a": 1}', (ToolCall("f", '{"a": 1}'),)),
        ("functionary-v3.2", ">>>", 'f\n{"a": 1}', (ToolCall("f", '{"a": 1}'),)),
        ("functionary-v3.2", ">>>all\n", "so", (content("so"),)),
    ],
)
def test_a_prompt_that_breaks_off_in_a_header(format: str, prompt: str, output: str, parts: tuple[Part, ...]) -> None:
    message = parse(format, output, prompt=prompt)
    assert message.parts == parts
    assert message.diagnostics == ()


@pytest.mark.parametrize("text", ["to=x is the syntax.", "to= is an assignment", "to=a<b is false", "assistant: yes"])
def test_text_that_begins_like_a_header_does_not_wait(text: str) -> None:
    parser = unbraid.Parser("muse")
    said = "".join(event.text for char in text for event in parser.feed(char) if isinstance(event, Content))
    assert said == text


@pytest.mark.parametrize(
    ("prompt", "output", "reasoning", "content", "repaired"),
    [
        ("", "<|channel>thought\nHm.\n<channel|>Yes.", "Hm.", "Yes.", False),
        ("", "<|channel>Hm.<channel|>Yes.", "Hm.", "Yes.", True),
        ("", "<|channel>thoughtful<channel|>Yes.", "thoughtful", "Yes.", True),
        ("<|channel>", "thought\nHm.<channel|>Yes.", "Hm.", "Yes.", False),
        ("<|channel>thought\n", "thought\nHm.<channel|>Yes.", "thought\nHm.", "Yes.", False),
        ("<|channel>thought\nI have a ", "thought\nnow.<channel|>Yes.", "thought\nnow.", "Yes.", False),
    ],
)
def test_a_label_that_may_be_missing(prompt: str, output: str, reasoning: str, content: str, repaired: bool) -> None:
    for size in (1, 100):
        parser = unbraid.Parser("gemma-4", prompt=prompt)
        events = [event for at in range(0, len(output), size) for event in parser.feed(output[at : at + size])]
        events += parser.finish()
        assert (parser.message.reasoning, parser.message.content) == (reasoning, content)
        found = [event.kind for event in events if isinstance(event, Diagnostic)]
        assert (diagnostics.REPAIRED in found) == repaired


def test_what_breaks_off_the_end_of_a_header_does_so_however_it_comes() -> None:
    text = "<|start|>assistant to=tools<|messag<atem:function_calls>x"
    assert parse("muse", text).parts == (content("assistant to=tools<|messag<atem:function_calls>x"),)


def test_a_header_after_a_call_that_cannot_be_read_is_none_that_an_answer_names() -> None:
    """The text before it stands where a call was announced: it is no answer."""
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    call = '<|content_invoke_tool_json|>{"name":"weather","args":{"city":"SF"}}<|end_message|>'
    text = f"<|message_model|>weather<|content_invoke_tool_json|>garbage{call}"
    message = unbraid.parse("inkling", text, tools=tools)
    assert message.content == "garbage"
    assert [(one.name, one.arguments) for one in message.tool_calls] == [("weather", '{"city":"SF"}')]
