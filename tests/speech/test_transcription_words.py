"""Times of words in transcripts: a real Whisper with real speech whose words are known to be somewhere, and listeners
that pretend."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from unbraid.engines.base import EngineFailed, Piece, TokenLogprob, Unsupported
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.errors import UnsupportedOption
from unbraid.speech.listening import ListenEnd, ListenRequest, TextVocabulary
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Transcript
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.listener import WhisperEngine

from ..support.in_loop import collect, collect_until_error
from ..support.real_speech import recording
from .whisper.whisper_models import as_float_pair, files, whisper_engine

pytestmark = pytest.mark.system

BASE = "whisper-base"
WISH = TranscriptionOptions(timestamps=True, words=True)

# When whisper.cpp, with the weights of tiny, says that each word of the recording begins.
JFKS = {
    "and so my fellow americans": [0.32, 0.35, 0.68, 0.81, 1.51],
    "ask not": [3.28, 4.01],
    "what your country can do for you": [4.65, 5.41, 5.65, 6.27, 6.57, 6.80, 7.15],
    "ask what you can do for your country": [8.19, 8.63, 8.91, 9.04, 9.35, 9.50, 9.72, 9.99],
}
PAUSES = [(2.3, 3.2), (4.6, 5.3), (7.8, 8.1)]
"""Where nobody speaks in it."""


def check_words(transcript: Transcript) -> None:
    """What is true of every transcript with words."""
    at = 0.0
    for segment in transcript.segments:
        assert "".join(word.text for word in segment.words) == segment.text
        assert (segment.start, segment.end) == (segment.words[0].start, segment.words[-1].end)
        for word in segment.words:
            assert at <= word.start <= word.end <= transcript.duration + 0.006
            assert 0.0 < word.probability <= 1.0
            at = word.end
    assert "".join(word.text for segment in transcript.segments for word in segment.words).strip() == transcript.text


def plain(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    made = whisper_engine(BASE)
    yield made
    asyncio.run(made.close())


def transcribed(engine: WhisperEngine, samples: Samples, options: TranscriptionOptions = WISH) -> Transcript:
    transcript = asyncio.run(Transcriber(engine).transcribe([samples], options))
    check_words(transcript)
    return transcript


# --- A real Whisper --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamps", [True, False])
def test_a_famous_sentence(engine: WhisperEngine, timestamps: bool) -> None:
    transcript = transcribed(engine, recording("en", "jfk").samples, replace(WISH, timestamps=timestamps))
    words = [word for segment in transcript.segments for word in segment.words]
    theirs = [start for starts in JFKS.values() for start in starts]
    assert [plain(word.text) for word in words] == " ".join(JFKS).split()
    apart = [abs(word.start - start) for word, start in zip(words, theirs, strict=True)]
    assert statistics.median(apart) < 0.1
    assert sum(each > 0.3 for each in apart) <= 2, apart
    for begin, end in PAUSES:
        assert all(word.end <= begin or word.start >= end for word in words), (begin, end)
    [americans] = [word for word in words if plain(word.text) == "americans"]
    assert americans.start <= 1.8 <= americans.end  # as openai-whisper's own tests have it


def stretches(samples: Samples) -> list[tuple[float, float]]:
    """Where the words are that were joined with silence between them: what is loud between zeros."""
    silent = np.abs(samples) < 1e-9
    edges = [0, *np.flatnonzero(np.diff(silent)) + 1, len(samples)]
    gaps = [(a, b) for a, b in itertools.pairwise(edges) if silent[a] and b - a >= 0.3 * RATE]
    found = []
    for (_, begin), (end, _) in itertools.pairwise(gaps):
        loud = np.flatnonzero(np.abs(samples[begin:end]) > 0.02 * np.abs(samples).max())
        if len(loud):
            found.append(((begin + loud[0]) / RATE, (begin + loud[-1]) / RATE))
    return found


@pytest.mark.parametrize("language", ["de", "en", "sl"])
def test_words_one_by_one(engine: WhisperEngine, language: str) -> None:
    """Single words with silence between them: it is known to the hundredth where each begins and ends."""
    samples = recording(language, "words").samples
    transcript = transcribed(engine, samples, replace(WISH, language=language))
    words = [word for segment in transcript.segments for word in segment.words]
    known = stretches(samples)
    assert len(words) == len(known) == 14
    starts = [abs(word.start - begin) for word, (begin, _) in zip(words, known, strict=True)]
    ends = [abs(word.end - end) for word, (_, end) in zip(words, known, strict=True)]
    assert statistics.median(starts) < 0.05
    assert statistics.median(ends) < 0.1
    assert max(starts) < 0.25
    assert max(ends) < 0.5


def test_a_long_recording(engine: WhisperEngine) -> None:
    """Words of later chunks have the times of the recording, and are as many as the text has."""
    speech = recording("en", "demo-instruct")
    transcript = transcribed(engine, speech.samples)
    words = [word for segment in transcript.segments for word in segment.words]
    assert len(words) == len(transcript.text.split())
    assert words[0].start > 0.5  # it begins with silence
    assert speech.seconds - 3 < words[-1].end < speech.seconds
    assert len(transcript.segments) > 6
    assert statistics.median(word.end - word.start for word in words) < 0.5


def test_other_letters(engine: WhisperEngine) -> None:
    """Whose characters are cut over several tokens."""
    transcript = transcribed(engine, recording("ru", "demo-nogo").samples)
    words = [word for segment in transcript.segments for word in segment.words]
    assert "\ufffd" not in transcript.text
    assert [word.text.strip() for word in words] == transcript.text.split()


def test_who_does_not_ask_gets_the_same_text(engine: WhisperEngine) -> None:
    samples = recording("it", "demo-thanks").samples
    asked = TranscriptionOptions(timestamps=True)

    async def both() -> tuple[Transcript, Transcript]:
        transcriber = Transcriber(engine)
        return await asyncio.gather(transcriber.transcribe([samples], asked), transcriber.transcribe([samples], WISH))

    without, with_words = asyncio.run(both())
    assert without.text == with_words.text
    assert [segment.words for segment in without.segments] == [()] * len(without.segments)
    assert [segment.tokens for segment in without.segments] == [segment.tokens for segment in with_words.segments]
    check_words(with_words)


def test_times_are_told_of_each_token(engine: WhisperEngine) -> None:
    samples = recording("en", "tt-weasels").samples
    request = WhisperAdapter(engine.vocabulary).request(samples, WISH, 0.0)
    *_, end = asyncio.run(collect(engine.listen(request)))
    assert len(end.times) == end.completion_tokens + 1
    assert list(end.times) == sorted(end.times)
    *_, end = asyncio.run(collect(engine.listen(replace(request, words=False))))
    assert end.times == ()


def test_files_that_do_not_tell_where_the_model_looks(tmp_path: Path) -> None:
    """Decoders of floats were exported without it."""
    mute = WhisperEngine(as_float_pair(files("whisper-tiny"), tmp_path / "tiny"), threads=2)
    decoder = mute._model._decoder
    assert decoder.has_attention
    decoder.has_attention = False
    assert not mute.supports_word_times
    with pytest.raises(UnsupportedOption, match="cannot time words; ask for segments") as raised:
        Transcriber(mute).check(WISH)
    assert raised.value.field == "words"
    request = WhisperAdapter(mute.vocabulary).request(np.zeros(RATE, np.float32), WISH, 0.0)
    _, error = asyncio.run(collect_until_error(mute.listen(request)))
    assert isinstance(error, Unsupported)
    asyncio.run(mute.close())


# --- Listeners that pretend ------------------------------------------------------------------------------------------


@dataclass
class Telling:
    """A listener that says the same in each chunk, at times that it is given, from 0.8 s before the first sound on."""

    vocabulary: TextVocabulary
    tokens: list[str]
    times: tuple[float, ...]
    supports_word_times: bool = True
    model: str = "telling"
    parallel: int = 2
    requests: list[ListenRequest] = field(default_factory=list)

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        ids = []
        for text in self.tokens:
            token = self.vocabulary.token_id(text)
            ids += self.vocabulary.encode(text) if token is None else [token]
        for token in ids:
            yield Piece((token,), logprobs=(TokenLogprob(token, b"", -0.5),))
        before = np.flatnonzero(request.samples)[0] / RATE - 0.8
        times = tuple(max(0.0, time + before) for time in self.times)
        yield ListenEnd("stop", 1, len(ids), times=times if request.words else ())

    async def close(self) -> None: ...


TOKENS = ["<|en|>", "<|transcribe|>", "<|0.00|>", " One", ",", " two", ".", "<|4.00|>", "<|endoftext|>"]
TIMES = (0.0, 0.0, 0.0, 0.5, 1.5, 2.0, 3.0, 3.2, 3.2, 5.0)


def tone(*loud: tuple[float, float]) -> Samples:
    time = np.arange(28 * RATE) / RATE
    on = sum((time >= begin) & (time < end) for begin, end in loud)
    return (0.3 * np.sin(2 * np.pi * 200 * time) * on).astype(np.float32)


def test_times_are_those_of_the_recording(engine: WhisperEngine) -> None:
    listener = Telling(engine.vocabulary, TOKENS, TIMES)
    chunk = tone((0.8, 1.2), (2.2, 3.1))
    transcript = asyncio.run(Transcriber(listener).transcribe([chunk, chunk, chunk], WISH))
    check_words(transcript)
    words = [word for segment in transcript.segments for word in segment.words]
    assert len(words) == 6
    for number in range(3):
        pair = words[2 * number : 2 * number + 2]
        found = [(word.text, word.start - 28 * number, word.end - 28 * number) for word in pair]
        assert [text for text, _, _ in found] == [" One,", " two."]
        # To the frame: chunks begin anywhere in the silence.
        assert [each[1:] for each in found] == [pytest.approx(each, abs=0.021) for each in ((0.8, 1.2), (2.2, 3.1))]
        assert [word.probability for word in pair] == pytest.approx([np.exp(-0.5)] * 2)
    assert all(request.words for request in listener.requests)


def test_without_words_segments_have_the_times_of_their_words(engine: WhisperEngine) -> None:
    listener = Telling(engine.vocabulary, TOKENS, TIMES)
    transcript = asyncio.run(
        Transcriber(listener).transcribe([tone((0.8, 1.2), (1.5, 3.1))], TranscriptionOptions(timestamps=True))
    )
    [segment] = transcript.segments
    assert (segment.start, segment.end) == pytest.approx((0.8, 3.1), abs=0.021)
    assert segment.words == ()


def test_what_is_left_of_a_chunk_begins_before_its_first_word(engine: WhisperEngine) -> None:
    """A model writes the time at which it stopped as a whole second; then the next word has begun already."""
    told = [*TOKENS[:-1], *TOKENS[-2:]]  # the last time twice: something else begins
    listener = Telling(engine.vocabulary, told, (*TIMES[:-1], *TIMES[-2:]))
    asyncio.run(Transcriber(listener).transcribe([tone((0.8, 1.2), (2.2, 3.1), (3.6, 9.0))], WISH))
    first, second, *_ = listener.requests
    begin = (len(first.samples) - len(second.samples)) / RATE
    assert 3.1 < begin < 3.6


def test_times_that_do_not_fit_the_tokens(engine: WhisperEngine) -> None:
    listener = Telling(engine.vocabulary, TOKENS, TIMES[:-1])
    with pytest.raises(EngineFailed, match="9 times for 9 tokens"):
        asyncio.run(Transcriber(listener).transcribe([tone((0.8, 1.2))], WISH))


def test_listeners_that_do_not_say_that_they_can(engine: WhisperEngine) -> None:
    with pytest.raises(UnsupportedOption, match="ask for segments"):
        asyncio.run(
            Transcriber(Telling(engine.vocabulary, TOKENS, TIMES, supports_word_times=False)).transcribe([tone()], WISH)
        )
