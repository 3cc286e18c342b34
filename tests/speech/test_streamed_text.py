"""Text of a stream comes while its chunk is still decoded; what is not to be believed waits, and the end settles it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.engines.base import Piece, TokenLogprob
from unbraid.speech.decoding.beams import BeamDecoding
from unbraid.speech.decoding.sampling import Logits
from unbraid.speech.listening import ListenEnd, ListenRequest, Opening
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Detected, Transcript
from unbraid.speech.whisper.tokens import WhisperVocabulary

from ..support.examples import examples
from ..support.real_tokenizers import whisper_like
from ..support.waiting import until
from .listening import run
from .live.talking import LevelVoice, encode, say, special_tokens

Said = tuple[str, float]
"""A text, and the logprob of its tokens."""


class Writing:
    """Writes what a test wants for each attempt, and stops after some tokens until it may go on."""

    model = "writing"
    parallel = 1
    supports_word_times = True
    max_beams = 5

    def __init__(self, *attempts: Sequence[Said], no_speech: float = 0.0) -> None:
        self.vocabulary = WhisperVocabulary(whisper_like())
        self.attempts = list(attempts)
        self.no_speech = no_speech
        self.requests: list[ListenRequest] = []
        self.pauses_after = 10_000
        self.go_on = asyncio.Event()

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        said = self.attempts[min(len(self.requests), len(self.attempts) - 1)]
        self.requests.append(request)
        special = special_tokens()
        known = [(min(some) if len(some) == 1 else special.language("en"), 0.0) for some in request.prefix.sets]
        known.append((special.timestamp(0.0), -0.1))
        known += [(token, logprob) for text, logprob in said for token in encode(text)]
        known += [(special.timestamp(1.0), -0.1), (special.eot, -0.1)]
        for at, (token, logprob) in enumerate(known):
            if at == self.pauses_after:
                await self.go_on.wait()
            logprobs = (TokenLogprob(token, b"", logprob),)
            yield Piece((token,), logprobs=logprobs) if at else Opening((token,), None, logprobs, self.no_speech)
        times = tuple(np.linspace(0.0, 1.0, len(known) + 1))
        yield ListenEnd("stop", 1, len(known), self.no_speech, times=times)

    async def close(self) -> None:
        """Nothing to be released."""


async def streamed(listener: Writing, told: list[str]) -> Transcript:
    named: list[str | None] = []
    async for event in Transcriber(listener).run([say(["one", "two", "three"])], TranscriptionOptions(), stream=True):
        if isinstance(event, Detected):
            named.append(event.language)
            assert not told, "the language comes first"
        elif isinstance(event, Delta):
            told.append(event.text)
        elif isinstance(event, Transcript):
            assert named == ([] if event.language is None else [event.language])
            return event
    raise AssertionError("a transcription ends with a Transcript")


def test_words_come_while_the_chunk_is_decoded() -> None:
    async def tried() -> None:
        listener = Writing([(" Ask not what your country can do.", -0.1)])
        listener.pauses_after = 6
        told: list[str] = []
        task = asyncio.create_task(streamed(listener, told))
        await until(lambda: len(told) >= 3)
        assert not task.done()
        assert "".join(told) == " Ask not what"
        listener.go_on.set()
        assert (await task).text == "".join(told).strip() == "Ask not what your country can do."

    run(tried())


def test_an_unlikely_beginning_waits_until_it_is_likely() -> None:
    async def tried() -> None:
        listener = Writing([(" Ask", -2.0), (" not what your country can do.", -0.1)])
        listener.pauses_after = 4  # after " Ask"
        told: list[str] = []
        task = asyncio.create_task(streamed(listener, told))
        await until(lambda: bool(listener.requests))
        await asyncio.sleep(0)
        assert told == []
        listener.go_on.set()
        assert (await task).text == "".join(told).strip()

    run(tried())


def test_an_attempt_that_fails_is_settled_at_the_end() -> None:
    """What was told cannot be taken back; what follows is told from the first difference on, and the text is right."""
    wrong = [(" He went to the", -0.1), (" shop shop", -9.0)]
    right = [(" He went to the", -0.1), (" market and bought bread.", -0.1)]
    told: list[str] = []
    transcript = run(streamed(Writing(wrong, right), told))
    assert transcript.text == "He went to the market and bought bread."
    assert "".join(told).strip() == transcript.text


def test_what_the_model_takes_for_silence_is_not_told() -> None:
    told: list[str] = []
    listener = Writing([(" See you", -9.0)], no_speech=0.9)
    assert run(streamed(listener, told)).text == ""
    assert told == []


@pytest.mark.parametrize(("stream_beams", "stream", "beams"), [(None, True, 5), (1, True, 1), (1, False, 5)])
def test_streams_may_have_beams_of_their_own(stream_beams: int | None, stream: bool, beams: int) -> None:
    async def tried() -> None:
        listener = Writing([(" Yes.", -0.1)])
        transcriber = Transcriber(listener, detector=LevelVoice(), stream_beams=stream_beams)  # type: ignore[arg-type]
        async for _ in transcriber.run([say(["one", "two", "three"])], TranscriptionOptions(), stream=stream):
            pass
        assert listener.requests[0].beams == beams

    run(tried())


class AnyTokens:
    """Anything may be written, but nothing is not."""

    end, silence = 0, 1

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        if not written:
            logits[self.end] = -np.inf


@examples(4)
@given(st.integers(0, 1000), st.integers(2, 5), st.integers(3, 20))
def test_beams_tell_what_all_of_them_begin_with(seed: int, width: int, limit: int) -> None:
    """Token by token and in order: what was told early is the beginning of what wins."""
    rules = AnyTokens()
    decoding = BeamDecoding(rules, TokenSets(()), False, 0.0, limit, np.random.default_rng(0), width=width)
    rows: list[list[int]] = [[]]
    told: list[int] = []
    while decoding.reason is None:
        logits = [np.random.default_rng([seed, *row]).normal(0.0, 4.0, 7).astype(np.float32) for row in rows]
        step = decoding.step(np.stack(logits))
        told += [one.token for one in step.emitted]
        rows = [[*rows[row], token] for row, token in zip(step.rows, step.tokens, strict=True)]
        assert all(row[: len(told)] == told for row in rows)
    assert told == decoding.written


def test_beams_that_agree_tell_at_once() -> None:
    """One token is far likelier than all others: no beam keeps another one for long."""
    decoding = BeamDecoding(AnyTokens(), TokenSets(()), False, 0.0, 30, np.random.default_rng(0), width=2)
    logits = np.zeros((1, 5), np.float32)
    told = 0
    for step in range(12):
        row = np.array([-60.0, 0.0, 40.0 if step % 2 else 0.0, 0.0 if step % 2 else 40.0, -60.0], np.float32)
        logits = np.repeat(row[None], len(decoding._live), axis=0)
        told += len(decoding.step(logits).emitted)
    assert told >= 8
