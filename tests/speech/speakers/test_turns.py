"""Who speaks when: by windows, by words, and in what a transcript is written as."""

from __future__ import annotations

import json
from asyncio import run
from typing import Any

import numpy as np
import pytest
from openai.types.audio import TranscriptionDiarized

from unbraid.speech.audio.chunking import Chunk
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.errors import UnsupportedOption
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.outputs import render_transcript
from unbraid.speech.speakers.campplus import VoiceModel
from unbraid.speech.speakers.turns import Voices, speaker_name
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Segment, Transcript, Word

from ...support.real_speech import recording
from ..whisper.whisper_models import whisper_engine
from .voice_models import LevelVoices

OPTIONS = TranscriptionOptions(speakers=True)


def spoken(*turns: tuple[int, float]) -> Samples:
    """Sound in which each number speaks for so many seconds."""
    return np.concatenate([np.full(round(seconds * RATE), number / 10, np.float32) for number, seconds in turns])


def heard(*turns: tuple[int, float], chunk: float = 30.0) -> Voices:
    voices = Voices(LevelVoices())  # type: ignore[arg-type]
    samples, start, size = spoken(*turns), 0.0, round(chunk * RATE)
    for at in range(0, len(samples), size):
        part = samples[at : at + size]
        voices.add(Chunk(start, part, speech=((0.0, len(part) / RATE),)))
        start += len(part) / RATE
    return voices


def segment(start: float, *words: str) -> Segment:
    """Words of half a second each."""
    timed = tuple(Word(f" {word}", start + at / 2, start + at / 2 + 0.4, 0.9) for at, word in enumerate(words))
    return Segment(start, timed[-1].end, "".join(word.text for word in timed), "en", words=timed)


def labels(voices: Voices, *segments: Segment) -> list[tuple[str | None, str]]:
    said = voices.labelled(Transcript("", "en", 0.9, 9.0, segments))
    return [(one.speaker, one.text.strip()) for one in said.segments]


@pytest.mark.parametrize("chunk", [30.0, 7.3])
def test_speakers_are_named_as_they_begin_and_known_again(chunk: float) -> None:
    voices = heard((5, 6), (2, 6), (5, 6), (9, 6), (2, 6), chunk=chunk)
    said = labels(voices, *(segment(at, "one", "two", "three") for at in (2, 8, 14, 20, 26)))
    assert [speaker for speaker, _ in said] == ["A", "B", "A", "C", "B"]


def test_a_segment_is_cut_where_the_speaker_changes() -> None:
    voices = heard((5, 6), (2, 6))
    words = [str(number) for number in range(16)]  # from 2 to 10 s
    (one, first), (other, second) = labels(voices, segment(2.0, *words))
    assert (one, other) == ("A", "B")
    assert f"{first} {second}" == " ".join(words)
    assert second.split()[0] in ("8", "9"), "half a second early or late"


def test_a_cough_is_no_speaker_and_no_cut() -> None:
    voices = heard((5, 6), (9, 0.5), (5, 6))
    words = [str(number) for number in range(16)]
    assert labels(voices, segment(2.0, *words)) == [("A", " ".join(words))]


def test_hours_are_grouped_in_blocks() -> None:
    voices = heard(*((2 + 3 * (turn % 2), 30) for turn in range(60)))
    assert {number for _, number in voices.speakers()} == {0, 1}
    assert len(voices._groups) < 850


def test_nobody_spoke() -> None:
    assert Voices(LevelVoices()).speakers() == []  # type: ignore[arg-type]
    assert labels(Voices(LevelVoices()), segment(0, "hm")) == [(None, "hm")]  # type: ignore[arg-type]


def test_names_go_on_after_z() -> None:
    assert [speaker_name(number) for number in (0, 25, 26, 51, 52, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
    ]


def test_formats_name_the_speakers() -> None:
    segments = segment(2, "Good", "day."), segment(8, "How", "are", "you?")
    said = heard((5, 6), (2, 6)).labelled(Transcript("Good day. How are you?", "en", 0.9, 12.0, segments))
    assert render_transcript(said, "text", OPTIONS) == "A: Good day.\nB: How are you?\n"
    assert "\nA: Good day.\n" in str(render_transcript(said, "srt", OPTIONS))
    assert "\nB: How are you?\n" in str(render_transcript(said, "vtt", OPTIONS))
    verbose: Any = render_transcript(said, "verbose_json", OPTIONS)
    assert [one["speaker"] for one in verbose["segments"]] == ["A", "B"]
    diarized = TranscriptionDiarized.model_validate(render_transcript(said, "diarized_json", OPTIONS), strict=True)
    assert [(one.speaker, one.text, one.start) for one in diarized.segments] == [
        ("A", "Good day.", 2.0),
        ("B", "How are you?", 8.0),
    ]
    assert diarized.text == said.text


def test_without_a_model_nobody_can_ask() -> None:
    from unbraid.speech.whisper.tokens import WhisperVocabulary

    from ...support.real_tokenizers import whisper_like
    from ..live.talking import WordListener

    with pytest.raises(UnsupportedOption, match="tells speakers apart") as refused:
        Transcriber(WordListener(WhisperVocabulary(whisper_like()))).check(OPTIONS)
    assert refused.value.field == "speakers"


@pytest.mark.system
def test_real_voices_are_told_apart() -> None:
    """Two people in turn, with CAM++'s own weights."""
    announcer, president = recording("en", "demo-congrats").samples[: 8 * RATE], recording("en", "jfk").samples
    pause = np.zeros(RATE // 4, np.float32)
    sound = np.concatenate([announcer, pause, president[: 5 * RATE], pause, announcer, pause, president[5 * RATE :]])
    transcriber = Transcriber(whisper_engine("whisper-tiny"), voices=VoiceModel())
    said = run(transcriber.transcribe([sound], OPTIONS))
    turns = str(render_transcript(said, "text", OPTIONS)).splitlines()
    assert [turn[0] for turn in turns] == ["A", "B", "A", "B"], json.dumps(turns)
    assert "congratulations" in turns[0].lower()
    assert "country" in turns[3].lower()
    assert not any(segment.words for segment in said.segments)
