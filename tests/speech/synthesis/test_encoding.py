"""Sound in every format: it decodes to what went in, and comes while it is made."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest

from unbraid.speech.synthesis import SOUND_FORMATS, SoundFormat
from unbraid.speech.synthesis.encoding import SoundWriter
from unbraid.speech.synthesis.speaker import Sound

av: Any = pytest.importorskip("av", reason="av is not installed: pip install av")

RATE = 24_000


def tone(seconds: float, hertz: float = 440.0) -> Sound:
    return (0.4 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def decoded(data: bytes, format: SoundFormat) -> tuple[int, Sound]:
    """The rate and the samples of a file, as FFmpeg reads them."""
    if format == "pcm":
        return RATE, np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.audio[0]
        frames = list(container.decode(stream))
    arrays = [frame.to_ndarray().reshape(-1) for frame in frames]
    joined = np.concatenate(arrays)
    return frames[0].sample_rate, joined / 32768 if joined.dtype.kind == "i" else joined


@pytest.mark.parametrize("format", SOUND_FORMATS)
def test_what_goes_in_comes_out(format: SoundFormat) -> None:
    sound = tone(2.0)
    writer = SoundWriter(format, RATE)
    parts = [writer.write(part) for part in np.array_split(sound, 5)]
    assert all(parts), "each stretch of sound gives bytes at once"
    rate, found = decoded(b"".join([*parts, writer.finish()]), format)
    assert len(found) / rate == pytest.approx(2.0, abs=0.1)
    spectrum = np.abs(np.fft.rfft(found[rate // 2 : rate // 2 + rate]))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert np.abs(found).max() == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("format", SOUND_FORMATS)
def test_nothing_was_said(format: SoundFormat) -> None:
    assert isinstance(SoundWriter(format, RATE).finish(), bytes)


def test_loud_sound_does_not_wrap_around() -> None:
    writer = SoundWriter("pcm", RATE)
    assert np.frombuffer(writer.write(np.array([2.0, -2.0, 1.0], np.float32)), "<i2").tolist() == [32767, -32767, 32767]


def test_other_readers_take_a_wav_of_unknown_length() -> None:
    writer = SoundWriter("wav", RATE)
    data = writer.write(tone(0.5)) + writer.write(tone(0.5)) + writer.finish()
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert len(file.readframes(file.getnframes())) == 2 * RATE
