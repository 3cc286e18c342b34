"""Detectors of reasoning, in SGLang."""

from __future__ import annotations

from typing import Any

import pytest

from .cases import STEP_CALL


@pytest.mark.parametrize("forced", [None, False, True])
def test_step_audio_2_reasons_only_where_it_says_so(installed: Any, forced: bool | None) -> None:
    parser = installed.ReasoningParser(model_type="step-audio2", force_reasoning=forced)
    for text in ("Hello.", "<tts_start>Hi<audio_1><tts_end>", STEP_CALL):
        assert parser.parse_non_stream(text) == ("", text)
    assert parser.parse_non_stream(f"<think>\nHm.\n</think>\n\nSo. {STEP_CALL}") == ("Hm.", f"So. {STEP_CALL}")
    assert parser.parse_non_stream(f"<tts_start>a<think>b{STEP_CALL}</think>c<audio_2><tts_pad><tts_end>d") == (
        "b",
        f"<tts_start>a{STEP_CALL}c<audio_2><tts_pad><tts_end>d",
    )
    # In the middle of a line of an answer, text may name what opens something (law 15).
    assert parser.parse_non_stream("a <think> b") == ("", "a <think> b")


def test_reasoning_that_the_prompt_has_opened(installed: Any) -> None:
    forced = installed.ReasoningParser("unbraid-qwen3", force_reasoning=True)
    assert forced.parse_non_stream("A\n</think>\n\nB") == ("A", "B")
    assert forced.parse_non_stream("<think>\nA\n</think>\n\nB") == ("A", "B")
    assert installed.ReasoningParser("unbraid-qwen3").parse_non_stream("A") == ("", "A")
    for said, expected in (
        ("\n<think>\n", ("A", "B")),
        ("<think>\nSo far", ("A", "B")),
        ("<think>\na\n</think>\n\nSo", ("", "A\n</think>\n\nB")),
        ("So", ("", "A\n</think>\n\nB")),
    ):
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
        request = installed.ChatCompletionRequest(model="m", messages=turn, continue_final_message=True)
        parser = installed.ReasoningParser("step-audio2", request=request)
        assert parser.parse_non_stream("A\n</think>\n\nB") == expected


def test_reasoning_in_one_piece(installed: Any) -> None:
    parser = installed.ReasoningParser("unbraid-qwen3", stream_reasoning=False)
    steps = [parser.parse_stream_chunk(piece) for piece in ("<think>\nA", "B", "C\n</think>\n\n", "D")]
    assert [*steps, parser.parse_stream_end()] == [("", ""), ("", ""), ("", ""), ("ABC", "D"), ("", "")]
    cut_off = installed.ReasoningParser("unbraid-qwen3", stream_reasoning=False)
    assert cut_off.parse_stream_chunk("<think>\nA") == ("", "")
    assert cut_off.parse_stream_end() == ("A", "")


def test_an_answer_where_one_must_come(installed: Any) -> None:
    """What SGLang does for `force_nonempty_content`: without an answer, the reasoning is one."""
    request = installed.ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "?"}], chat_template_kwargs={"force_nonempty_content": True}
    )
    whole = installed.ReasoningParser("unbraid-qwen3", request=request)
    assert whole.parse_non_stream("<think>\nA") == ("", "A")
    assert whole.parse_non_stream("<think>\nA\n</think>\n\nB") == ("A", "B")
    stream = installed.ReasoningParser("unbraid-qwen3", request=request)
    assert [stream.parse_stream_chunk("<think>\nA"), stream.parse_stream_end()] == [("A", ""), ("", "A")]
    answered = installed.ReasoningParser("unbraid-qwen3", request=request)
    answered.parse_stream_chunk("<think>\nA\n</think>\n\nB<")
    assert answered.parse_stream_end() == ("", "<")


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("glm45", "<tool_call>tool call"),
        ("glm45", "<tool_call>first tool<tool_call>second tool"),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>"),
        ("nemotron_3", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ],
)
def test_what_begins_like_a_call_ends_the_reasoning(installed: Any, name: str, rest: str, size: int) -> None:
    """The tool-call detector may read other calls than the family's, so it gets to see them."""
    text = f"<think>Hm.{rest}"
    parser = installed.ReasoningParser(f"unbraid-{name}")
    pieces = [parser.parse_stream_chunk(text[at : at + size]) for at in range(0, len(text), size)]
    pieces.append(parser.parse_stream_end())
    assert tuple(map("".join, zip(*pieces, strict=True))) == ("Hm.", rest)
    assert installed.ReasoningParser(f"unbraid-{name}").parse_non_stream(text) == ("Hm.", rest)


def test_the_reasoning_goes_on_after_a_call(installed: Any) -> None:
    call = "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>"
    reasoning, rest = installed.ReasoningParser("unbraid-glm45").parse_non_stream(f"<think>One.{call}Two.</think>Yes.")
    assert (reasoning, rest) == ("One.\nTwo.", f"{call}Yes.")
    # What is no call is passed on up to the end of that reasoning.
    reasoning, rest = installed.ReasoningParser("unbraid-glm45").parse_non_stream("<think>A <tool_call></think>Yes.")
    assert (reasoning, rest) == ("A ", "<tool_call>Yes.")
