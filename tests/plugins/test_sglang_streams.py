"""What the drop-in for SGLang makes of a response, where SGLang is not needed: reasoning apart from the rest, calls
apart from the content, and speech apart from both, by ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, Message, MissingTokens, Speech, Text, ToolCall, UnbraidError
from unbraid.plugins.sglang import AudioParserManager, StepAudio2AudioParser, TtsContent
from unbraid.plugins.sglang.streams import CallPiece, ReasoningStream, StreamedCall, ToolStream, known_tools
from unbraid.tokens import vocabulary

from ..core.test_token_laws import CASES, STEP, grouped, interleaved
from ..support import real_tokenizers, strategies
from ..support.examples import examples
from ..support.real_tokenizers import encode, encode_plain
from ..support.spoken_turn import spoken_turn

FORMATS = [format for format in strategies.FORMATS if format.tools is not None or format.reasoning is not None]
every_format = pytest.mark.parametrize("format", FORMATS, ids=[format.name for format in FORMATS])
with_reasoning = [format for format in FORMATS if format.reasoning is not None]


def parts_of(format: Format) -> Format:
    """The reasoning and the calls of a format: what SGLang's two detectors look for."""
    return unbraid.compose(
        reasoning=format.name if format.reasoning is not None else None,
        tools=format.name if format.tools is not None else None,
    )


def take_apart(format: Format, pieces: Iterable[str], inside: bool = False) -> Message:
    """One stream after the other, as SGLang has them: the second is given what the first leaves."""
    both = parts_of(format)
    thought = ReasoningStream(both, inside=inside) if format.reasoning is not None else None
    tools = ToolStream(unbraid.compose(tools=format.name), None) if format.tools is not None else None
    reasoning: list[str] = []
    content: list[str] = []

    def go_on(said: str, rest: str, over: bool) -> None:
        reasoning.append(said)
        if tools is not None:
            for text, _ in [tools.feed(rest), *([tools.finish()] if over else [])]:
                content.append(text)
        else:
            content.append(rest)

    for piece in pieces:
        go_on(*(thought.feed(piece) if thought is not None else ("", piece)), False)
    go_on(*(thought.finish() if thought is not None else ("", "")), True)
    calls = [ToolCall(c.name, c.text, complete=bool(c.complete)) for c in (tools.calls if tools is not None else ())]
    texts = [("reasoning", reasoning), ("content", content)]
    return Message((*(Text(strand, "".join(said)) for strand, said in texts), *calls))  # type: ignore[arg-type]


def in_strands(message: Message) -> tuple[str, str, list[tuple[str, str, bool]]]:
    return message.reasoning, message.content, [(c.name, c.arguments, c.complete) for c in message.tool_calls]


# --- Text ----------------------------------------------------------------------------------------------------------


@every_format
@given(data=st.data())
def test_two_detectors_say_what_one_parser_says(format: Format, data: st.DataObject) -> None:
    message = data.draw(strategies.messages(parts_of(format)))
    text = unbraid.render(format, message)
    apart = take_apart(format, data.draw(st.composite(strategies.cuts)(text)))
    assert in_strands(apart) == in_strands(unbraid.parse(parts_of(format), text, prompt=""))
    assert apart.reasoning == message.reasoning
    assert [(c.name, c.arguments) for c in apart.tool_calls] == [(c.name, c.arguments) for c in message.tool_calls]


@every_format
@given(data=st.data())
def test_cuts_do_not_matter(format: Format, data: st.DataObject) -> None:
    text, inside = data.draw(strategies.hostile(format)), data.draw(st.booleans())
    whole = in_strands(take_apart(format, [text], inside))
    assert in_strands(take_apart(format, text, inside)) == whole
    assert in_strands(take_apart(format, data.draw(st.composite(strategies.cuts)(text)), inside)) == whole


@pytest.mark.parametrize("format", with_reasoning, ids=[format.name for format in with_reasoning])
@given(data=st.data())
def test_all_but_the_markers_goes_on(format: Format, data: st.DataObject) -> None:
    """What is no reasoning goes to the next detector as the model wrote it, in its order, calls with their markers."""
    text = data.draw(strategies.hostile(format))
    stream = ReasoningStream(parts_of(format), inside=False)
    reasoning, rest = map("".join, zip(*map(stream.feed, text), stream.finish(), strict=True))
    left = rest
    if not any(marker in text for marker in strategies.literals_of(format)):
        assert (reasoning, rest) == ("", text)
    for char in text:
        left = left[1:] if left.startswith(char) else left
    assert left == ""


