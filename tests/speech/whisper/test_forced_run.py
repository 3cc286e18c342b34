"""The forced tokens of a prefix cost one step together, and detecting a language costs no more than being given one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from unbraid.engines.base import Piece
from unbraid.speech.listening import ListenEnd
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.listener import WhisperEngine

from ...support.real_speech import recording
from ...support.waiting import PATIENCE
from .whisper_models import whisper_engine

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = whisper_engine("whisper-tiny")
    yield engine
    asyncio.run(engine.close())


async def heard(engine: WhisperEngine, options: TranscriptionOptions) -> tuple[list[int], ListenEnd, int]:
    """The tokens of a recording, how they ended, and how often the decoder ran for them."""
    adapter = WhisperAdapter(engine.vocabulary)
    request = adapter.request(recording("en", "tt-weasels").samples, options, 0.0)
    before = engine._model.runs
    tokens: list[int] = []
    end: ListenEnd | None = None
    async with asyncio.timeout(PATIENCE):
        async for output in engine.listen(request):
            if isinstance(output, Piece):
                tokens += output.ids
            else:
                end = output
    assert end is not None
    return tokens, end, engine._model.runs - before


@pytest.mark.parametrize("timed", [True, False])
def test_one_step_for_all_that_is_forced(engine: WhisperEngine, timed: bool) -> None:
    """With times: the language, then the task. Without: one more token, and no more steps."""

    async def both() -> None:
        asked = TranscriptionOptions(timestamps=timed, words=True)
        given = TranscriptionOptions(timestamps=timed, words=True, language="en")
        tokens, end, runs = await heard(engine, asked)
        same, same_end, same_runs = await heard(engine, given)
        assert tokens == same
        assert runs == same_runs
        assert end.times == same_end.times
        assert len(end.times) == len(tokens) + 1
        assert end.no_speech == same_end.no_speech
        forced = 1 if timed else 2  # after the language; the end is not read
        assert runs == len(tokens) - forced
        assert end.choices
        assert not same_end.choices

    asyncio.run(both())


def test_as_token_by_token(engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words, with more steps; also with beams."""

    async def both() -> None:
        for beams in (1, 2):
            options = TranscriptionOptions(words=True, beams=beams)
            tokens, end, runs = await heard(engine, options)
            with monkeypatch.context() as patch:
                patch.setattr(type(engine._model), "reads_runs", False)
                slowly, slow_end, more = await heard(engine, options)
            assert tokens == slowly
            assert more == runs + 2
            assert end.times == pytest.approx(slow_end.times, abs=0.1)

    asyncio.run(both())
