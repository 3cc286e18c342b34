"""Languages that change from sentence to sentence: each is written down in its own, whole, streamed and live."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.base import Piece, TokenLogprob
from unbraid.speech.attempt import Thresholds
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.decoding.language_changes import LEAST, likeliest_row, stretches
from unbraid.speech.listening import ListenEnd, ListenRequest, Opening
from unbraid.speech.live.transcription import LiveTranscription
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Transcript

from ...support.examples import examples
from ...support.real_speech import recording
from ..audio.detectors import detector
from ..listening import run
from ..live.talking import LevelVoice, heard_in_steps, silence
from ..transcribing import all_of, end, special_tokens, text_vocabulary
from ..whisper.whisper_models import whisper_engine
from ..word_errors import word_errors, words

SAID = {"en": "good morning", "de": "guten Tag", "fr": "bonjour"}
"""The one sentence of each language. Its sound has a level of its own."""
PLAIN = TranscriptionOptions(languages=tuple(SAID))
LAX = Thresholds(compression_ratio=1000.0)
"""A sentence may come again and again."""
_LEVEL = 0.1

Talk = list[tuple[str, float, float]]
"""A language, the seconds that are spoken in it, and those of the pause after it."""
TALK = st.lists(st.tuples(st.sampled_from([*SAID]), st.floats(1.2, 3.0), st.floats(0.4, 1.0)), min_size=1, max_size=5)


def sound_of(talk: Talk) -> Samples:
    tone = np.sin(2 * np.pi * 500 * np.arange(4 * RATE) / RATE)
    parts = []
    for language, seconds, pause in talk:
        level = _LEVEL * (1 + [*SAID].index(language))
        parts += [(level * tone[: round(seconds * RATE)]).astype(np.float32), silence(pause)]
    return np.concatenate(parts)


def spoken_in(samples: Samples) -> list[str]:
    """The language of each sentence, in hundredths of a second."""
    size = RATE // 100
    levels = np.abs(samples[: len(samples) // size * size].reshape(-1, size)).max(axis=1, initial=0.0)
    numbers = [round(float(level) / _LEVEL) for level in levels]
    return [[*SAID][min(number, len(SAID)) - 1] if number else "" for number in numbers]


class Polyglot:
    """Hears sentences in one language a request, as a Whisper does: what is in another is not understood.

    leaning: how much of a stretch it takes for what the rest of the chunk is in.
    """

    model = "polyglot"
    parallel = 2
    tells_languages = True
    vocabulary = text_vocabulary()

    def __init__(self, leaning: float = 0.25) -> None:
        self.leaning = leaning
        self.requests: list[ListenRequest] = []

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        heard = spoken_in(request.samples)
        chances = self._chances(heard, heard)
        [*languages] = request.prefix.sets[0]
        language = max(languages, key=lambda token: chances.get(token, 0.0))
        stretches = [
            self._chances(heard[round(100 * low) : round(100 * high)], heard) for low, high in request.stretches
        ]
        ids = [language, *(min(some) for some in request.prefix.sets[1:]), *self._text(heard, language, request)]
        ids = ids[: request.max_tokens]
        logprobs = tuple(TokenLogprob(token, b"", -0.1) for token in ids)
        yield Opening((ids[0],), None, logprobs[:1], 0.01, tuple(stretches))
        for token, logprob in zip(ids[1:], logprobs[1:], strict=True):
            yield Piece((token,), logprobs=(logprob,))
        yield ListenEnd("stop", len(request.prompt), len(ids), 0.01, chances)

    def _chances(self, heard: Sequence[str], chunk: Sequence[str]) -> dict[int, float]:
        def share(of: Sequence[str], code: str) -> float:
            return of.count(code) / max(1, len(of) - of.count(""))

        shares = {code: (1 - self.leaning) * share(heard, code) + self.leaning * share(chunk, code) for code in SAID}
        return {token: shares.get(code, 0.0) for code, token in special_tokens().languages.items()}

    def _text(self, heard: Sequence[str], language: int, request: ListenRequest) -> list[int]:
        known = special_tokens()
        sentences = [code for code, frames in groupby(heard) if code and len(list(frames)) > 5]
        text = "".join(f" {SAID[code]}." if known.language(code) == language else " What?" for code in sentences)
        times = [known.timestamp(0.0), known.timestamp(len(request.samples) / RATE)] if request.timestamps else []
        return [*times[:1], *text_vocabulary().encode(text), *times[1:], known.eot]

    async def close(self) -> None: ...


def transcriber(listener: Polyglot | None = None) -> Transcriber:
    return Transcriber(listener or Polyglot(), thresholds=LAX, detector=LevelVoice())  # type: ignore[arg-type]


def right(talk: Talk) -> str:
    return " ".join(f"{SAID[language]}." for language, _, _ in talk)


@examples(2)
@given(talk=TALK)
def test_each_sentence_is_in_its_own_language(talk: Talk) -> None:
    """The same streamed as whole, and each segment has the language of its words."""
    sound = sound_of(talk)
    listener = Polyglot()
    found = run(transcriber(listener).transcribe([sound], PLAIN))
    assert found.text == right(talk)
    assert found.language == talk[0][0]
    assert all(SAID[str(segment.language)] in segment.text for segment in found.segments)
    events = run(all_of(transcriber().run([sound], PLAIN, stream=True)))
    assert "".join(event.text for event in events if isinstance(event, Delta)).strip() == found.text
    assert [(one.language, one.text, one.start) for one in end(events).segments] == [
        (one.language, one.text, one.start) for one in found.segments
    ]


@examples(1)
@given(talk=TALK, step=st.integers(RATE // 20, RATE // 4))
def test_live_as_at_once(talk: Talk, step: int) -> None:
    sound = sound_of(talk)
    hearing = LiveTranscription(transcriber(), PLAIN, LAX)
    told = run(heard_in_steps(hearing, sound, range(step, len(sound), step)))
    assert "".join(told) == hearing.text
    assert words(hearing.text) == words(right(talk))
    assert hearing.language == talk[0][0]
    assert hearing.languages == list(dict.fromkeys(language for language, _, _ in talk))


@pytest.mark.parametrize("seconds", [2.0, 2.5, 3.0])
@pytest.mark.parametrize("pause", [0.5, 0.8])
def test_a_change_after_what_was_settled(seconds: float, pause: float) -> None:
    """Where a long stretch ends with a pause, the next one may begin in another language."""
    talk: Talk = [(language, seconds, pause) for language in ("en", "de", "fr") for _ in range(5)]
    hearing = LiveTranscription(transcriber(), PLAIN, LAX)
    sound = sound_of(talk)
    run(heard_in_steps(hearing, sound, range(RATE // 10, len(sound), RATE // 10)))
    assert words(hearing.text) == words(right(talk))
    assert hearing.languages == ["en", "de", "fr"]


def test_one_language_is_heard_as_before() -> None:
    """No further request, and nothing in it is cut."""
    talk: Talk = [("de", 2.0, 0.5)] * 8
    listener = Polyglot()
    found = run(transcriber(listener).transcribe([sound_of(talk)], PLAIN))
    assert found.text == right(talk)
    assert len(listener.requests) == 1


def test_what_sounds_otherwise_in_its_chunk_alone_is_no_other_language() -> None:
    """A stretch that is not understood is heard by itself, and then all in one piece after all."""

    class Unsure(Polyglot):
        def _chances(self, heard: Sequence[str], chunk: Sequence[str]) -> dict[int, float]:
            chances = super()._chances(heard, chunk)
            if heard is not chunk and len(heard) < 150:  # the short one, in the chunk
                chances |= {special_tokens().language("en"): 0.6, special_tokens().language("de"): 0.2}
            return chances

    talk: Talk = [("de", 2.0, 0.5), ("de", 1.0, 0.5), ("de", 3.0, 0.5)]
    listener = Unsure()
    found = run(transcriber(listener).transcribe([sound_of(talk)], PLAIN))
    assert (found.text, {segment.language for segment in found.segments}) == (right(talk), {"de"})
    whole, part, again = (len(request.samples) for request in listener.requests)
    assert whole == again > part


@pytest.mark.parametrize(
    ("options", "languages"),
    [
        (TranscriptionOptions(language="de"), {"de"}),
        (TranscriptionOptions(languages=("de",)), {"de"}),
        (TranscriptionOptions(), {"de"}),
        (TranscriptionOptions(languages=("de", "fr")), {"de", "fr"}),
    ],
)
def test_only_languages_that_may_be_spoken(options: TranscriptionOptions, languages: set[str]) -> None:
    talk: Talk = [("de", 3.0, 0.5), ("fr", 2.0, 0.5), ("de", 2.0, 0.5)]
    found = run(transcriber().transcribe([sound_of(talk)], options))
    assert {segment.language for segment in found.segments} == languages


def test_a_listener_that_does_not_tell() -> None:
    class Silent(Polyglot):
        tells_languages = False

    talk: Talk = [("de", 3.0, 0.5), ("fr", 2.0, 0.5)]
    listener = Silent()
    found = run(transcriber(listener).transcribe([sound_of(talk)], PLAIN))
    assert found.text == "guten Tag. What?"
    assert [request.stretches for request in listener.requests] == [()]


SPANS = st.lists(st.tuples(st.floats(0.05, 3.0), st.floats(0.1, 1.0)), max_size=12)


@given(parts=SPANS)
def test_stretches_are_the_talk_in_parts_that_are_long_enough(parts: list[tuple[float, float]]) -> None:
    talk: list[tuple[float, float]] = []
    at = 0.0
    for seconds, pause in parts:
        talk.append((at, at + seconds))
        at += seconds + pause
    found = stretches(tuple(talk))
    assert [begin for begin, _ in found] == [begin for begin, _ in talk if any(begin == one for one, _ in found)]
    assert {*found[:1], *found[-1:]} == set() if not talk else (found[0][0], found[-1][1]) == (talk[0][0], talk[-1][1])
    assert len(found) <= 1 or all(last - first >= LEAST for first, last in found)


def test_a_change_needs_more_than_a_guess() -> None:
    sure, guess = np.log([0.999, 0.001]), np.log([0.4, 0.6])
    other = np.log([0.001, 0.999])
    assert likeliest_row(np.array([sure, guess, sure])) == [0, 0, 0]
    assert likeliest_row(np.array([sure, other, sure])) == [0, 1, 0]
    assert likeliest_row(np.array([guess, other, other])) == [1, 1, 1]


# A real model


def _joined(parts: Sequence[tuple[str, str]]) -> Samples:
    """Recordings of people, with half a second between them."""
    sounds = []
    for language, name in parts:
        samples = recording(language, name).samples
        [loud] = np.nonzero(np.abs(samples) > 0.01)
        sounds += [samples[loud[0] : loud[-1] + RATE // 10], silence(0.5)]
    return np.concatenate(sounds)


@pytest.mark.system
def test_people_who_speak_several_languages() -> None:
    """English, French, Italian and Russian in one chunk, each in its own words."""
    parts = [
        ("en", "demo-thanks"),
        ("fr", "demo-thanks"),
        ("it", "demo-thanks"),
        ("ru", "tt-weasels"),
        ("en", "tt-weasels"),
    ]

    async def heard(stream: bool) -> Transcript:
        engine = whisper_engine("whisper-base")
        try:
            options = TranscriptionOptions(beams=1, languages=("en", "fr", "it", "ru"))
            return end(
                await all_of(Transcriber(engine, detector=detector()).run([_joined(parts)], options, stream=stream))
            )
        finally:
            await engine.close()

    found, streamed = run(heard(False)), run(heard(True))
    assert [code for code, _ in groupby(segment.language for segment in found.segments)] == [one for one, _ in parts]
    assert (streamed.text, streamed.segments) == (found.text, found.segments)
    said = " ".join(recording(*part).transcript or "" for part in parts)
    assert word_errors(said, found.text) <= len(words(said)) // 4, found.text
