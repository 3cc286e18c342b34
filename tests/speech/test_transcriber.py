"""Recordings to transcripts: a real Whisper with real speech, and what cannot be asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from unbraid.errors import UnbraidError
from unbraid.speech.audio.chunking import cut
from unbraid.speech.audio.decode import RATE, read
from unbraid.speech.families import adapter_for, known_families
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Detected, Segment, Transcript, TranscriptEvent, TranscriptProgress
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.listener import WhisperEngine
from unbraid.tokens import vocabulary

from ..support.real_speech import recording
from ..support.real_tokenizers import whisper_like
from ..support.waiting import until
from .listening import run
from .noises import syllables
from .transcribing import (
    Pretended,
    all_of,
    check,
    end,
    in_blocks,
    says,
    special_tokens,
    texts,
)
from .whisper.test_tokens import released
from .whisper.whisper_models import WORDS, tokenizer, tokens, whisper_engine

BASE = "whisper-base"

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


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def found(expected: str, text: str) -> float:
    """Which part of the words is there."""
    there = set(words(text))
    return sum(word in there for word in words(expected)) / len(words(expected))


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
