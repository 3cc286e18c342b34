"""Transcripts where order, chance and faults matter, from listeners that only pretend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import cast

import numpy as np
import pytest

from unbraid.engines.base import EngineDown, EngineFailed, Piece
from unbraid.speech.attempt import Thresholds
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.audio.vad import FRAME, SpeechDetector
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import PrefixMissing, Transcriber
from unbraid.speech.transcript import Transcript, TranscriptEvent, TranscriptProgress

from ..support.real_tokenizers import whisper_like
from ..support.waiting import until
from .listening import run
from .noises import syllables
from .transcribing import (
    Pretended,
    Saying,
    all_of,
    check,
    chunks_of,
    end,
    in_blocks,
    loudness,
    output,
    plain,
    says,
    special_tokens,
    streamed,
    talk,
    text_vocabulary,
    texts,
    transcribed,
)
from .whisper.whisper_models import prompt


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
    transcript = transcribed(says(" One two.", logprob=-0.5))
    assert transcript.segments[0].avg_logprob == pytest.approx(-0.5)
    count = len(plain(" One two."))
    broken_off = transcribed(lambda request: Saying(output(" One two.")[:-1], "length", logprob=-0.5))
    assert broken_off.segments[0].avg_logprob == pytest.approx(-0.5 * count / (count + 1))


# A prefix that does not come


@pytest.mark.parametrize("lost", [1, 2])
def test_without_a_prefix_no_language_is_made_up(lost: int) -> None:
    transcript = transcribed(lambda request: Saying(output(" Guten Tag.")[lost:]))
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
    transcript = transcribed(lambda request: Saying(astray, piece=100))
    assert transcript.text == "Guten Tag."
    assert transcript.language is None
    assert transcript.warnings


def test_a_given_language_is_not_believed_either_where_the_prefix_does_not_come() -> None:
    transcript = transcribed(lambda request: Saying(output(" Hello.", "en")), TranscriptionOptions(language="de"))
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
    assert transcribed(says(text)).text == text.strip()
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
        return transcribed(write, thresholds=limits or Thresholds()).language

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
    assert transcribed(unlikely).text == ""
    assert transcribed(says(" Thanks for watching!", no_speech=0.1, logprob=-1.1)).text == "Thanks for watching!"

    def passes_later(request: ListenRequest) -> Saying:
        return Saying(output(" At last."), no_speech=0.5, logprob=-1.1 if request.temperature < 0.4 else -0.9)

    assert transcribed(passes_later).text == "At last."
    heard = Transcriber(Pretended(unlikely), detector=cast(SpeechDetector, Talking()))
    assert run(heard.transcribe([syllables(2.0)], TranscriptionOptions())).text == "Thanks for watching!"


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
    transcript = transcribed(says(""))
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
