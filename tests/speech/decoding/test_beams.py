"""Beam search: the same as OpenAI's, and with one beam the same as without; with a real Whisper on real speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.engines.base import Piece, Unsupported
from unbraid.speech.decoding.beams import BeamDecoding
from unbraid.speech.decoding.sampling import Logits, SamplingDecoding, likeliest, log_softmax, log_total
from unbraid.speech.errors import UnsupportedOption
from unbraid.speech.listening import ListenEnd, ListenRequest, Opening
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Detected, Transcript
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.listener import WhisperEngine

from ...support.in_loop import collect, collect_until_error
from ...support.real_speech import recording
from ..audio.detectors import detector
from ..test_transcription_words import check_words
from ..whisper.whisper_models import WORDS, tokenizer, whisper_engine

pytestmark = pytest.mark.system

TINY = "whisper-tiny"
END = 0
TOKENS = 7


@dataclass(frozen=True)
class AnyTokens:
    """Anything may be written, but nothing is not."""

    end: int = END
    silence: int | None = 1

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        if not written:
            logits[self.end] = -np.inf


def model(seed: int, written: Sequence[int]) -> Logits:
    """What may come next: by chance, but the same after the same tokens."""
    rng = np.random.default_rng([seed, *written])
    return rng.normal(0.0, 2.0, TOKENS).astype(np.float32)


def made(limit: int, *sets: set[int]) -> SamplingDecoding:
    prefix = TokenSets(tuple(map(frozenset, sets)))
    return SamplingDecoding(AnyTokens(), prefix, False, 0.0, limit, np.random.default_rng(0))


def beams(width: int, limit: int, *sets: set[int]) -> BeamDecoding:
    prefix = TokenSets(tuple(map(frozenset, sets)))
    return BeamDecoding(AnyTokens(), prefix, False, 0.0, limit, np.random.default_rng(0), width=width)


def decode(one: SamplingDecoding, seed: int) -> list[tuple[int, float]]:
    """As an engine does it: rows are read, and those that go on are chosen."""
    rows: list[list[int]] = [[]]
    said: list[tuple[int, float]] = []
    while one.reason is None:
        step = one.step(np.stack([model(seed, row) for row in rows]))
        said += [(each.token, each.logprob) for each in step.emitted]
        rows = [[*rows[row], token] for row, token in zip(step.rows, step.tokens, strict=True)]
        assert bool(rows) == (one.reason is None)
    assert [*one.begun, *one.written] == [token for token, _ in said]
    return said


def openais(seed: int, width: int, limit: int, begun: list[int]) -> tuple[list[int], float]:
    """`BeamSearchDecoder` and `MaximumLikelihoodRanker` of openai-whisper's decoding.py, for one recording; except that
    the search goes on while the likeliest has not ended."""
    sums = [0.0] * width
    beams: list[tuple[int, ...]] = [()] * width
    finished: dict[tuple[int, ...], float] = {}
    for _ in range(limit - len(begun)):
        scores: dict[tuple[int, ...], float] = {}
        for total, beam in zip(sums, beams, strict=True):
            logits = model(seed, [*begun, *beam])
            AnyTokens().apply(logits, beam, False)
            logprobs = log_softmax(logits)
            for token in np.argsort(-logprobs)[: width + 1]:
                scores[(*beam, int(token))] = total + float(logprobs[token])
        following: list[tuple[int, ...]] = []
        ended: dict[tuple[int, ...], float] = {}
        for sequence in sorted(scores, key=lambda each: -scores[each]):
            if sequence[-1] == END:
                ended[sequence] = scores[sequence]
            else:
                following.append(sequence)
                if len(following) == width:
                    break
        sums, beams = [scores[beam] for beam in following], following
        finished |= ended
        if len(finished) >= width and max(finished.values()) >= sums[0]:
            break
    for total, beam in sorted(zip(sums, beams, strict=True), reverse=True):
        if len(finished) >= width:
            break
        finished[(*beam, END)] = total
    best = max(finished, key=lambda each: finished[each] / (len(each) - 1))
    return list(best), finished[best]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 8), st.booleans())
def test_the_search_is_openais(seed: int, width: int, limit: int, prefixed: bool) -> None:
    sets = [{2, 3}] if prefixed else []
    one = beams(width, limit, *sets)
    said = decode(one, seed)
    tokens, total = openais(seed, width, limit, list(one.begun))
    written = [token for token, _ in said[len(one.begun) :]]
    assert one.reason == ("stop" if written[-1] == END else "length")
    assert written + ([] if one.reason == "stop" else [END]) == tokens
    assert sum(logprob for _, logprob in said[len(one.begun) :]) == pytest.approx(total)


@given(st.integers(0, 10**6), st.integers(2, 9), st.booleans())
def test_one_beam_is_none(seed: int, limit: int, prefixed: bool) -> None:
    sets = [{2, 3}, {1}] if prefixed else []
    greedy, beam = made(limit, *sets), beams(1, limit, *sets)
    assert decode(beam, seed) == decode(greedy, seed)
    assert (beam.reason, beam.choices, beam.no_speech) == (greedy.reason, greedy.choices, greedy.no_speech)


def test_the_beams_part_after_the_prefix() -> None:
    """What it begins with is told at once, all else when it is over."""
    one = beams(3, 9, {2, 3}, {1})
    first = one.step(model(1, [])[None])
    assert [each.token for each in first.emitted] in ([2], [3])
    assert first.rows == (0,)
    assert one.no_speech is not None
    second = one.step(model(1, one.begun)[None])
    assert ([each.token for each in second.emitted], second.tokens) == ([1], (1,))
    third = one.step(model(1, one.begun)[None])
    assert (third.emitted, third.rows) == ((), (0, 0, 0))
    assert len(set(third.tokens)) == 3
    assert set(one.choices) == {2, 3}


def test_where_each_was_looked_for() -> None:
    """Of the one that is told, and of what it begins with."""
    one = beams(3, 6, {2})
    rows: list[list[int]] = [[]]
    while one.reason is None:
        attention = np.array([[[len(row), sum(row)]] for row in rows], np.float32)
        step = one.step(np.stack([model(5, row) for row in rows]), attention)
        rows = [[*rows[row], token] for row, token in zip(step.rows, step.tokens, strict=True)]
    tokens = [*one.begun, *one.written]
    assert [each.tolist() for each in one.attention] == [[[at, sum(tokens[:at])]] for at in range(len(tokens))]


def test_a_phrase_over_and_over_ends_it() -> None:
    one = beams(2, 400)
    logits = np.zeros((1, TOKENS), np.float32)
    logits[0, [3, 4, END]] = [20.0, 8.0, -20.0]
    steps = emitted = 0
    while one.reason is None:
        step = one.step(logits if not steps else np.repeat(logits, 2, axis=0))
        steps += 1
        emitted += len(step.emitted)
    assert (one.reason, set(one.written), emitted) == ("loop", {3}, steps)
    assert steps < 100


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from((7, 1_500, 9_300, 51_865)), st.booleans())
def test_the_likeliest_of_a_vocabulary(seed: int, count: int, size: int, forbidden: bool) -> None:
    logits = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    if forbidden:
        logits[: size - 3] = -np.inf
    chosen = likeliest(logits, count)
    assert len(set(chosen.tolist())) == len(chosen) == min(count, size)
    assert sorted(logits[chosen]) == sorted(logits)[-len(chosen) :]
    assert logits[-1] - log_total(logits) == pytest.approx(log_softmax(logits)[-1], abs=1e-5)


# --- A real Whisper --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    made = whisper_engine(TINY)
    yield made
    asyncio.run(made.close())


ROUNDING = 0.01
"""Nats a token: what one row and five rows compute of the same tokens differs by less."""
SPEECH = [("en", "jfk"), ("en", "tt-weasels"), ("es", "demo-thanks"), ("it", "demo-thanks"), ("ru", "tt-weasels")]


def asked(engine: WhisperEngine, key: tuple[str, str], **options: Any) -> ListenRequest:
    return WhisperAdapter(engine.vocabulary).request(recording(*key).samples, TranscriptionOptions(**options), 0.0)


def listened(engine: WhisperEngine, *requests: ListenRequest) -> list[list[Any]]:
    async def together() -> list[list[Any]]:
        return await asyncio.gather(*(collect(engine.listen(request)) for request in requests))

    return asyncio.run(together())


def score(outputs: list[Any], prefix: int) -> float:
    logprobs: list[float] = [one.logprob for piece in outputs[:-1] for one in piece.logprobs][prefix:]
    return sum(logprobs) / (len(logprobs) - 1)


def text(outputs: list[Any]) -> str:
    ids = [token for piece in outputs[:-1] for token in piece.ids]
    return str(tokenizer(TINY).decode(ids, skip_special_tokens=True))


@pytest.mark.parametrize("timestamps", [False, True])
def test_five_beams_find_nothing_less_likely(engine: WhisperEngine, timestamps: bool) -> None:
    prefix = 2 if timestamps else 3
    better = 0
    for key in SPEECH:
        [greedy] = listened(engine, asked(engine, key, timestamps=timestamps))
        [beams] = listened(engine, asked(engine, key, timestamps=timestamps, beams=5))
        assert beams[-1].reason == greedy[-1].reason == "stop"
        assert score(beams, prefix) >= score(greedy, prefix) - ROUNDING, key
        better += score(beams, prefix) > score(greedy, prefix) + ROUNDING
        # The language is chosen before they part.
        assert beams[0].ids[0] == greedy[0].ids[0]
        assert beams[-1].choices == pytest.approx(greedy[-1].choices, abs=1e-4)
        assert beams[-1].no_speech == pytest.approx(greedy[-1].no_speech, abs=1e-4)
        same = set(text(greedy).lower().split()) & set(text(beams).lower().split())
        assert len(same) > 0.4 * len(set(text(greedy).lower().split())), (text(greedy), text(beams))
    assert better


def test_what_all_begin_with_comes_before_the_end(engine: WhisperEngine) -> None:
    [outputs] = listened(engine, asked(engine, ("en", "jfk"), beams=3))
    *pieces, rest, end = outputs
    assert isinstance(pieces[0], Opening)
    assert pieces[0].no_speech == end.no_speech
    assert sum(len(piece.ids) for piece in pieces) > 3, "more than the prefix"
    assert isinstance(rest, Piece)
    assert isinstance(end, ListenEnd)
    assert end.completion_tokens == sum(len(piece.ids) for piece in outputs[:-1])


def test_a_batch_of_beams_says_what_each_says_alone(engine: WhisperEngine) -> None:
    """Two chunks with two beams each are four rows; and beams beside a chunk that has none."""
    requests = [asked(engine, key, beams=2) for key in SPEECH[1:3]]
    requests += [asked(engine, SPEECH[3]), asked(engine, SPEECH[4], beams=3)]
    alone = [text(outputs) for request in requests for outputs in listened(engine, request)]
    assert len(set(alone)) == 4
    blocking = asked(engine, SPEECH[0])
    together = listened(engine, blocking, *requests)[1:]
    assert [text(outputs) for outputs in together] == alone


def test_a_stream(engine: WhisperEngine) -> None:
    """Its text is that of the whole."""

    async def run() -> tuple[list[Any], Transcript]:
        transcriber, options = Transcriber(engine), TranscriptionOptions(beams=2, words=True, timestamps=True)
        samples = recording("en", "jfk").samples
        events = [event async for event in transcriber.run([samples], options, stream=True)]
        return events, await transcriber.transcribe([samples], options)

    events, whole = asyncio.run(run())
    assert events[-1] == whole
    assert isinstance(events[0], Detected)
    assert sum(isinstance(event, Detected) for event in events) == 1
    assert "".join(event.text for event in events if isinstance(event, Delta)).strip() == whole.text
    assert "".join(char for char in whole.text.lower() if char.isalpha() or char == " ") == WORDS
    check_words(whole)


def test_who_leaves_ends_the_search(engine: WhisperEngine) -> None:
    async def run() -> None:
        outputs = engine.listen(asked(engine, ("en", "jfk"), beams=4))
        assert isinstance(await anext(outputs), Piece)
        await outputs.aclose()
        end = await collect(engine.listen(asked(engine, ("en", "tt-weasels"))))
        assert end[-1].reason == "stop"
        assert engine.load.waiting == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TranscriptionOptions(beams=0), "1 to 8 beams, not 0"),
        (TranscriptionOptions(beams=9), "1 to 8 beams, not 9"),
        (TranscriptionOptions(beams=2, temperature=0.4), "beam search needs temperature 0"),
    ],
)
def test_options_that_cannot_be(engine: WhisperEngine, options: TranscriptionOptions, said: str) -> None:
    with pytest.raises(UnsupportedOption, match=said) as raised:
        Transcriber(engine).check(options)
    assert raised.value.field == "beams"
    Transcriber(engine).check(TranscriptionOptions(beams=8, temperature=0.0))


def test_higher_temperatures_have_no_beams(engine: WhisperEngine) -> None:
    adapter = WhisperAdapter(engine.vocabulary)
    found = [
        adapter.request(np.zeros(1, np.float32), TranscriptionOptions(beams=5), temperature).beams
        for temperature in (0.0, 0.2)
    ]
    assert found == [5, 1]


def test_beams_by_default_where_a_voice_was_detected(engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a detector, noise is decoded too, and beams would find words in it."""
    asked_for: list[int] = []
    listen = engine.listen

    def noted(request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        asked_for.append(request.beams)
        return listen(request)

    monkeypatch.setattr(engine, "listen", noted)
    heeding, greedy = Transcriber(engine, detector=detector()), Transcriber(engine)
    plain = TranscriptionOptions()

    async def run() -> None:
        samples = recording("en", "jfk").samples
        for transcriber, options in (
            (heeding, plain),
            (heeding, replace(plain, vad=None)),
            (heeding, replace(plain, beams=1)),
            (heeding, replace(plain, temperature=0.1)),
            (greedy, plain),
            (greedy, replace(plain, beams=2)),
        ):
            assert "country" in (await transcriber.transcribe([samples], options)).text

    asyncio.run(run())
    assert asked_for == [5, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("more", [{"beams": 0}, {"beams": 9}, {"beams": 2, "temperature": 0.5}])
def test_the_engine_refuses(engine: WhisperEngine, more: dict[str, Any]) -> None:
    async def run() -> None:
        request = ListenRequest(samples=np.zeros(16_000, np.float32), prompt=(engine.tokens.sot,), **more)
        _, error = await collect_until_error(engine.listen(request))
        assert isinstance(error, Unsupported)
        assert "beams" in str(error)

    asyncio.run(run())
