"""Speech taken out of token ids. SGLang is not needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
from unbraid import MissingTokens, Speech, Text, UnbraidError
from unbraid.plugins.sglang import AudioParserManager, StepAudio2AudioParser, TtsContent
from unbraid.tokens import vocabulary

from ...core.test_token_laws import CASES, STEP, braided, grouped, interleaved
from ...support import real_tokenizers, strategies
from ...support.examples import examples
from ...support.real_tokenizers import encode, encode_plain
from ...support.spoken_turn import spoken_turn
from .test_text_streams import in_strands, parts_of


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


@pytest.mark.parametrize("name", ["glm-4-voice", "vita-audio", "covo-audio", "audex", "audex-tta"])
def test_other_models_that_speak(name: str) -> None:
    """Their codes come back as the tokens that they were, whether or not the tokenizer has a text for them."""
    tokenizer, format = real_tokenizers.speaking(name), unbraid.find(name)
    text, codes = "Hello, 天气预报\U00020bb7 there!", list(range(0, 400, 7))
    turns = braided(format, tokenizer, text, codes)
    ids = [token for turn in turns for token in turn]
    parser = AudioParserManager.create_parser(name, tokenizer)
    assert format.speech is not None
    assert parser.is_tts_output(encode(tokenizer, format.speech.open))
    whole = parser.extract_tts_content_nonstreaming([*ids, *encode(tokenizer, format.ends[0])], is_tts_ta4_output=True)
    assert parser.tts_content(whole) == {"tts_text": text, "tts_audio": "".join(f"<audio_{code}>" for code in codes)}
    assert set(whole.audio) <= set(ids)
    assert whole.other == []
    assert in_pieces(parser, grouped(ids, [1, 3])) == whole
    plain = encode_plain(tokenizer, text)
    assert parser.extract_tts_content_nonstreaming(plain) == ([], [], plain)


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
    assume(unbraid.parse(step, ids, tokenizer=tokenizer) == message)
    found = parser.extract_tts_content_nonstreaming(ids)
    said = parser.tts_content(found)
    speech = [part for part in message.parts if isinstance(part, Speech)]
    assert said["tts_text"] == "".join(part.text for part in speech)
    assert said["tts_audio"] == "".join(f"<audio_{code}>" for part in speech for code in part.codes)
    left = unbraid.parse(parts_of(step), spelled(tokenizer, found.other), prompt="")
    # Inside speech, reasoning opens whatever the answer before it. The detectors see no speech: to them, what opens
    # reasoning once the answer has begun is text (law 15).
    thoughts = [at for at, part in enumerate(message.parts) if isinstance(part, Text) and part.strand == "reasoning"]
    if all(strategies.may_reason(step, strategies.answer_of(step, list(message.parts[:at]))) for at in thoughts):
        assert in_strands(left) == in_strands(message)
    else:
        assert "<think>" in left.content


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