def test_a_call_in_the_reasoning_is_a_call() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"tag": "</think>"}}\n</tool_call>'
    stream = ReasoningStream(parts_of(unbraid.find("qwen3")), inside=True)
    assert stream.feed(f"Let me see. {call} And then.\n</think>\n\nDone.") == ("Let me see.  And then.", f"{call}Done.")


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("qwen3", "<think>\nhm\n</think>\n\nHi", "Hi"),
        ("ernie-4.5", "<think>\nhm\n</think>\n\n<response>\nHi\n</response>\n", "Hi"),
        ("hunyuan-a13b", "<think>\nhm\n</think>\n<answer>\nHi\n</answer>", "Hi"),
        ("k2-horizon", "<ifm|think_fast>hm</ifm|think_fast>Hi", "Hi"),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            "Hi",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
            "<|message|>{}<|call|>",
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        ),
    ],
)
def test_no_marker_is_left_in_the_content(name: str, text: str, rest: str) -> None:
    """Who has no detector of calls sees what the first one leaves."""
    stream = ReasoningStream(parts_of(unbraid.find(name)), inside=False)
    assert [*map("".join, zip(*map(stream.feed, text), stream.finish(), strict=True))] == ["hm", rest]


def test_a_tag_in_an_argument_is_data() -> None:
    call = '<tool_call>function\nwrite\n{"html": "<think>no</think>"}</tool_call>'
    stream = ReasoningStream(parts_of(unbraid.find("step-audio-2")), inside=False)
    assert [stream.feed(call), stream.finish()] == [("", call), ("", "")]


def test_nothing_is_held_that_could_be_said() -> None:
    stream = ReasoningStream(parts_of(unbraid.find("qwen3")), inside=False)
    said = ["<think>\nSo", "?</th", "ink>\n\nA ", "<", "b ", '<tool_call>{"arguments": {"a": 1}, ', '"name": "f"}']
    assert [stream.feed(piece) for piece in said] == [
        ("So", ""),
        ("?", ""),
        ("", "A "),
        ("", ""),
        ("", "<b "),
        ("", ""),
        ("", '<tool_call>{"arguments": {"a": 1}, "name": "f"}'),
    ]


def test_a_name_and_then_its_arguments() -> None:
    stream = ToolStream(unbraid.compose(tools="step-audio-2"), None)
    pieces = ["Well: <tool_", "call>function\nsearch\n", '{"q": ', '"a"}', "</tool_call>", " So."]
    assert [stream.feed(piece) for piece in pieces] == [
        ("Well: ", []),
        ("", []),
        ("", [CallPiece(0, "search", ""), CallPiece(0, None, '{"q": ')]),
        ("", [CallPiece(0, None, '"a"}')]),
        ("", []),
        (" So.", []),
    ]
    assert stream.finish() == ("", [])
    assert [(call.name, call.arguments, call.complete) for call in stream.calls] == [("search", {"q": "a"}, True)]


def test_arguments_that_python_does_not_read_are_text() -> None:
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000
    assert StreamedCall("f", [deep], complete=True).arguments == deep
    assert StreamedCall("f", ['{"a": 1}'], complete=True).arguments == {"a": 1}
    assert StreamedCall("f", ['{"a": 1'], complete=False).arguments == '{"a": 1'


def tool(name: str | None, parameters: object = None) -> Any:
    """A tool as SGLang has it."""
    return SimpleNamespace(function=SimpleNamespace(name=name, parameters=parameters, strict=None))


def test_tools_that_sglang_lets_through_do_no_harm() -> None:
    text = {"type": "object", "properties": {"a": {"type": "string"}}}
    known = known_tools([tool("f", text), tool("f", {}), tool(None), tool("g", {"type": "nonsense"}), tool("h")])
    assert {name: dict(known[name]) for name in known} == {"f": text, "g": {}, "h": {}}


# --- Speech --------------------------------------------------------------------------------------------------------


class Listing:
    """A tokenizer of which nothing is known but some of its tokens."""

    def get_vocab(self) -> dict[str, int]:
        audio = {f"<audio_{code}>": 151695 + code for code in (0, 1, 2, 6561)}
        return {"<tts_start>": 151693, "<tts_end>": 151694, "<tts_pad>": 151700, **audio}


