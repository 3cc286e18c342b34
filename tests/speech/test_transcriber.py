"""Recordings to transcripts: a real Whisper with real speech, and listeners that only pretend where it is about order,
chance and faults."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast
from unittest.mock import patch

import numpy as np
import pytest
import tokenizers

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.base import EngineDown, EngineFailed, Piece, TokenLogprob
from unbraid.errors import UnbraidError
from unbraid.speech.attempt import Thresholds
from unbraid.speech.audio.chunking import Chunk, cut, is_silent
from unbraid.speech.audio.decode import RATE, Samples, read
from unbraid.speech.audio.vad import FRAME, SpeechDetector
from unbraid.speech.families import adapter_for, known_families
from unbraid.speech.listening import EndReason, ListenEnd, ListenRequest, Opening
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import PrefixMissing, Transcriber
from unbraid.speech.transcript import Delta, Detected, Segment, Transcript, TranscriptEvent, TranscriptProgress
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.listener import WhisperEngine
from unbraid.speech.whisper.tokens import WhisperTokens
from unbraid.templates import encoder
from unbraid.tokens import vocabulary

from ..support.real_speech import recording
from ..support.real_tokenizers import whisper_like
from ..support.waiting import until
from .noises import syllables
from .whisper.test_tokens import released
from .whisper.whisper_models import WORDS, prompt, tokenizer, tokens, whisper_engine

BASE = "whisper-base"
T = TypeVar("T")

# What is said in `SAID`'s recordings, or some of it.
SAID = {
    ("en", "demo-thanks"): "thank you for trying out the asterisk open source",
    ("es", "demo-thanks"): "hasta luego gracias por probar de código abierto",
    ("fr", "demo-thanks"): "au revoir merci d'avoir essayé le projet libre",
    ("it", "demo-thanks"): "arrivederci grazie per aver provato il pbx open source",
    ("ru", "demo-thanks"): "до свидания благодарим за пробную эксплуатацию программы телефонной станции",
    ("de", "words"): "ball fliege oberteil ohr bogen junge brücke wagen mädchen",
    ("el", "words"): "παλτό καμίλα κάρο γαϊδούρι",
    ("pt", "words"): "brincos cabelo chapéu gravata nariz óculos olho orelha",
    ("uk", "words"): "лук крилу піджак арка",
    ("lt", "words"): "lankas paltas arka berniukas tiltas asilas mergaitė",
}


def run(work: Coroutine[Any, Any, T], seconds: float = 600.0) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def found(expected: str, text: str) -> float:
    """Which part of the words is there."""
    there = set(words(text))
    return sum(word in there for word in words(expected)) / len(words(expected))


def in_blocks(samples: Samples, size: int) -> list[Samples]:
    return [samples[at : at + size] for at in range(0, len(samples), size)]


async def all_of(events: AsyncGenerator[TranscriptEvent, None]) -> list[TranscriptEvent]:
    return [event async for event in events]


def texts(events: Sequence[TranscriptEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Delta)]


def end(events: Sequence[TranscriptEvent]) -> Transcript:
    last = events[-1]
    assert isinstance(last, Transcript)
    return last


def check(transcript: Transcript, tokenizer: tokenizers.Tokenizer) -> None:
    """What is true of every transcript."""
    known = WhisperTokens(vocabulary(tokenizer))
    at = 0.0
    for segment in transcript.segments:
        assert at <= segment.start <= segment.end <= transcript.duration + 0.006
        at = segment.end
        spelled = [token for token in segment.tokens if token < known.eot]
        assert tokenizer.decode(spelled) == segment.text
        assert all(token >= known.first_timestamp for token in set(segment.tokens) - set(spelled))
    assert "".join(segment.text for segment in transcript.segments).strip() == transcript.text
    assert "<|" not in transcript.text


# --- A real Whisper --------------------------------------------------------------------------------------------------


class Batches(list[list[list[int]]]):
    """The prompts that the model was given together."""


@pytest.fixture(scope="module")
def batches() -> Batches:
    return Batches()


@pytest.fixture(scope="module")
def engine(batches: Batches) -> Iterator[WhisperEngine]:
    engine = whisper_engine(BASE)
    begin = engine._model.begin

    def noted(*args: Any, **options: Any) -> Any:
        batches.append(args[1].tolist())
        return begin(*args, **options)

    with patch.object(engine._model, "begin", noted):
        yield engine
    run(engine.close())


@pytest.fixture
def transcriber(engine: WhisperEngine) -> Transcriber:
    return Transcriber(engine)


@pytest.fixture(scope="module")
def heard(engine: WhisperEngine, batches: Batches) -> dict[tuple[str, str], Transcript]:
    """All recordings of `SAID` at once, with nothing said of their languages."""
    transcriber = Transcriber(engine)

    async def gathered() -> list[Transcript]:
        recordings = [recording(*key) for key in SAID]
        return await asyncio.gather(
            *(transcriber.transcribe(read(one.path), TranscriptionOptions()) for one in recordings)
        )

    del batches[:]
    transcripts = run(gathered())
    assert 1 < max(map(len, batches)) <= engine.parallel  # those of about the same length were decoded together
    assert {tuple(prompt) for batch in batches for prompt in batch} == {(tokens(BASE).sot,)}
    return dict(zip(SAID, transcripts, strict=True))


@pytest.mark.system
@pytest.mark.parametrize("key", SAID, ids="-".join)
def test_languages_are_detected_and_transcribed(key: tuple[str, str], heard: dict[tuple[str, str], Transcript]) -> None:
    transcript = heard[key]
    assert transcript.language == key[0]
    assert transcript.language_probability is not None
    assert 0.5 < transcript.language_probability <= 1.0
    assert found(SAID[key], transcript.text) >= 0.7, transcript.text
    assert {segment.language for segment in transcript.segments} == {key[0]}
    assert transcript.duration == pytest.approx(recording(*key).seconds, abs=0.01)
    assert transcript.warnings == ()
    assert transcript.completion_tokens >= len(transcript.segments[0].tokens) + 4  # three to begin with, and the end
    check(transcript, tokenizer(BASE))


@pytest.mark.system
def test_a_stream_alone_says_what_the_batch_said(
    transcriber: Transcriber, heard: dict[tuple[str, str], Transcript], batches: Batches
) -> None:
    """And it begins with the language."""
    del batches[:]
    events = run(all_of(transcriber.run(read(recording("de", "words").path), TranscriptionOptions(), stream=True)))
    assert list(map(len, batches)) == [1]
    assert end(events).text == heard["de", "words"].text == "".join(texts(events)).strip()
    assert [segment.tokens for segment in end(events).segments] == [
        segment.tokens for segment in heard["de", "words"].segments
    ]
    assert isinstance(events[0], Detected)
    assert events[0].language == "de"
    assert events[0].probability == pytest.approx(end(events).language_probability)
    kinds = [type(event) for event in events]
    deltas, segments = len(texts(events)), end(events).segments
    assert kinds == [Detected, *[Delta] * deltas, *[Segment] * len(segments), TranscriptProgress, Transcript]
    assert deltas > 0.8 * sum(len(segment.tokens) for segment in segments)  # half characters are joined


@pytest.mark.system
def test_blocks_of_every_size_stream_the_same(transcriber: Transcriber) -> None:
    samples = recording("it", "tt-weasels").samples
    sizes = (37, 1_000, RATE)

    async def gathered() -> tuple[Transcript, list[list[TranscriptEvent]]]:
        whole = transcriber.transcribe([samples], TranscriptionOptions(language="Italian"))
        streams = [
            all_of(transcriber.run(in_blocks(samples, size), TranscriptionOptions(), stream=True)) for size in sizes
        ]
        named = all_of(transcriber.run([samples], TranscriptionOptions(language="it"), stream=True))
        first, others = await asyncio.gather(whole, asyncio.gather(named, *streams))
        return first, others

    whole, streams = run(gathered())
    assert found("le donnole hanno mangiato il nostro sistema telefonico", whole.text) > 0.8
    for events in streams:
        assert end(events).text == whole.text == "".join(texts(events)).strip()
        assert texts(events) == texts(streams[0])
        assert end(events).language == "it"
    # A language that was given, by its name or its code, is not detected: nothing is said of how likely it is.
    assert (whole.language, whole.language_probability) == ("it", None)
    assert end(streams[0]).language_probability is None
    assert end(streams[1]).language_probability is not None


@pytest.mark.system
def test_candidates_and_translation(transcriber: Transcriber, batches: Batches) -> None:
    async def gathered() -> tuple[Transcript, ...]:
        russian, italian, spanish = (recording(language, "tt-weasels").samples for language in ("ru", "it", "es"))
        return await asyncio.gather(
            transcriber.transcribe(
                [russian], TranscriptionOptions(languages=("bg", "Ukrainian", "serbian"), temperature=0.0)
            ),
            transcriber.transcribe([italian], TranscriptionOptions(languages=("it",))),
            transcriber.transcribe([spanish], TranscriptionOptions(task="translate", temperature=0.0)),
        )

    limited, only, translated = run(gathered())
    assert limited.language in ("bg", "uk", "sr")
    assert limited.language_probability is not None
    assert limited.language_probability > 1 / 3
    assert (only.language, only.language_probability) == ("it", 1.0)
    assert translated.language == "es"  # what was spoken
    assert found("eaten our telephone system", translated.text) > 0.7, translated.text


@pytest.mark.system
def test_long_recordings_with_times(transcriber: Transcriber) -> None:
    speech = recording("en", "demo-instruct")
    events = run(all_of(transcriber.run(read(speech.path), TranscriptionOptions(timestamps=True), stream=True)))
    transcript = end(events)
    chunks = list(cut([speech.samples]))
    assert len(chunks) == 3
    assert [event.seconds for event in events if isinstance(event, TranscriptProgress)] == pytest.approx(
        [chunk.start + len(chunk.samples) / RATE for chunk in chunks]
    )
    assert transcript.duration == pytest.approx(speech.seconds)
    assert speech.transcript is not None
    assert found(speech.transcript, transcript.text) > 0.85
    order = [transcript.text.lower().find(text) for text in ("technical information", "voice", "digit", "main menu")]
    assert [at for at in order if at >= 0] == sorted(at for at in order if at >= 0)
    assert "".join(texts(events)).strip() == transcript.text
    assert [event for event in events if isinstance(event, Segment)] == list(transcript.segments)
    assert len(transcript.segments) > 6
    assert transcript.segments[-1].end > chunks[-1].start
    assert all(segment.no_speech_prob is not None and segment.avg_logprob < 0 for segment in transcript.segments)
    check(transcript, tokenizer(BASE))


@pytest.mark.system
def test_a_recording_that_changes_its_language(transcriber: Transcriber) -> None:
    """The silence at its beginning has none; the first that is spoken is the recording's, and each segment has its
    own."""
    silence = np.zeros(29 * RATE, np.float32)
    french, english = recording("fr", "demo-thanks").samples, recording("en", "demo-thanks").samples
    samples = np.concatenate([silence, french, silence[len(french) :], english])
    transcript = run(transcriber.transcribe(in_blocks(samples, 100_000), TranscriptionOptions()))
    assert transcript.language == "fr"
    spoken = {code: [one for one in transcript.segments if one.language == code] for code in ("fr", "en")}
    assert [*spoken["fr"], *spoken["en"]] == list(transcript.segments)
    assert found("merci d'avoir essayé le projet libre", "".join(one.text for one in spoken["fr"])) > 0.7
    assert found("thank you for trying out", "".join(one.text for one in spoken["en"])) > 0.7
    assert spoken["fr"][0].start > 25
    assert spoken["en"][0].start > 50
    check(transcript, tokenizer(BASE))


@pytest.mark.system
def test_silence_and_noise_are_no_language(transcriber: Transcriber, batches: Batches) -> None:
    async def gathered() -> tuple[Transcript, ...]:
        noise = np.random.default_rng(1).normal(0.0, 0.01, 5 * RATE).astype(np.float32)
        return await asyncio.gather(
            transcriber.transcribe([np.zeros(5 * RATE, np.float32)], TranscriptionOptions()),
            transcriber.transcribe([], TranscriptionOptions()),
            transcriber.transcribe([noise], TranscriptionOptions()),
        )

    async def streamed() -> Transcript:
        noise = np.random.default_rng(1).normal(0.0, 0.01, 5 * RATE).astype(np.float32)
        events = await all_of(transcriber.run([noise], TranscriptionOptions(), stream=True))
        assert texts(events) == []
        return end(events)

    del batches[:]
    found = run(gathered())
    assert not batches  # what is silent or steady is not even listened to
    for transcript, duration in zip((*found, run(streamed())), (5.0, 0.0, 5.0, 5.0), strict=True):
        assert (transcript.text, transcript.segments, transcript.duration) == ("", (), duration)
        assert (transcript.language, transcript.language_probability) == (None, None)


@pytest.mark.system
def test_a_prompt_is_what_was_written_before(transcriber: Transcriber, batches: Batches) -> None:
    prompt = "no punctuation and no capital letters in this here text so my fellow americans"
    del batches[:]
    transcript = run(transcriber.transcribe([recording("en", "jfk").samples], TranscriptionOptions(prompt=prompt)))
    assert transcript.text == WORDS  # as the prompt has it: without any signs
    before = tokenizer(BASE).encode(" " + prompt, add_special_tokens=False).ids
    assert batches == [[[tokens(BASE).startofprev, *before, tokens(BASE).sot]]]
    assert transcript.prompt_tokens == len(before) + 2


@pytest.mark.system
def test_who_leaves_frees_the_engine(transcriber: Transcriber, engine: WhisperEngine) -> None:
    async def left() -> None:
        samples = recording("uk", "words").samples
        long = np.concatenate([samples, samples, samples])
        async with aclosing(transcriber.run([long], TranscriptionOptions(), stream=True)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    break
        await until(lambda: (engine.load.running, engine.load.waiting) == (0, 0))
        task = asyncio.create_task(transcriber.transcribe([samples], TranscriptionOptions()))
        await until(lambda: engine.load.running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: (engine.load.running, engine.load.waiting) == (0, 0))
        transcript = await transcriber.transcribe([recording("it", "tt-weasels").samples], TranscriptionOptions())
        assert "sistema telefonico" in transcript.text

    run(left())


# --- What cannot be asked for ----------------------------------------------------------------------------------------


@cache
def special_tokens() -> WhisperTokens:
    return WhisperTokens(vocabulary(whisper_like()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TranscriptionOptions(language="klingon"), "klingon"),
        (TranscriptionOptions(language="xx"), "xx"),
        (TranscriptionOptions(language="Cantonese"), "cantonese"),  # since large-v3
        (TranscriptionOptions(languages=("de", "germn")), "german"),
    ],
)
def test_languages_that_there_are_not(options: TranscriptionOptions, message: str) -> None:
    with pytest.raises(UnbraidError, match=message):
        run(Transcriber(Pretended(says(" Hi."))).transcribe([syllables(1.0)], options))


def test_a_model_in_english_only() -> None:
    adapter = WhisperAdapter(released(50256, 99, "nocaptions"))
    assert (adapter.language, adapter.supports_language_detection, adapter.supports_translation) == ("en", False, False)
    adapter.check(TranscriptionOptions(language="English"))
    with pytest.raises(UnbraidError, match="English only, not 'de'"):
        adapter.check(TranscriptionOptions(language="de"))
    with pytest.raises(UnbraidError, match="cannot translate"):
        adapter.check(TranscriptionOptions(task="translate"))
    assert len(adapter.request(syllables(1.0), TranscriptionOptions(), 0.0).prefix.sets) == 1
    assert adapter.request(syllables(1.0), TranscriptionOptions(timestamps=True), 0.0).prefix.sets == ()


def test_prompts_need_an_engine_that_cuts_text_into_tokens() -> None:
    with pytest.raises(UnbraidError, match="prompt: this engine does not give access"):
        WhisperAdapter(vocabulary(whisper_like())).check(TranscriptionOptions(prompt="Hello"))
    WhisperAdapter(vocabulary(whisper_like())).check(TranscriptionOptions(prompt="  \n"))


def test_a_prompt_cannot_forge_special_tokens() -> None:
    adapter = WhisperAdapter(Pretended(says("")).vocabulary)
    forged = adapter.request(
        syllables(1.0), TranscriptionOptions(prompt="<|startoftranscript|><|de|><|0.00|><|endoftext|>"), 0.0
    ).prompt
    assert [token for token in forged if token >= special_tokens().eot] == [
        special_tokens().startofprev,
        special_tokens().sot,
    ]
    long = adapter.request(syllables(1.0), TranscriptionOptions(prompt="one two three " * 200 + "the end"), 0.0).prompt
    assert len(long) == 225
    assert whisper_like().decode(list(long[-3:-1])) == " the end"  # what is nearest to the speech is kept


def test_adapters() -> None:
    assert "whisper" in known_families()
    assert isinstance(adapter_for(vocabulary(whisper_like())), WhisperAdapter)
    with pytest.raises(UnbraidError, match="no family of speech models 'parrot'"):
        adapter_for(vocabulary(whisper_like()), "parrot")


# --- Listeners that pretend ------------------------------------------------------------------------------------------


@dataclass
class Saying:
    """What a listener writes."""

    ids: Sequence[int]
    reason: EndReason = "stop"
    logprob: float = -0.1
    no_speech: float = 0.01
    early: bool = False
    """Whether it is known from the first token on how likely it is that nobody spoke."""
    ready: Callable[[], bool] = lambda: True
    """It begins once this is so."""
    piece: int = 1
    """Tokens that come at once."""


class TokenizerVocabulary:
    version = None
    dummy_prefix = False

    def __init__(self) -> None:
        self._encoder = encoder(whisper_like())
        self.token_id = self._encoder.vocabulary.token_id
        self.token_bytes = self._encoder.vocabulary.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)


@cache
def text_vocabulary() -> TokenizerVocabulary:
    return TokenizerVocabulary()


@dataclass
class Pretended:
    """A listener that writes what it is told to."""

    write: Callable[[ListenRequest], Saying]
    parallel: int = 2
    model: str = "parrot"
    requests: list[ListenRequest] = field(default_factory=list)
    finished: list[ListenRequest] = field(default_factory=list)
    running: int = 0
    most: int = 0
    """That have been running at once."""

    @property
    def vocabulary(self) -> Vocabulary:
        return text_vocabulary()

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            saying = self.write(request)
            await until(saying.ready)
            for at in range(0, len(saying.ids), saying.piece):
                ids = tuple(saying.ids[at : at + saying.piece])
                logprobs = tuple(TokenLogprob(token, b"", saying.logprob) for token in ids)
                first = saying.early and at == 0
                yield Opening(ids, None, logprobs, saying.no_speech) if first else Piece(ids, logprobs=logprobs)
                await asyncio.sleep(0)
            self.finished.append(request)
            yield ListenEnd(saying.reason, len(request.prompt), len(saying.ids), saying.no_speech)
        finally:
            self.running -= 1

    async def close(self) -> None: ...


def plain(text: str) -> list[int]:
    """Ordinary tokens alone, whatever they spell."""
    return text_vocabulary().encode(text)


def output(text: str, language: str = "de") -> list[int]:
    known = special_tokens()
    return [*prompt(known, language)[1:3], *plain(text), known.eot]


def says(text: str, **how: Any) -> Callable[[ListenRequest], Saying]:
    return lambda request: Saying(output(text), **how)


def once(
    write: Callable[[ListenRequest], Saying], options: TranscriptionOptions | None = None, **more: Any
) -> Transcript:
    return run(Transcriber(Pretended(write), **more).transcribe([syllables(2.0)], options or TranscriptionOptions()))


@cache
def talk() -> Samples:
    """Seven stretches of noise, each a little louder, with silence between."""
    return np.concatenate([np.append(syllables(22.0, 0.1 * n), np.zeros(6 * RATE, np.float32)) for n in range(1, 8)])


def chunks_of(samples: Samples) -> list[Chunk]:
    return [chunk for chunk in cut([samples]) if not is_silent(chunk.samples)]


def loudness(request: ListenRequest) -> int:
    return round(float(np.abs(request.samples).max()) * 10)


def test_chunks_are_joined_in_order_whichever_is_first_ready() -> None:
    consumed = [0]

    def blocks() -> Iterator[Samples]:
        for block in in_blocks(talk(), RATE):
            consumed[0] += 1
            yield block

    ahead: list[float] = []

    def write(request: ListenRequest) -> Saying:
        number = loudness(request)

        def ready() -> bool:
            """Of the chunks that run together, the last one is ready first."""
            return number in (3, 6, 7) or number + 1 in map(loudness, listener.finished)

        return Saying(output(f" This is {number}."), ready=ready)

    async def watched() -> list[TranscriptEvent]:
        events = []
        async for event in Transcriber(listener).run(blocks(), TranscriptionOptions()):
            if isinstance(event, TranscriptProgress):
                ahead.append(consumed[0] - event.seconds)
            events.append(event)
        return events

    listener = Pretended(write, parallel=3)
    events = run(watched())
    chunks = chunks_of(talk())
    assert len(chunks) == 7
    transcript = end(events)
    assert transcript.text == " ".join(f"This is {number}." for number in range(1, 8))
    assert [segment.start for segment in transcript.segments] == [round(chunk.start, 2) for chunk in chunks]
    assert (
        [event.seconds for event in events if isinstance(event, TranscriptProgress)][-1]
        == transcript.duration
        == 7 * 28
    )
    assert listener.most == 3
    assert [*map(loudness, listener.finished)] == [3, 2, 1, 6, 5, 4, 7]
    assert max(ahead) <= 3 * 30 + 1  # no more than the chunks at work, and the one that is being cut
    assert (transcript.prompt_tokens, len(listener.requests)) == (7, 7)


def test_times_are_those_of_the_recording() -> None:
    known = special_tokens()

    def write(request: ListenRequest) -> Saying:
        de, transcribe = prompt(known, "de")[1:3]
        times = [known.timestamp(seconds) for seconds in (0.5, 3.0, 3.0, 29.98)]
        first, second = plain(" One."), plain(" Two.")
        ids = [de, transcribe, times[0], *first, times[1], times[2], *second, times[3], known.eot]
        return Saying(ids, piece=5)

    transcript = run(Transcriber(Pretended(write)).transcribe([talk()], TranscriptionOptions(timestamps=True)))
    chunks = chunks_of(talk())
    check(transcript, whisper_like())
    for number, chunk in enumerate(chunks):
        one, two = transcript.segments[2 * number : 2 * number + 2]
        length = len(chunk.samples) / RATE
        assert (one.start, one.end) == (round(chunk.start + 0.5, 2), round(chunk.start + 3.0, 2))
        # Whisper sometimes says a time after the end.
        assert (two.start, two.end) == (round(chunk.start + 3.0, 2), round(chunk.start + min(29.98, length), 2))
        assert one.tokens == (known.timestamp(0.5), *plain(" One."), known.timestamp(3.0))
        assert two.tokens == (known.timestamp(3.0), *plain(" Two."), known.timestamp(29.98))


def test_the_average_is_openais() -> None:
    """Of all tokens after the prefix and the end, which counts whether it came or not."""
    transcript = once(says(" One two.", logprob=-0.5))
    assert transcript.segments[0].avg_logprob == pytest.approx(-0.5)
    count = len(plain(" One two."))
    broken_off = once(lambda request: Saying(output(" One two.")[:-1], "length", logprob=-0.5))
    assert broken_off.segments[0].avg_logprob == pytest.approx(-0.5 * count / (count + 1))


# A prefix that does not come


@pytest.mark.parametrize("lost", [1, 2])
def test_without_a_prefix_no_language_is_made_up(lost: int) -> None:
    transcript = once(lambda request: Saying(output(" Guten Tag.")[lost:]))
    assert transcript.text == "Guten Tag."
    assert (transcript.language, transcript.language_probability) == (None, None)
    assert [segment.language for segment in transcript.segments] == [None]
    [warning] = transcript.warnings
    assert "did not begin with the tokens it was given" in warning
    known = special_tokens()
    astray = [
        known.sot,
        known.startoflm,
        *plain(" Guten"),
        known.no_speech,
        known.transcribe,
        *plain(" Tag."),
        known.eot,
    ]
    transcript = once(lambda request: Saying(astray, piece=100))
    assert transcript.text == "Guten Tag."
    assert transcript.language is None
    assert transcript.warnings


def test_a_given_language_is_not_believed_either_where_the_prefix_does_not_come() -> None:
    transcript = once(lambda request: Saying(output(" Hello.", "en")), TranscriptionOptions(language="de"))
    assert (transcript.text, transcript.language, len(transcript.warnings)) == ("Hello.", None, 1)


def test_only_one_chunk_without_a_prefix() -> None:
    transcript = run(
        Transcriber(
            Pretended(lambda request: Saying(output(f" Satz {loudness(request)}.")[loudness(request) == 1 :]))
        ).transcribe([talk()], TranscriptionOptions())
    )
    assert transcript.language == "de"
    assert [segment.language for segment in transcript.segments] == [None, *["de"] * 6]
    assert len(transcript.warnings) == 1


@pytest.mark.parametrize("lost", [1, 2])
def test_a_stream_without_a_prefix_is_an_error_before_any_text(lost: int) -> None:
    listener = Pretended(lambda request: Saying(output(" Guten Tag.")[lost:]))
    said: list[TranscriptEvent] = []

    async def listened() -> None:
        async for event in Transcriber(listener).run([syllables(2.0)], TranscriptionOptions(), stream=True):
            said.append(event)  # noqa: PERF401 what came before the error counts

    with pytest.raises(PrefixMissing, match="did not begin"):
        run(listened())
    assert said == []
    assert listener.running == 0


def test_what_only_looks_like_special_tokens_is_text() -> None:
    text = " He wrote <|hello|> and <|de|> and <|0.00|> and <|endoftext|>!"
    assert once(says(text)).text == text.strip()
    events = run(all_of(Transcriber(Pretended(says(text))).run([syllables(2.0)], TranscriptionOptions(), stream=True)))
    assert "".join(texts(events)) == text
    assert end(events).language == "de"


# Outputs that are not believed


def test_loops_are_tried_again_with_higher_temperatures() -> None:
    def write(request: ListenRequest) -> Saying:
        if request.temperature < 0.4:
            return Saying(output(" no" * 60)[:-1], "loop")
        return Saying(output(" At last."))

    listener = Pretended(write)
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions(seed=5)))
    assert transcript.text == "At last."
    assert [request.temperature for request in listener.requests] == [0.0, 0.2, 0.4]
    assert {request.seed for request in listener.requests} == {5}
    assert transcript.segments[0].temperature == 0.4
    assert transcript.completion_tokens == 2 * len(output(" no" * 60)[:-1]) + len(output(" At last."))  # all are paid


@pytest.mark.parametrize("repeats", [False, True])
def test_where_none_is_believed_the_best_is_kept(repeats: bool) -> None:
    """Not the last."""

    def write(request: ListenRequest) -> Saying:
        if repeats and request.temperature != 0.4:
            return Saying(output(" and then he said that" * 12))  # too easily compressed, and likely
        return Saying(output(" This at least."), logprob=-1.2 if request.temperature == 0.4 else -1.8)

    listener = Pretended(write)
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions()))
    assert [request.temperature for request in listener.requests] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert (transcript.text, transcript.segments[0].temperature) == ("This at least.", 0.4)


@pytest.mark.parametrize(
    ("text", "logprob"),
    [
        (" and then he said that" * 12, -1.5),  # repeated, and unlikely
        (" Guess what.", -4.65),  # guesses
    ],
)
def test_what_every_threshold_refuses_is_no_text(text: str, logprob: float) -> None:
    bad = Saying(output(text), logprob=logprob)
    listener = Pretended(lambda request: bad)
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions()))
    assert (transcript.text, transcript.segments, transcript.language) == ("", (), None)
    assert transcript.warnings == ("no words could be made out from 0.0 to 2.0 s",)
    assert transcript.completion_tokens == len(bad.ids) * len(listener.requests)


def test_what_noise_may_cost_is_bounded() -> None:
    """Attempts end when a chunk has cost three times what thirty seconds of speech may have."""

    def write(request: ListenRequest) -> Saying:
        assert request.max_tokens is not None
        return Saying([*output("")[:2], *range(1000, 1000 + request.max_tokens - 2)], "length", logprob=-3.0)

    listener = Pretended(write)
    transcript = run(Transcriber(listener).transcribe([syllables(20.0)], TranscriptionOptions()))
    assert transcript.text == ""
    assert {request.max_tokens for request in listener.requests} == {224}
    assert len(listener.requests) == 3


def test_half_a_character_is_never_text() -> None:
    half = next(token for token in range(50_000) if text_vocabulary().token_bytes(token) == b"\xf0\x9f")

    def write(request: ListenRequest) -> Saying:
        ids = [*output(" Good")[:-1], half, *plain(" morning"), half, special_tokens().eot]
        return Saying(ids if request.temperature < 0.5 else output(" Good evening."), logprob=-0.9)

    listener = Pretended(write)
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions()))
    assert transcript.text == "Good evening."  # the others were tried again
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions(temperature=0.2)))
    assert transcript.text == "Good morning"
    assert all("\ufffd" not in segment.text for segment in transcript.segments)


def test_a_temperature_that_is_given_is_the_only_one() -> None:
    listener = Pretended(says(" Unlikely.", logprob=-2.0))
    run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions(temperature=0.3)))
    assert [request.temperature for request in listener.requests] == [0.3]


def test_zero_is_where_the_temperatures_begin() -> None:
    """As OpenAI documents it: 0 is the default, and not a wish for one attempt."""
    listener = Pretended(says(" Unlikely.", logprob=-1.2))
    run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions(temperature=0.0)))
    assert [request.temperature for request in listener.requests] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_when_nobody_spoke() -> None:
    def language(no_speech: float, logprob: float, limits: Thresholds | None = None) -> str | None:
        write = says(" Thanks for watching!", no_speech=no_speech, logprob=logprob)
        return once(write, thresholds=limits or Thresholds()).language

    assert language(0.7, -1.1) is None
    assert language(0.7, -0.9) == "de"  # the words are likely
    assert language(0.1, -1.1) == "de"  # and here somebody spoke
    assert language(0.5, -1.1, Thresholds(no_speech=0.4)) is None
    assert language(0.7, -0.9, Thresholds(avg_logprob=-0.8)) is None
    listener = Pretended(says(" Thanks.", no_speech=0.9, logprob=-3.0))
    transcript = run(Transcriber(listener).transcribe([syllables(2.0)], TranscriptionOptions()))
    assert (transcript.text, transcript.segments) == ("", ())
    assert len(listener.requests) == 1  # silence is not tried again
    assert transcript.completion_tokens > 0


class Talking:
    """A detector that hears a voice everywhere."""

    def listen(self) -> Talking:
        return self

    def feed(self, samples: Samples) -> Samples:
        return np.ones(len(samples) // FRAME, np.float32)


def test_guesses_need_somebody_who_heard_a_voice() -> None:
    """All attempts are unlikely, and silence is not: words are believed only if a detector heard a voice, or if one
    of the attempts passes."""
    unlikely = says(" Thanks for watching!", no_speech=0.5, logprob=-1.1)
    assert once(unlikely).text == ""
    assert once(says(" Thanks for watching!", no_speech=0.1, logprob=-1.1)).text == "Thanks for watching!"

    def passes_later(request: ListenRequest) -> Saying:
        return Saying(output(" At last."), no_speech=0.5, logprob=-1.1 if request.temperature < 0.4 else -0.9)

    assert once(passes_later).text == "At last."
    heard = Transcriber(Pretended(unlikely), detector=cast(SpeechDetector, Talking()))
    assert run(heard.transcribe([syllables(2.0)], TranscriptionOptions())).text == "Thanks for watching!"


def streamed(write: Callable[[ListenRequest], Saying]) -> tuple[list[TranscriptEvent], Pretended]:
    listener = Pretended(write)
    return run(all_of(Transcriber(listener).run([syllables(2.0)], TranscriptionOptions(), stream=True))), listener


def test_when_nobody_spoke_in_a_stream() -> None:
    """Where that is likely from the first token on, the chunk is not streamed."""
    events, _ = streamed(says(" Thanks for watching!", no_speech=0.9, logprob=-3.0, early=True))
    assert [type(event) for event in events] == [TranscriptProgress, Transcript]
    assert (end(events).text, end(events).language, end(events).segments) == ("", None, ())
    assert end(events).completion_tokens > 0


def test_when_somebody_spoke_after_all_in_a_stream() -> None:
    """The text comes when all of it is known; and since none of it has gone out, it can be tried again."""
    events, listener = streamed(says(" Thanks for watching!", no_speech=0.9, logprob=-0.2, early=True))
    assert end(events).text == "".join(texts(events)).strip() == "Thanks for watching!"
    assert [request.temperature for request in listener.requests] == [0.0]

    def loops_at_first(request: ListenRequest) -> Saying:
        if request.temperature == 0:
            return Saying(output(" no" * 60)[:-1], "loop", no_speech=0.9, early=True)
        return Saying(output(" At last."), no_speech=0.9, early=True)

    events, listener = streamed(loops_at_first)
    assert end(events).text == "".join(texts(events)).strip() == "At last."
    assert [request.temperature for request in listener.requests] == [0.0, 0.2]


def test_a_stream_that_waits_and_has_no_prefix_is_an_error() -> None:
    with pytest.raises(PrefixMissing):
        streamed(lambda request: Saying(output(" Guten Tag.")[1:], no_speech=0.9, early=True))


def test_where_no_words_come_there_is_no_language() -> None:
    transcript = once(says(""))
    assert (transcript.text, transcript.language, transcript.warnings) == ("", None, ())


# Faults, and leaving


def test_a_failure_is_raised_and_ends_the_others() -> None:
    def write(request: ListenRequest) -> Saying:
        if loudness(request) == 2:
            raise EngineDown("gone")
        return Saying(output(" Fine."), ready=lambda: loudness(request) == 1)

    listener = Pretended(write, parallel=3)
    with pytest.raises(EngineDown, match="gone"):
        run(Transcriber(listener).transcribe([talk()], TranscriptionOptions()))
    assert listener.running == 0


def test_an_output_that_just_ends_is_a_failure() -> None:
    class Silent(Pretended):
        async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
            yield Piece(tuple(output(" Hi.")[:3]))

    with pytest.raises(EngineFailed, match="without a ListenEnd"):
        run(Transcriber(Silent(says(""))).transcribe([syllables(2.0)], TranscriptionOptions()))


def test_leaving_ends_all_chunks() -> None:
    listener = Pretended(lambda request: Saying(output(" Fine."), ready=lambda: loudness(request) == 1))

    async def left() -> None:
        async with aclosing(Transcriber(listener).run([talk()], TranscriptionOptions(), stream=True)) as events:
            async for event in events:
                if isinstance(event, TranscriptProgress):
                    await until(lambda: listener.running > 0)
                    break
        assert listener.running == 0

    run(left())


def test_a_file_is_let_go_when_its_reader_is_done() -> None:
    """Who stops waiting can close the file: no thread is reading it any more."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[Samples]:
        begun.set()
        assert go_on.wait(60)
        done.set()
        yield syllables(20.0)

    async def cancelled() -> None:
        blocks = slow()
        task = asyncio.create_task(Transcriber(Pretended(says(" Hi."))).transcribe(blocks, TranscriptionOptions()))
        await until(begun.is_set)
        task.cancel()
        for _ in range(10):  # as often as the loop likes: while the thread reads, nothing ends
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()
        blocks.close()  # type: ignore[attr-defined]

    run(cancelled())


def test_warnings_of_the_file_come_with_the_transcript() -> None:
    class Broken(list[Samples]):
        warnings = ("it breaks off",)

    transcript = run(Transcriber(Pretended(says(" Hi."))).transcribe(Broken([syllables(2.0)]), TranscriptionOptions()))
    assert (transcript.text, transcript.warnings) == ("Hi.", ("it breaks off",))
