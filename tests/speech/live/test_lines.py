"""Lines of live text, from a microphone that is made up."""

from __future__ import annotations

import sys
from asyncio import run
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unbraid import UnbraidError
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.audio.microphone import Microphone
from unbraid.speech.audio.pcm import pcm_bytes
from unbraid.speech.live.lines import live_lines
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.tokens import WhisperVocabulary

from ...support.real_tokenizers import whisper_like
from .talking import LevelVoice, WordListener, say, silence

SPOKEN = np.concatenate(
    [silence(1), say(["one", "two"]), silence(1), say(["three"]), silence(0.8), say(["four", "five"])]
)


class Portaudio(Exception):
    """PortAudio's error."""


class Sounddevice(SimpleNamespace):
    """The package, with one microphone that has a recording to play.

    rates: those that it records at.
    """

    PortAudioError = Portaudio

    def __init__(self, sound: Samples, rates: tuple[int, ...] = (RATE,)) -> None:
        self.sound, self.rates = sound, rates
        self.closed = False

    def query_devices(self, name: int | str | None, kind: str) -> dict[str, Any]:
        assert kind == "input"
        if name not in (None, 0, "Desk"):
            raise ValueError(f"No input device matching {name!r}")
        return {"name": "Desk microphone", "default_samplerate": float(self.rates[0])}

    def check_input_settings(self, device: object, *, samplerate: int, **_: object) -> None:
        if samplerate not in self.rates:
            raise Portaudio("Invalid sample rate")

    def RawInputStream(  # noqa: N802
        self, *, samplerate: int, blocksize: int, callback: Callable[..., None], **_: object
    ) -> Any:
        assert samplerate in self.rates
        data = pcm_bytes(self.sound)
        for at in range(0, len(data), 2 * blocksize):
            callback(data[at : at + 2 * blocksize], blocksize, None, None)
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda module: monkeypatch.setitem(sys.modules, "sounddevice", module)


def transcriber(detector: object = None) -> Transcriber:
    return Transcriber(WordListener(WhisperVocabulary(whisper_like())), detector=detector or LevelVoice())  # type: ignore[arg-type]


async def said(microphone: Microphone) -> str:
    """All lines, if Ctrl-C is pressed once all was recorded."""

    async def sound() -> AsyncGenerator[Samples, None]:
        stopped = False
        async for samples in microphone.sound():
            if not stopped:
                microphone.stop()
                stopped = True
            yield samples

    return "".join([text async for text in live_lines(transcriber(), TranscriptionOptions(), sound())])


@pytest.mark.parametrize("rate", [RATE, 48_000])
def test_a_microphone_to_lines_an_utterance_each(plug: Callable[[Any], None], rate: int) -> None:
    """What is being said when it is stopped is told, too."""
    device = Sounddevice(np.repeat(SPOKEN, rate // RATE), (rate,))
    plug(device)
    lines = run(said(Microphone("Desk"))).splitlines()
    assert [line.rstrip(".") for line in lines] == ["one two", "three", "four five"]
    assert device.closed


def test_what_a_microphone_lacks_is_said_with_what_to_do(plug: Callable[[Any], None]) -> None:
    plug(None)
    with pytest.raises(UnbraidError, match=r"pip install 'unbraid\[microphone\]'"):
        Microphone()
    plug(Sounddevice(SPOKEN))
    with pytest.raises(UnbraidError, match=r"no microphone 'Shure' .*python -m sounddevice"):
        Microphone("Shure")
    assert Microphone("0").name == "Desk microphone"


def test_lines_need_to_know_who_speaks() -> None:
    async def nothing() -> AsyncGenerator[Samples, None]:
        yield silence(1)

    async def lines() -> None:
        async for _ in live_lines(
            Transcriber(WordListener(WhisperVocabulary(whisper_like()))), TranscriptionOptions(), nothing()
        ):
            raise AssertionError("nothing was said")

    with pytest.raises(UnbraidError, match="voice activity detector"):
        run(lines())
