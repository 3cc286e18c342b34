"""Models that braid text and audio, each with outputs as its vendor's code writes and reads them."""

from __future__ import annotations

import pytest

import unbraid
from unbraid import Message, Part, Speech, Text, ToolCall, UnbraidError

from ..constraints.walks import constraint_accepts
from ..support.parsing import kinds, parse

CASES: dict[str, tuple[str, str, str | None, tuple[Part, ...]]] = {
    "text and audio without delimiters": (
        "glm-4-voice",
        "Sure, it<|audio_1|><|audio_16383|> rains<|audio_2|><|audio_3|>",
        None,
        (Speech("Sure, it rains", (1, 16383, 2, 3)),),
    ),
    "a number that is no code": (
        "glm-4-voice",
        "<|audio_16384|><|audio_01|>",
        None,
        (Speech("<|audio_16384|><|audio_01|>"),),
    ),
    "text alone": ("glm-4-voice", "Sure.", None, (Speech("Sure."),)),
    "runs of codes between their markers": (
        "vita-audio",
        "H<|begin_of_audio|><|audio_7|><|audio_8|><|end_of_audio|>ello<|begin_of_audio|><|audio_9|><|end_of_audio|>",
        None,
        (Speech("Hello", (7, 8, 9)),),
    ),
    "a run that is cut off": ("vita-audio", "Hi<|begin_of_audio|><|audio_7|>", None, (Speech("Hi", (7,)),)),
    "codes without their markers": ("vita-audio", "Hi<|audio_7|>!<|end_of_audio|>", None, (Speech("Hi!", (7,)),)),
    "ids have no text": ("covo-audio", "Hi!", None, (Speech("Hi!"),)),
    "where codes come from a head of their own": (
        "baichuan-audio",
        "好的，<audiogen_start_baichuan><audiogen_end_baichuan>我来<audiogen_start_baichuan><audiogen_end_baichuan>",
        "<C_Q>天气？<audiotext_start_baichuan><C_A>",
        (Speech("好的，我来"),),
    ),
    "a section of codes alone": (
        "audex",
        "<speechcodec_0><speechcodec_65535><speechgen_end>",
        "<|im_start|>assistant\n<think></think><speechgen_start>",
        (Speech("", (0, 65535)),),
    ),
    "an answer, a call and no speech": (
        "audex",
        "<think>\nhm</think>One moment.\n<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n"
        "</tool_call>",
        "",
        (Text("reasoning", "hm"), Text("content", "One moment."), ToolCall("f", '{"a": "b"}')),
    ),
    "frames of four codebooks": (
        "audex-tta",
        "<audiogen_start><audiocodec_1><audiocodec_1025><audiocodec_2049><audiocodec_3073><audiogen_end>",
        "",
        (Speech("", (1, 1025, 2049, 3073)),),
    ),
    "text and placeholders in turn": (
        "mimo-audio",
        f"one two three{'<|empty|>' * 5} four<|eot|>{'<|empty|>' * 9}<|eostm|>",
        "<|im_start|>assistant\n<|sostm|>",
        (Speech("one two three four"),),
    ),
    "a model that speaks may answer in text": (
        "mimo-audio",
        "I think so.\n</think>\nYes.",
        "<|im_start|>assistant\n<think>\n",
        (Text("reasoning", "I think so."), Text("content", "Yes.")),
    ),
    "the end of the text": ("lfm2-audio", "Sure!<|text_end|>", None, (Speech("Sure!"),)),
    "speech that the model begins": ("lfm2-audio", "<|audio_start|>", None, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str) -> None:
    name, output, prompt, parts = CASES[case]
    message = parse(name, output, prompt=prompt)
    assert message.parts == parts
    assert kinds(message) == []


def test_a_marker_that_audio_cuts_in_two() -> None:
    format = unbraid.compose(reasoning="think", tools="hermes", audio="vita-audio")
    run = "<|begin_of_audio|><|audio_1|><|end_of_audio|>"
    output = f'<thi{run}nk>\nhm\n</th{run}ink>\n\nHi<tool_{run}call>\n{{"name": "f", "arguments": {{}}}}\n</tool_call>'
    message = parse(format, output)
    assert (message.reasoning, message.tool_calls) == ("hm", (ToolCall("f", "{}"),))
    assert [(section.text, section.codes) for section in message.speech] == [("Hi", (1, 1, 1))]
    assert kinds(message) == []


def test_frames_are_whole_in_what_a_constraint_allows() -> None:
    constraint = unbraid.constraint("audex-tta", prompt="<audiogen_start>")
    frame = "".join(f"<audiocodec_{book * 1024 + 7}>" for book in range(4))
    assert constraint_accepts(constraint, f"{frame}{frame}<audiogen_end>")
    assert not constraint_accepts(constraint, f"{frame}<audiocodec_7><audiogen_end>")
    assert not constraint_accepts(constraint, "<audiocodec_1024><audiogen_end>")


def test_runs_are_closed_in_what_a_constraint_allows() -> None:
    constraint = unbraid.constraint("vita-audio")
    assert constraint_accepts(constraint, "Hi<|begin_of_audio|><|audio_1|><|audio_2|><|end_of_audio|>!")
    assert not constraint_accepts(constraint, "Hi<|audio_1|>")
    assert not constraint_accepts(constraint, "Hi<|begin_of_audio|>!")


@pytest.mark.parametrize(
    ("name", "part", "problem"),
    [
        ("glm-4-voice", Text("content", "Hi"), "'glm-4-voice' has no text that is not spoken: give 'Hi' as Speech"),
        ("covo-audio", Speech("Hi", (1,)), "'covo-audio' has no text for audio codes"),
        ("lfm2-audio", Speech("Hi", (1,) * 8), "'lfm2-audio' has no text for audio codes"),
    ],
)
def test_what_cannot_be_rendered(name: str, part: Part, problem: str) -> None:
    with pytest.raises(UnbraidError, match=problem):
        unbraid.render(name, Message((part,)))


def test_no_json_in_a_spoken_turn() -> None:
    json = {"type": "json_object"}
    with pytest.raises(UnbraidError, match="is spoken, and no JSON"):
        unbraid.constraint("glm-4-voice", response_format=json)
    silent = unbraid.find("glm-4-voice").silent()
    assert constraint_accepts(unbraid.constraint(silent, response_format=json), '{"a": 1}')
