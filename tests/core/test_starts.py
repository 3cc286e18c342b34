"""Where a parser starts: prompts that open reasoning or speech, or break off in it."""

from __future__ import annotations

import pytest

import unbraid
from unbraid import Format, Message, Part, Speech, ToolCall, UnbraidError
from unbraid.core.machine.driver import Driver, driver
from unbraid.core.machine.snapshot import state_of

from ..support.byte_vocabulary import END, ByteVocabulary
from ..support.cases import each_format
from ..support.parsing import content, kinds, parse, reasoning
from ..support.strategies import FORMATS


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


@each_format()
def test_a_parser_that_is_copied_is_as_one_that_is_made(format: Format) -> None:
    """`driver` copies what it made before. What one parser has read changes no other."""
    opened = () if format.reasoning is None else (format.reasoning.open,)
    for prompt in (None, "", *opened):
        made = Driver(format, prompt=prompt)
        for _ in range(3):
            copied = driver(format, None, prompt)
            assert state_of(copied) == state_of(made)
            assert [frame.kind for frame in copied.stack] == [frame.kind for frame in made.stack]
            assert (copied.fast_path is None) == (made.fast_path is None)
            copied.feed(unbraid.render(format, Message((ToolCall("f", "{}"),))) if format.tools else "so")
            copied.feed("```\n<")


@each_format(format for format in FORMATS if not (format.speech or format.transcript))
def test_a_parser_by_ids_that_is_copied_is_as_one_that_is_made(format: Format) -> None:
    """Likewise, with tokens that are labelled. A vocabulary that has no hash may change: nothing is kept."""
    for vocabulary in (ByteVocabulary(), Unhashed()):
        for prompt in (None, (), tuple(b"<think>\n"), tuple(100 * b"so ")):
            made = Driver(format, prompt=prompt, vocabulary=vocabulary, label_tokens=True)
            for output in (b"", "so … <".encode(), b"so"):
                copied = driver(format, None, prompt, vocabulary=vocabulary, label_tokens=True)
                assert state_of(copied) == state_of(made)
                assert [frame.kind for frame in copied.stack] == [frame.kind for frame in made.stack]
                copied.feed_tokens([*output, END])
                copied.feed_tokens(output[:4])


class Unhashed(ByteVocabulary):
    __hash__ = None  # type: ignore[assignment]
