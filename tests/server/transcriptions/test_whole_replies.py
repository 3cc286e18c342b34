"""Transcriptions in one reply: OpenAI's own client, a real Whisper and real speech, in all formats."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
from openai.types.audio import TranscriptionDiarized

from unbraid.speech.transcriber import Transcriber

from ...speech.speakers.voice_models import LevelVoices
from ...speech.whisper.whisper_models import WORDS, tokenizer
from ...support.real_speech import RATE, recording
from .support import (
    KINDS,
    PREFIX,
    TRANSLATIONS,
    WEASELS,
    ScriptedListener,
    SpeechServer,
    encoded,
    frames,
    jfk,
    refused,
    wav,
    weasels,
    words,
)

pytestmark = pytest.mark.system

CLOCK = r"\d\d:\d\d:\d\d[,.]\d{3}"


def test_json(speech: SpeechServer) -> None:
    found = speech.client.audio.transcriptions.create(model="whisper-1", file=("jfk.wav", jfk()))
    assert words(found.text) == WORDS
    assert found.text == found.text.strip()
    assert found.to_dict()["language"] == "en"
    assert found.to_dict()["usage"] == {"type": "duration", "seconds": 11}


def test_text(speech: SpeechServer) -> None:
    found = speech.client.audio.transcriptions.create(model="whisper-1", file=("a", weasels()), response_format="text")
    assert isinstance(found, str)
    assert words(found) == WEASELS
    assert found.endswith(".\n")


def test_verbose_json(speech: SpeechServer) -> None:
    found = speech.client.audio.transcriptions.create(
        model=speech.engine.model,
        file=("jfk.wav", jfk()),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
        temperature=0.0,
    )
    assert (words(found.text), found.language) == (WORDS, "english")
    assert float(found.duration) == pytest.approx(11.0, abs=0.1)
    more = cast(dict[str, Any], found.to_dict())
    assert (more["task"], more["language_code"], more["warnings"]) == ("transcribe", "en", [])
    assert 0.5 < more["language_probability"] <= 1.0
    assert found.segments
    assert "".join(segment.text for segment in found.segments).strip() == found.text
    last = 0.0
    for number, segment in enumerate(found.segments):
        assert (segment.id, segment.temperature) == (number, 0.0)
        assert last <= segment.start < segment.end <= 11.1
        assert -1.0 < segment.avg_logprob < 0.0
        assert 0.0 <= segment.no_speech_prob < 0.6
        assert 0.3 < segment.compression_ratio < 2.4  # short ones grow
        text = [token for token in segment.tokens if token < speech.engine.tokens.eot]
        assert tokenizer().decode(text).strip() == segment.text.strip()
        last = segment.end


@pytest.mark.parametrize("granularities", [["word"], ["word", "segment"]])
def test_words_and_their_times(speech: SpeechServer, granularities: list[Any]) -> None:
    found = speech.client.audio.transcriptions.create(
        model="whisper-1",
        file=("jfk.wav", jfk()),
        response_format="verbose_json",
        timestamp_granularities=granularities,
    )
    assert found.words
    assert " ".join(word.word for word in found.words) == found.text
    assert words(found.text) == WORDS
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == sorted(times)
    [americans] = [word for word in found.words if words(word.word) == "americans"]
    assert 1.2 < americans.start < 1.8 < americans.end < 2.4
    # Segments are there in any case, and as long as their words.
    assert found.segments
    assert (found.segments[0].start, found.segments[-1].end) == (times[0], times[-1])
    more = cast(list[dict[str, Any]], found.to_dict()["words"])
    assert all(set(word) == {"word", "start", "end", "probability"} and 0 < word["probability"] <= 1 for word in more)


def test_words_of_a_translation(speech: SpeechServer) -> None:
    file = recording("es", "demo-thanks").path.read_bytes()
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    found = speech.post(file, TRANSLATIONS, **more).json()
    assert " ".join(word["word"] for word in found["words"]) == found["text"]


def test_no_words_that_were_not_asked_for(speech: SpeechServer) -> None:
    found = speech.post(weasels(), response_format="verbose_json", **{"timestamp_granularities[]": "segment"})
    assert "words" not in found.json()
    assert speech.post(weasels(), **{"timestamp_granularities[]": "segment"}).status_code == 200  # does no harm
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    silence = speech.post(wav(np.zeros(RATE, np.float32)), **more).json()
    assert (silence["words"], silence["segments"]) == ([], [])


def test_a_model_that_cannot_time_words(speech: SpeechServer, listener: ScriptedListener) -> None:
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    error = refused(speech.post(weasels(), **more), 400)
    assert error["message"] == ("timestamp_granularities: this model cannot time words; ask for segments")
    assert (error["param"], error["code"]) == ("timestamp_granularities", "unsupported")
    error = refused(speech.post(weasels(), beam_size="2"), 400)
    assert error["message"] == "beam_size: this model has no beam search: it takes 1 beam, not 2"
    assert (error["param"], error["code"]) == ("beam_size", "unsupported")
    assert listener.asked == 0


def test_beams(speech: SpeechServer) -> None:
    create = speech.client.audio.transcriptions.create
    found = create(model="whisper-1", file=("a.wav", jfk()), extra_body={"beam_size": 2})
    assert words(found.text) == WORDS
    *deltas, done = frames(speech.post(jfk(), beam_size="2", stream="true"))
    assert "".join(event["delta"] for event in deltas) == done["text"] == found.text


def test_srt_and_vtt(speech: SpeechServer) -> None:
    create = speech.client.audio.transcriptions.create
    srt = create(model="whisper-1", file=("a.wav", jfk()), response_format="srt")
    vtt = create(model="whisper-1", file=("a.wav", jfk()), response_format="vtt")
    number, times, text = srt.split("\n")[:3]
    assert (number, words(text)[:9]) == ("1", "and so my")
    assert re.fullmatch(f"{CLOCK} --> {CLOCK}", times)
    assert "," in times
    assert re.match(f"WEBVTT\n\n{CLOCK} --> {CLOCK}\n", vtt)
    assert "," not in vtt.split("\n")[2]
    lines = [line for line in srt.split("\n") if line and "-->" not in line and not line.isdigit()]
    assert words(" ".join(lines)) == WORDS


def test_a_language_that_is_given(speech: SpeechServer) -> None:
    file = recording("fr", "tt-weasels").path.read_bytes()
    found = speech.client.audio.transcriptions.create(
        model="whisper-1", file=("a.wav", file), language="French", response_format="verbose_json"
    )
    assert found.language == "french"
    assert "téléphonique" in found.text
    assert found.to_dict()["language_probability"] is None


def test_languages_that_it_may_be(speech: SpeechServer) -> None:
    """Spoken is Spanish: the nearest of those is taken."""
    file = recording("es", "demo-thanks").path.read_bytes()
    create = speech.client.audio.transcriptions.create
    found = create(model="whisper-1", file=("a.wav", file), extra_body={"languages": ["ru", "Italian"]})
    assert found.to_dict()["language"] == "it"


@pytest.mark.parametrize(
    ("fields", "languages"),
    [
        ({}, 99),
        ({"language": "en"}, 1),
        ({"language": "en-GB"}, 1),
        ({"languages": ["de", "English"]}, 2),
        ({"languages[]": ["de", "en", "fr"]}, 3),
        ({"language": "en", "languages": ["de", "fr"]}, 1),
        ({"language": "", "languages": ""}, 99),
    ],
)
def test_languages_to_choose_from(
    speech: SpeechServer, listener: ScriptedListener, fields: dict[str, Any], languages: int
) -> None:
    listener.say(*PREFIX, " Hello")
    assert speech.post(weasels(), **fields).json()["language"] == "en"
    assert [len(tokens) for tokens in listener.requests[0].prefix.sets] == [languages, 1]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # says the client
def test_a_translation(speech: SpeechServer) -> None:
    file = recording("es", "demo-thanks").path.read_bytes()
    found = speech.client.audio.translations.create(model="whisper-1", file=("a.wav", file))
    assert "thank" in found.text.casefold()
    more = speech.client.audio.translations.create(
        model="whisper-1", file=("a.wav", file), response_format="verbose_json"
    )
    assert more.to_dict()["task"] == "translate"


def test_a_prompt(speech: SpeechServer) -> None:
    """It says how a name is written."""
    file = recording("en", "demo-thanks").path.read_bytes()
    create = speech.client.audio.transcriptions.create
    assert "Asterisk" not in create(model="whisper-1", file=("a.wav", file)).text
    assert "Asterisk" in create(model="whisper-1", file=("a.wav", file), prompt="Asterisk").text


def test_a_prompt_that_spells_tokens(speech: SpeechServer, listener: ScriptedListener) -> None:
    """They are text."""
    listener.say(*PREFIX, " Hello")
    assert speech.post(weasels(), prompt="<|endoftext|> <|de|><|0.00|>").status_code == 200
    first, *plain, last = listener.requests[0].prompt
    tokens = speech.engine.tokens
    assert (first, last) == (tokens.startofprev, tokens.sot)
    assert len(plain) > 10
    assert max(plain) < tokens.eot


def test_a_temperature(speech: SpeechServer) -> None:
    """The same seed gives the same text."""
    found = [speech.post(weasels(), temperature=1.0, seed=3).json()["text"] for _ in range(2)]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_files(speech: SpeechServer, kind: str) -> None:
    found = speech.client.audio.transcriptions.create(model="whisper-1", file=(f"speech.{kind}", encoded(kind)))
    assert words(found.text) == WEASELS


def test_several_at_once(speech: SpeechServer) -> None:
    """They are decoded together, and each gets its own."""
    asked = [(language, stream) for language in ("en", "fr", "it") for stream in ("false", "true")]

    def ask(language: str, stream: str) -> tuple[str | None, str]:
        response = speech.post(recording(language, "demo-thanks").path.read_bytes(), stream=stream)
        found = response.json() if stream == "false" else frames(response)[-1]
        return found["language"], found["text"]

    with ThreadPoolExecutor(len(asked)) as threads:
        found = list(threads.map(ask, *zip(*asked, strict=True)))
    assert [language for language, _ in found] == [language for language, _ in asked]
    for whole, streamed in zip(found[::2], found[1::2], strict=True):
        assert whole == streamed


def test_it_is_among_the_models(speech: SpeechServer) -> None:
    assert {"whisper-tiny", "whisper-1"} < {model.id for model in speech.client.models.list()}


def test_diarized_json(speech: SpeechServer) -> None:
    """As OpenAI's client reads it, whole and as a stream, whose segments come when it is known who spoke."""
    speech.server.service.transcriber = Transcriber(speech.engine, voices=LevelVoices())  # type: ignore[arg-type]
    sound = recording("en", "jfk").samples
    upload = wav(np.concatenate([0.3 * sound, sound]))
    create = cast(Any, speech.client.audio.transcriptions.create)
    whole = create(model="whisper-1", file=("a.wav", upload), response_format="diarized_json")
    assert isinstance(whole, TranscriptionDiarized)
    speakers = [segment.speaker for segment in whole.segments]
    assert speakers[0] == "A"
    assert len({*speakers}) > 1
    assert " ".join(segment.text for segment in whole.segments) == whole.text
    events = list(create(model="whisper-1", file=("a.wav", upload), response_format="diarized_json", stream=True))
    told = [event for event in events if event.type == "transcript.text.segment"]
    assert [(one.speaker, one.text) for one in told] == [(one.speaker, one.text) for one in whole.segments]
    assert (events[-1].type, events[-1].text) == ("transcript.text.done", whole.text)
