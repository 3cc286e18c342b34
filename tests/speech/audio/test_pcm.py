"""Sound over a line: how it is cut makes no difference, and what G.711 and the filter keep of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.audio.decode import RATE
from unbraid.speech.audio.pcm import Resampler, SoundFormat, SoundReader, write_sound
from unbraid.speech.errors import BadAudio

FORMATS = [
    SoundFormat("pcm", 16_000),
    SoundFormat("pcm", 24_000),
    SoundFormat("pcmu", 8_000),
    SoundFormat("pcma", 8_000),
]
SOME_BYTES = np.random.default_rng(1).integers(0, 256, 4_001, np.uint8).tobytes()


def tone(rate: int, hertz: float = 440.0, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS, ids=str)
@given(cuts=st.lists(st.integers(0, len(SOME_BYTES)), max_size=8))
def test_how_it_is_cut_makes_no_difference(format: SoundFormat, cuts: list[int]) -> None:
    whole = SoundReader(format)
    wanted = np.concatenate([whole.feed(SOME_BYTES), whole.finish()])
    reader = SoundReader(format)
    places = [0, *sorted(cuts), len(SOME_BYTES)]
    found = [reader.feed(SOME_BYTES[a:b]) for a, b in pairwise(places)]
    assert np.array_equal(np.concatenate([*found, reader.finish()]), wanted)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_tone_stays_the_same_tone(format: SoundFormat) -> None:
    reader = SoundReader(format)
    data = write_sound(tone(format.rate), format.kind)
    assert format.seconds(len(data)) == 0.5
    found = np.concatenate([reader.feed(data), reader.finish()])
    wanted = tone(RATE)
    assert abs(len(found) - len(wanted)) <= 1
    inside = slice(400, 7_600)  # without the ends, where the filter has silence on one side
    assert np.abs(found[inside] - wanted[inside]).max() < 0.02


def test_what_the_lower_rate_cannot_hold_is_filtered_out() -> None:
    high = Resampler(24_000, 16_000).feed(tone(24_000, 11_000.0))
    assert np.abs(high[500:-500]).max() < 0.01


@pytest.mark.parametrize("kind", ["pcmu", "pcma"])
def test_every_byte_of_g711_is_the_nearest_to_its_own_value(kind: str) -> None:
    every = bytes(range(256))
    values = SoundReader(SoundFormat(kind, 8_000))
    samples = values.feed(every)  # resampled: so take the table itself
    assert len(samples)
    from unbraid.speech.audio.pcm import _table

    written = write_sound(_table(kind), kind)
    assert np.array_equal(_table(kind)[np.frombuffer(written, np.uint8)], _table(kind))
    assert float(_table(kind).max()) > 0.9
    assert float(_table(kind).min()) < -0.9


def test_known_values_of_g711() -> None:
    """By ITU-T G.711: silence, and the loudest of both signs."""
    from unbraid.speech.audio.pcm import _table

    assert _table("pcmu")[0xFF] == 0
    assert round(float(_table("pcmu")[0x80]) * 32768) == 32124
    assert round(float(_table("pcmu")[0x00]) * 32768) == -32124
    assert round(float(_table("pcma")[0xD5]) * 32768) == 8
    assert round(float(_table("pcma")[0xAA]) * 32768) == 32256
    assert round(float(_table("pcma")[0x2A]) * 32768) == -32256


@pytest.mark.parametrize(("kind", "rate"), [("opus", 24_000), ("pcm", 12_345), ("pcmu", 16_000)])
def test_other_formats_are_refused(kind: str, rate: int) -> None:
    with pytest.raises(BadAudio):
        SoundFormat(kind, rate)
