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
    assert parser.parse_non_stream(f"<tts_start>a<think>b{STEP_CALL}</think>c<tts_end>") == (
        "b",
        f"<tts_start>a{STEP_CALL}c<tts_end>",
    )


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