def test_speech_by_a_tokenizer_that_only_lists_its_tokens() -> None:
    parser = AudioParserManager.create_parser("step_audio_2", Listing())
    assert (parser.audio_start_token, parser.audio_end_token) == ("<tts_start>", "<tts_end>")
    assert parser.is_tts_output([123, 151693])
    assert not parser.is_tts_output([151693, 123])
    assert not parser.is_tts_output([])
    output = [100, 101, 151700, 151695, 151697, 158256, 151694, 200, 201]
    whole = parser.extract_tts_content_nonstreaming(output, is_tts_ta4_output=True)
    assert whole == ([100, 101], [151695, 151697], [200, 201])
    steps = [parser.extract_tts_content_streaming([token], is_tts_ta4_output=True) for token in output]
    assert steps[0] == ([100], [], [])
    assert steps[3] == ([], [151695], [])
    assert steps[-1] == ([], [], [201])
    parser.reset()
    assert parser.extract_tts_content_streaming([7, 151696], is_tts_ta4_output=True) == ([7], [151696], [])
    assert parser.finish() == ([], [], [])
    assert parser.extract_tts_content_nonstreaming([100, 101]) == ([], [], [100, 101])


def test_speech_that_the_output_opens() -> None:
    parser = StepAudio2AudioParser(Listing())
    found = parser.extract_tts_content_nonstreaming([1, 151693, 2, 151695, 151694, 3])
    assert found == TtsContent(text=[2], audio=[151695], other=[1, 3])


def spelled(tokenizer: object, ids: Iterable[int]) -> str:
    of = vocabulary(tokenizer).token_bytes
    return b"".join(of(token) or b"" for token in ids).decode()


@pytest.mark.parametrize("kind", ["tiktoken", "huggingface"])
def test_a_spoken_turn_with_a_call(kind: Any) -> None:
    turn = spoken_turn()
    tokenizer = real_tokenizers.step_audio_2(kind=kind)
    parser = AudioParserManager.create_parser("step_audio_2", tokenizer)
    assert parser.is_tts_output(turn.prompt)
    assert not parser.is_tts_output(turn.prompt[:-1])
    found = parser.extract_tts_content_nonstreaming(turn.output, is_tts_ta4_output=True)
    audio = "".join(f"<audio_{code}>" for code in turn.codes)
    assert parser.tts_content(found) == {"tts_text": turn.said, "tts_audio": audio}
    # The end of the turn is in none of the three.
    assert spelled(tokenizer, found.other) == f"<tool_call>function\n{turn.tool}\n{turn.arguments}</tool_call>"


@pytest.mark.parametrize("case", STEP)
@examples(4)
@given(data=st.data())
def test_interleaved_speech(case: str, data: st.DataObject) -> None:
    """Reasoning that is spelled in tokens with audio between them goes, whole, to the others."""
    tokenizer = CASES[case][1]()
    text = data.draw(st.text(st.sampled_from("Hello, wörld! 天气预报😀\U00020bb7é\n."), max_size=12))
    thought = data.draw(st.sampled_from(["", "<think>\nhm 思考😀\n</think>\n\n"]))
    codes = data.draw(st.lists(st.integers(0, 6560), max_size=60))
    call = '<tool_call>function\nsearch\n{"q": "北京<audio_3>"}</tool_call>'
    ids = interleaved(tokenizer, text + thought, codes) + encode(tokenizer, f"{call}<tts_end>Bye")
    parser = AudioParserManager.create_parser("step_audio_2", tokenizer)
    whole = parser.extract_tts_content_nonstreaming(ids, is_tts_ta4_output=True)
    assert parser.tts_content(whole) == {"tts_text": text, "tts_audio": "".join(f"<audio_{code}>" for code in codes)}
    assert spelled(tokenizer, whole.other) == f"{thought}{call}Bye"
    assert in_pieces(parser, grouped(ids, data.draw(st.lists(st.integers(1, 6), min_size=1)))) == whole


def in_pieces(parser: Any, groups: Sequence[Sequence[int]], in_speech: bool = True) -> TtsContent:
    found = [parser.extract_tts_content_streaming(group, in_speech) for group in groups] + [parser.finish()]
    return TtsContent(*([token for part in parts for token in part] for parts in zip(*found, strict=True)))


