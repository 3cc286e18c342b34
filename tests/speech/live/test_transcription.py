"""The law of live words: what was told is never taken back, and all of it together is the transcript."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.base import EngineDown
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.audio.pcm import Resampler
from unbraid.speech.live.agreement import Agreement, HeardPiece, pieces_of
from unbraid.speech.live.transcription import LiveTranscription
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.synthesis.kokoro import KokoroSpeaker
from unbraid.speech.synthesis.speaker import SpeakRequest
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import WhisperEngine
from unbraid.speech.whisper.tokens import WhisperVocabulary

from ...support.examples import examples
from ...support.real_speech import recording
from ...support.real_tokenizers import whisper_like
from ...support.waiting import until
from ..listening import run
from ..synthesis.kokoro_models import kokoro_files
from ..whisper.whisper_models import whisper_engine
from ..word_errors import word_errors
from ..word_errors import words as words_of
from .talking import WORDS, WordListener, heard_in_steps, say, silence

SAID = [*WORDS, *WORDS[::-1]]


def listener(*, goes_on: bool = True) -> WordListener:
    return WordListener(WhisperVocabulary(whisper_like()), goes_on=goes_on)


def hearing(of: WordListener) -> LiveTranscription:
    return LiveTranscription(Transcriber(of), TranscriptionOptions())


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "compared"])
@examples(3)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=20),
    gap=st.sampled_from([0.02, 0.1, 0.3]),
    cuts=st.lists(st.floats(0, 1), max_size=12),
)
def test_wherever_the_sound_is_cut_every_word_is_told_once(
    goes_on: bool, words: list[str], gap: float, cuts: list[float]
) -> None:
    sound = say(words, gap=gap)
    one = hearing(listener(goes_on=goes_on))
    told = run(heard_in_steps(one, sound, sorted(round(cut * len(sound)) for cut in cuts)))
    assert "".join(told) == one.text
    assert words_of(one.text) == words
    assert one.language == "en"


def test_words_come_while_somebody_speaks_and_only_whole_ones() -> None:
    sound = say(SAID, gap=0.02)
    one = hearing(listener())
    told = run(heard_in_steps(one, sound, range(RATE // 2, len(sound), RATE // 2), pauses=False))
    assert len(told) > 5
    assert all(word in WORDS for text in told for word in words_of(text))


def test_a_pause_settles_the_last_word() -> None:
    sound = np.concatenate([say(["one", "two"]), silence(1.0), say(["three", "four", "five"])])
    of = listener()
    one = hearing(of)
    told = run(heard_in_steps(one, sound, range(RATE // 4, len(sound), RATE // 4)))
    assert words_of("".join(told)) == ["one", "two", "three", "four", "five"]
    assert words_of(told[0])[-1] in ("one", "two")


@examples(1)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=2, max_size=8, unique=True),
    step=st.integers(RATE // 20, RATE // 4),
)
def test_however_fast_the_sound_comes_a_mark_in_a_pause_is_not_certain(words: list[str], step: int) -> None:
    """The listener ends half of its passes with a full stop: only the one of the last pass is in the text."""
    sound = say(words, gap=0.6)
    one = hearing(listener())
    told = run(heard_in_steps(one, sound, range(step, len(sound), step)))
    assert "".join(told) == one.text
    assert one.text.rstrip(".") == " ".join(words)


def test_the_end_needs_no_pass_where_nobody_spoke_since_the_last() -> None:
    async def passes(pause: bool) -> int:
        of = listener()
        one = hearing(of)
        one.add(np.concatenate([say(["one", "two"]), silence(0.3)]))
        if pause:
            one.pause()
        task = asyncio.create_task(anext(one.words(), None))
        await until(lambda: len(of.requests) == 1)
        one.add(silence(0.3), silent=True)
        one.end()
        await task
        return len(of.requests)

    assert run(passes(True)) == 1
    assert run(passes(False)) == 2


def test_the_end_gives_up_a_pass_that_lacks_words() -> None:
    """One last pass hears all of it: nobody waits for a pass over less."""

    async def tried() -> None:
        of = listener()
        of.gate = asyncio.Event()
        one = hearing(of)
        task = asyncio.create_task(_all(one))
        one.add(say(["one", "two", "three"]))
        await until(lambda: len(of.requests) == 1)
        one.add(say(["four", "five"]))
        one.end()
        await until(lambda: len(of.requests) == 2)
        assert of.closed == 1
        of.gate.set()
        assert words_of(await task) == ["one", "two", "three", "four", "five"]
        assert len(of.requests) == 2

    run(tried())


def test_the_end_waits_for_a_pass_that_has_all_words() -> None:
    async def tried() -> None:
        of = listener()
        of.gate = asyncio.Event()
        one = hearing(of)
        task = asyncio.create_task(_all(one))
        one.add(say(["one", "two"]))
        one.pause()
        await until(lambda: len(of.requests) == 1)
        one.add(silence(0.5), silent=True)
        one.end()
        of.gate.set()
        assert words_of(await task) == ["one", "two"]
        assert (len(of.requests), of.closed) == (1, 0)

    run(tried())


def test_a_long_speech_is_heard_in_stretches_that_the_model_takes() -> None:
    words = [WORDS[at % len(WORDS)] for at in range(300)]
    sound = say(words, gap=0.02)
    of = listener()
    one = hearing(of)
    run(heard_in_steps(one, sound, range(RATE, len(sound), RATE), pauses=False))
    assert max(len(request.samples) for request in of.requests) <= 30 * RATE
    wrong = word_errors(" ".join(words), one.text)
    assert wrong <= len(words) // 20, "a cut between two words may cost one of them"
    assert one._count <= 30 * RATE


def test_sound_that_waits_makes_its_sender_wait() -> None:
    async def tried() -> None:
        of = listener()
        of.gate = asyncio.Event()
        one = hearing(of)
        task = asyncio.create_task(_all(one))
        one.add(say(WORDS[:4]))
        await asyncio.wait_for(one.caught_up(), 60)
        one.add(np.tile(say(WORDS, gap=0.02), 10))
        waiting = asyncio.create_task(one.caught_up())
        await until(lambda: bool(of.requests))
        assert not waiting.done()
        of.gate.set()
        await asyncio.wait_for(waiting, 60)
        one.end()
        await task

    run(tried())


async def _all(one: LiveTranscription) -> str:
    return "".join([text async for text in one.words()])


def test_what_the_listener_raises_ends_it_and_keeps_nothing() -> None:
    async def tried() -> None:
        of = listener()
        of.error = EngineDown("no", retry_after=1.0)
        one = hearing(of)
        one.add(say(WORDS))
        with pytest.raises(EngineDown):
            await _all(one)
        one.add(say(WORDS))
        await asyncio.wait_for(one.caught_up(), 60)
        assert one._held == []

    run(tried())


def test_nobody_spoke() -> None:
    async def tried() -> str:
        one = hearing(listener())
        one.add(silence(2.0))
        one.end()
        return await _all(one)

    assert run(tried()) == ""


# Agreement by itself

PIECES = st.lists(st.sampled_from([" a", " b", " an", "d", ".", "'s", "字", " “c"]).map(HeardPiece), max_size=8)


@given(passes=st.lists(st.tuples(PIECES, st.booleans()), max_size=8), last=PIECES)
def test_certain_words_stay_whatever_passes_say(
    passes: list[tuple[list[HeardPiece], bool]], last: list[HeardPiece]
) -> None:
    agreement = Agreement()
    told = ""
    for heard, whole in passes:
        told += agreement.take(heard, whole=whole)
        assert "".join(piece.text for piece in agreement.certain) == told
    told += agreement.finish(last)
    assert "".join(piece.text for piece in agreement.certain) == told


@pytest.mark.parametrize("whole", [True, False])
def test_a_mark_is_certain_with_the_word_after_it(whole: bool) -> None:
    """Passes that end in the same pause agree on a comma, which is gone once speech goes on."""
    agreement = Agreement()
    assert agreement.take(pieces_of("He was not, and"), whole=whole) == ""
    assert agreement.take(pieces_of("He was not, an ill"), whole=whole) == "He was not"
    assert agreement.take(pieces_of("He was not an ill man, so"), whole=whole) == ""
    assert agreement.take(pieces_of("He was not an ill man, so he"), whole=whole) == " an ill man, so"
    assert agreement.finish(pieces_of("He was not an ill man, so he came.")) == " he came."


def test_signs_on_letters_are_no_marks() -> None:
    agreement = Agreement()
    assert agreement.take(pieces_of("नमस्ते दुनिया"), whole=True) == ""
    assert agreement.take(pieces_of("नमस्ते दुनिया"), whole=True) == "नमस्ते दुनिया"


@given(text=st.text(max_size=40))
def test_text_in_words_loses_nothing_but_spaces(text: str) -> None:
    assert "".join("".join(piece.text for piece in pieces_of(text)).split()) == "".join(text.split())


# A real model


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = whisper_engine("whisper-tiny")
    yield engine
    asyncio.run(engine.close())


@pytest.mark.system
@pytest.mark.parametrize(
    ("language", "name", "step"),
    [("en", "jfk", 2.3), ("es", "tt-weasels", 1.1), ("en", "demo-nogo", 0.7), ("fr", "demo-thanks", 0.9)],
)
def test_real_speech_is_heard_live_as_it_is_at_once(
    engine: WhisperEngine, language: str, name: str, step: float
) -> None:
    spoken = recording(language, name)
    told, one = heard_live(engine, spoken.samples, step)
    assert "".join(told) == one.text
    assert one.language == language
    assert spoken.transcript is not None
    assert word_errors(spoken.transcript, one.text) <= max(2, len(words_of(spoken.transcript)) // 4)


@pytest.mark.system
def test_a_pause_in_a_sentence_leaves_no_mark(engine: WhisperEngine) -> None:
    """While somebody pauses within a sentence, the model ends what it has heard with a full stop."""
    pause = silence(0.7)
    sound = np.concatenate([pause, read_aloud("He was not "), pause, read_aloud("an ill disposed young man."), pause])
    told, one = heard_live(engine, sound, 0.25)
    assert "".join(told) == one.text
    assert words_of(told[0]) == ["he", "was", "not"], "the words come in the pause"
    assert not set(".,!?") & set(one.text[:-1]), one.text


def heard_live(engine: WhisperEngine, sound: Samples, step: float) -> tuple[list[str], LiveTranscription]:
    """What is told of a sound that comes in parts of so many seconds, each after what came before was listened to."""

    async def tried() -> tuple[list[str], LiveTranscription]:
        one = LiveTranscription(Transcriber(engine), TranscriptionOptions())
        told: list[str] = []

        async def listen() -> None:
            told.extend([text async for text in one.words()])

        task = asyncio.create_task(listen())
        size = round(step * RATE)
        for at in range(0, len(sound), size):
            part = sound[at : at + size]
            one.add(part, silent=not part.any())
            if not part.any():
                one.pause()
                await until(lambda: one._quiet_at <= one._covered or task.done())
            await until(lambda: one.behind < 0.3 or task.done())
        one.end()
        await task
        return told, one

    return run(tried(), 500.0)


def read_aloud(text: str) -> Samples:
    """A voice that reads a text, without the silence around it."""

    async def spoken() -> Samples:
        speaker = KokoroSpeaker(kokoro_files())
        try:
            request = SpeakRequest(text=text, voice="bm_george")
            sound = np.concatenate([one.sound async for one in speaker.speak(request)])
        finally:
            await speaker.close()
        [loud] = np.nonzero(np.abs(sound) > 0.01)
        resampler = Resampler(speaker.rate, RATE)
        return np.concatenate([resampler.feed(sound[loud[0] : loud[-1]]), resampler.finish()])

    return run(spoken(), 500.0)
