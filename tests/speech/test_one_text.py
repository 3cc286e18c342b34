"""The law of speech: the text of a recording is the same whatever comes with it.

Segments, words, subtitles and streams are views of one transcript. It holds because the model is asked the same,
whatever was asked for; so the model's answers are remembered here, and each further reply must need no new one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.base import Piece
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.listening import ListenEnd, Listener, ListenRequest
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.outputs import render_transcript
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Segment, Transcript
from unbraid.speech.whisper.listener import WhisperEngine

from ..support.real_speech import Recording, recording
from .audio.detectors import detector
from .noises import KINDS, Collage, collage, noise
from .whisper.whisper_models import whisper_engine
from .word_errors import word_errors, words

pytestmark = pytest.mark.system

TINY = "whisper-tiny"
SECONDS = 500.0  # for a busy machine


@dataclass
class Remembering:
    """A listener that answers the same question from memory.

    times: whether it times tokens. Otherwise the model has to write the times.
    """

    listener: Listener
    times: bool = True
    answers: dict[Any, list[Piece | ListenEnd]] = field(default_factory=dict)

    @property
    def model(self) -> str:
        return self.listener.model

    @property
    def vocabulary(self) -> Vocabulary | None:
        return self.listener.vocabulary

    @property
    def parallel(self) -> int:
        return self.listener.parallel

    @property
    def supports_word_times(self) -> bool:
        return self.times

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        key = request.samples.tobytes(), repr(replace(request, recording=None))
        if key not in self.answers:
            async with aclosing(self.listener.listen(request)) as outputs:
                self.answers[key] = [output async for output in outputs]
        for output in self.answers[key]:
            yield output

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = whisper_engine(TINY)
    yield engine
    asyncio.run(engine.close())


@cache
def sentences() -> tuple[Recording, ...]:
    return recording("en", "tt-weasels"), recording("en", "demo-thanks"), recording("en", "demo-nogo")


@cache
def made(name: str) -> Collage:
    if name in KINDS:  # noise with a long pause, a short one, and one between
        return collage(sentences(), (1.0, 9.0, 0.4, 3.0), name)
    weasels, thanks, _ = sentences()
    return collage((thanks, weasels, thanks), (0.0, 0.3, 0.3, 0.0), "silence")


async def replies(transcriber: Transcriber, samples: Samples) -> dict[str, Transcript]:
    """The transcript of everything that can be asked for."""
    asked = {
        "text": TranscriptionOptions(),
        "timed": TranscriptionOptions(timestamps=True),
        "zero": TranscriptionOptions(temperature=0.0),
        "words": TranscriptionOptions(timestamps=True, words=True),
    }
    if not getattr(transcriber.listener, "supports_word_times", False):
        del asked["words"]
    found: dict[str, Transcript] = {}
    for name, options in asked.items():
        found[name] = await transcriber.transcribe([samples], options)
        deltas, segments = "", []
        async for event in transcriber.run([samples], options, stream=True):
            if isinstance(event, Delta):
                deltas += event.text
            elif isinstance(event, Segment):
                segments.append(event)
            elif isinstance(event, Transcript):
                found[f"{name}, streamed"] = event
        assert deltas.strip() == found[name].text
        assert [(one.start, one.end, one.text) for one in segments] == [
            (one.start, one.end, one.text) for one in found[name].segments
        ]
    return found


def check_one_text(found: dict[str, Transcript]) -> str:
    [text] = {transcript.text for transcript in found.values()}
    for transcript in found.values():
        for format in ("srt", "vtt", "verbose_json", "json", "text"):
            rendered = render_transcript(transcript, format, TranscriptionOptions(words=True))
            if not isinstance(rendered, str):
                assert rendered["text"] == text
                segments = rendered.get("segments")
                assert segments is None or "".join(one["text"] for one in segments).strip() == text
            else:
                assert spoken(rendered) == text.split()
        at = 0.0
        for segment in transcript.segments:
            assert at <= segment.start <= segment.end <= transcript.duration + 0.01
            at = segment.end
    return text


def spoken(subtitles: str) -> list[str]:
    lines = [line for line in subtitles.splitlines() if "-->" not in line and not re.fullmatch(r"\d+|WEBVTT", line)]
    return " ".join(lines).replace("&amp;", "&").split()


@pytest.mark.parametrize("written", [False, True], ids=["aligned", "written times"])
@pytest.mark.parametrize("name", ["music", "joined"])
def test_one_text_in_all_replies(engine: WhisperEngine, name: str, written: bool) -> None:
    """Also by a listener that cannot time tokens, for which the model writes the times."""
    listener = Remembering(engine, times=not written)
    transcriber = Transcriber(listener, detector=detector())
    sound = made(name)

    async def all_replies() -> tuple[int, dict[str, Transcript]]:
        async with asyncio.timeout(SECONDS):
            await transcriber.transcribe([sound.samples], TranscriptionOptions())
            asked = len(listener.answers)
            return asked, await replies(transcriber, sound.samples)

    asked, found = asyncio.run(all_replies())
    assert len(listener.answers) == asked
    text = check_one_text(found)
    assert word_errors(sound.text, text) <= 0.2 * len(words(sound.text)), text


@cache
def timed(name: str) -> Transcript:
    """With the times of words. The engine is made for each, as a fixture cannot be cached."""

    async def heard() -> Transcript:
        engine = whisper_engine(TINY)
        try:
            async with asyncio.timeout(SECONDS):
                transcriber = Transcriber(engine, detector=detector())
                options = TranscriptionOptions(timestamps=True, words=True)
                return await transcriber.transcribe([made(name).samples], options)
        finally:
            await engine.close()

    return asyncio.run(heard())


@pytest.mark.parametrize("name", KINDS)
def test_times_lie_where_the_sound_is(name: str) -> None:
    """Known times, and a noise between the sentences: no word is where nobody speaks, none has no length, and each
    sentence begins and ends when it does."""
    sound, transcript = made(name), timed(name)
    assert word_errors(sound.text, transcript.text) <= 0.2 * len(words(sound.text)), transcript.text
    heard = [word for segment in transcript.segments for word in segment.words]
    for word in heard:
        assert word.start < word.end, word
        assert not sound.silent_at(word.start, slack=0.2), word
        assert not sound.silent_at(word.end, slack=0.25), word
    for sentence in sound.sentences:
        within = [one for one in heard if sentence.start - 0.3 < (one.start + one.end) / 2 < sentence.end + 0.3]
        assert abs(within[0].start - sentence.start) < 0.3
        assert abs(within[-1].end - sentence.end) < 0.3
        assert abs(len(within) - len(words(sentence.text))) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_speaks_and_nothing_is_decoded(kind: str) -> None:
    listener = Remembering(Refusing())
    transcriber = Transcriber(listener, detector=detector())
    transcript = asyncio.run(transcriber.transcribe([noise(kind, 20.0)], TranscriptionOptions()))
    assert (transcript.text, transcript.segments, transcript.language) == ("", (), None)
    assert transcript.duration == pytest.approx(20.0)


def test_nothing_is_lost_at_any_joint(engine: WhisperEngine) -> None:
    """A sentence that is cut at any place by a long pause of noise: what was said before and after it is there."""
    samples = recording("en", "demo-nogo").samples
    whole = words("unable to create a connection demonstration helpful debugging information console")
    transcriber = Transcriber(engine, detector=detector())

    async def cut_at(seconds: float) -> Transcript:
        at = round(seconds * RATE)
        parts = [samples[:at], noise("hiss", 8.0, 0.003), samples[at:]]
        return await transcriber.transcribe([np.concatenate(parts)], TranscriptionOptions())

    async def all_cuts() -> list[Transcript]:
        async with asyncio.timeout(SECONDS):
            return await asyncio.gather(*(cut_at(seconds) for seconds in (1.3, 2.9, 4.4, 6.1)))

    for transcript in asyncio.run(all_cuts()):
        missing = set(whole) - set(words(transcript.text))
        assert len(missing) <= 2, transcript.text  # the word that the pause is in, and what it does to the next


class Refusing:
    """A listener that must not be asked."""

    model = "deaf"
    parallel = 1
    vocabulary = None

    def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        raise AssertionError("there was nothing to listen to")

    async def close(self) -> None: ...