@pytest.mark.parametrize("case", STEP)
@examples(4)
@given(data=st.data())
def test_what_is_left_is_for_the_detectors(case: str, data: st.DataObject) -> None:
    tokenizer = CASES[case][1]()
    step = unbraid.find("step-audio-2")
    message = data.draw(strategies.messages(step))
    parser = AudioParserManager.create_parser("step_audio_2", tokenizer)
    ids = encode(tokenizer, unbraid.render(step, message))
    # Only where the text does not happen to spell tokens do we know what the message is in tokens.
    if unbraid.parse(step, ids, tokenizer=tokenizer) != message:
        return
    found = parser.extract_tts_content_nonstreaming(ids)
    said = parser.tts_content(found)
    speech = [part for part in message.parts if isinstance(part, Speech)]
    assert said["tts_text"] == "".join(part.text for part in speech)
    assert said["tts_audio"] == "".join(f"<audio_{code}>" for part in speech for code in part.codes)
    left = unbraid.parse(parts_of(step), spelled(tokenizer, found.other), prompt="")
    assert in_strands(left) == in_strands(message)


@pytest.mark.parametrize("case", STEP)
@examples(4)
@given(data=st.data())
def test_no_token_is_lost(case: str, data: st.DataObject) -> None:
    tokenizer = CASES[case][1]()
    tokens, step = vocabulary(tokenizer), unbraid.find("step-audio-2")
    ids: list[int] = []
    for piece in data.draw(st.lists(strategies.hostile(step), max_size=3)):
        ids += (encode if data.draw(st.booleans()) else encode_plain)(tokenizer, piece)
    ids += data.draw(st.lists(st.integers(0, 130_000) | st.just(10**7), max_size=4))
    in_speech = data.draw(st.booleans())
    parser = AudioParserManager.create_parser("step_audio_2", tokenizer)
    whole = parser.extract_tts_content_nonstreaming(ids, in_speech)
    assert in_pieces(parser, [[token] for token in ids], in_speech) == whole
    assert in_pieces(parser, grouped(ids, data.draw(st.lists(st.integers(1, 6), min_size=1))), in_speech) == whole
    found = [token for part in whole for token in part]
    bytes_of = [sorted(b"".join(tokens.token_bytes(t) or b"" for t in some)) for some in (ids, found)]
    meaningless = ["<tts_start>", "<tts_end>", "<tts_pad>", "<audio_6561>", "<|EOT|>"]
    dropped = {token for text in meaningless if (token := tokens.token_id(text)) is not None}
    if not dropped & set(ids):
        assert bytes_of[0] == bytes_of[1]
        assert ids.count(10**7) == found.count(10**7)


def test_a_token_that_is_partly_spoken_is_spelled_in_others() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    ids = encode(tokenizer, "OK.<think>\nSo</think>\n\nbye")
    assert encode(tokenizer, ".<")[0] in ids, "one token for the end of what is said and the beginning of the marker"
    parser = AudioParserManager.create_parser("step_audio_2", tokenizer)
    found = parser.extract_tts_content_nonstreaming(ids, is_tts_ta4_output=True)
    assert (spelled(tokenizer, found.text), spelled(tokenizer, found.other)) == ("OK.bye", "<think>\nSo</think>\n\n")


def test_a_parser_is_ready_at_once_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers make one for each request; looking 6,561 codes up for each would be felt."""
    tokenizer = real_tokenizers.step_audio_2()
    AudioParserManager.create_parser("step_audio_2", tokenizer)
    asked: list[str] = []
    monkeypatch.setattr(type(vocabulary(tokenizer)), "token_id", lambda self, text: asked.append(text))
    AudioParserManager.create_parser("step_audio_2", tokenizer)
    assert asked == []


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(UnbraidError, match="has no speech"):
        AudioParserManager.create_parser("hermes", Listing())
    with pytest.raises(UnbraidError, match="no format named"):
        AudioParserManager.get_parser("step_audio_9")
    with pytest.raises(MissingTokens, match="<tts_start>"):
        AudioParserManager.get_parser("step_audio_2")(real_tokenizers.qwen3_huggingface())
    with pytest.raises(TypeError, match="it was given an object of type object"):
        StepAudio2AudioParser(object())
