"""A sound is encoded once, however often it is decoded, and nothing is kept of one that is gone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.base import Piece
from unbraid.speech.attempt import Thresholds
from unbraid.speech.audio.decode import Samples
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.onnx.runtime import Floats
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import Encodings, WhisperEngine

from .whisper_models import files, jfk

pytestmark = pytest.mark.system


class Counting:
    """An encoder whose output is its input."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, samples: Samples) -> Floats:
        self.calls += 1
        return np.array(samples)


@given(st.lists(st.tuples(st.sampled_from(["ask", "drop", "new"]), st.integers(0, 3)), max_size=40))
def test_each_sound_once(steps: list[tuple[str, int]]) -> None:
    """Whatever comes and goes: the output is that of the sound, computed once, and kept no longer than the sound."""
    encoder = Counting()
    encodings = Encodings(encoder)
    sounds: dict[int, Samples] = {}
    asked: set[int] = set()
    made = 0
    for what, name in steps:
        if what == "new" or name not in sounds:
            sounds[name] = np.full(4, made, np.float32)
            made += 1
            asked.discard(name)
        if what == "ask":
            before = encoder.calls
            assert (encodings.of(sounds[name]) == sounds[name]).all()
            assert encoder.calls == before + (name not in asked)
            asked.add(name)
        elif what == "drop":
            del sounds[name]
            asked.discard(name)
        gc.collect(0)
        assert len(encodings) == len(asked)


def test_a_slice_is_another_sound() -> None:
    encodings = Encodings(Counting())
    samples = np.arange(8, dtype=np.float32)
    assert len(encodings.of(samples)) == 8
    assert len(encodings.of(samples[4:])) == 4


def test_temperatures_share_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """No output passes, so all temperatures are tried; the encoder runs once."""
    engine = WhisperEngine(files("whisper-tiny"), threads=2)
    limits = Thresholds(avg_logprob=1.0, no_speech=2.0, temperatures=(0.0, 0.1, 0.2), most_tokens=10_000)
    encoded: list[int] = []
    attempts: list[float] = []
    encode, listen = engine._encodings._encode, engine.listen

    def counted(samples: Samples) -> Floats:
        encoded.append(len(samples))
        return encode(samples)

    def noted(request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        attempts.append(request.temperature)
        return listen(request)

    monkeypatch.setattr(engine._encodings, "_encode", counted)
    monkeypatch.setattr(engine, "listen", noted)

    async def transcribe() -> str:
        try:
            return (await Transcriber(engine, thresholds=limits).transcribe([jfk()], TranscriptionOptions())).text
        finally:
            await engine.close()

    assert "country" in asyncio.run(transcribe())
    assert attempts == [0.0, 0.1, 0.2]
    assert encoded == [len(jfk())]
    assert not len(engine._encodings)
