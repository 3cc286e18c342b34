"""Recordings cut in pieces: nothing lost, nothing moved, and not through a word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unbraid import UnbraidError
from unbraid.speech.audio.chunking import Chunk, cut, is_silent, is_steady
from unbraid.speech.audio.decode import RATE, read

from ...support.real_speech import ASTERISK, LANGUAGES, recording
from .. import noises

Array = NDArray[np.float32]


def noise(seconds: float, level: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0.0, level, round(seconds * RATE)).astype(np.float32)


def babble(seconds: float, *, room: float, pause: float, seed: int) -> tuple[Array, list[tuple[float, float]]]:
    """Words of noise, some with a short silence in them as a t makes it, and the pauses between them."""
    rng = np.random.default_rng(seed)
    parts: list[Array] = []
    pauses: list[tuple[float, float]] = []
    at = 0.0
    while at < seconds:
        for _ in range(int(rng.integers(2, 9))):  # words without a pause between them
            parts += [
                noise(rng.uniform(0.1, 0.4), rng.uniform(0.05, 0.2), int(rng.integers(1 << 30))),
                noise(0.06, room),
            ]
            at += len(parts[-1]) / RATE + len(parts[-2]) / RATE
        parts.append(noise(pause, room))
        pauses.append((at, at + pause))
        at += len(parts[-1]) / RATE
    return np.concatenate(parts), pauses


def pieces(samples: Array, sizes: list[int]) -> Iterator[Array]:
    at = 0
    while at < len(samples):
        for size in sizes:
            yield samples[at : at + size]
            at += size


def check(chunks: list[Chunk], samples: Array, *, longest: float = 30.0, search: float = 5.0, rate: int = RATE) -> None:
    """What holds for all cuts."""
    joined = np.concatenate([chunk.samples for chunk in chunks]) if chunks else samples[:0]
    assert np.array_equal(joined, samples)
    assert joined.dtype == samples.dtype
    at = 0
    for chunk in chunks:
        assert chunk.start == at / rate
        assert 0 < len(chunk.samples) <= round(longest * rate)
        at += len(chunk.samples)
    for chunk in chunks[:-1]:
        assert len(chunk.samples) >= round((longest - search) * rate)


@given(
    values=st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.1, -0.4, 1.0]), max_size=40),
    repeat=st.integers(1, 60),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=5).filter(any),
    rate=st.sampled_from([50, 100, 333]),
    longest=st.sampled_from([0.5, 1.0, 2.5]),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_nothing_depends_on_the_blocks(
    values: list[float], repeat: int, sizes: list[int], rate: int, longest: float, share: float
) -> None:
    samples = np.repeat(np.array(values, np.float32), repeat)
    search = longest * share
    whole = list(cut([samples], longest=longest, search=search, rate=rate))
    check(whole, samples, longest=longest, search=search, rate=rate)
    parts = list(cut(pieces(samples, sizes), longest=longest, search=search, rate=rate))
    assert [(chunk.start, len(chunk.samples)) for chunk in parts] == [
        (chunk.start, len(chunk.samples)) for chunk in whole
    ]
    check(parts, samples, longest=longest, search=search, rate=rate)


def test_what_fits_is_not_cut() -> None:
    for count in (1, RATE, 30 * RATE):
        (chunk,) = cut(pieces(noise(30.0, 0.1)[:count], [RATE]))
        assert len(chunk.samples) == count
    assert len(list(cut([noise(30.0, 0.1), noise(1.0, 0.1)[:1]]))) == 2
    assert list(cut([])) == list(cut([noise(0.0, 0.1)])) == []


@pytest.mark.parametrize("room", [0.0, 1e-4, 3e-3, 1e-2])
@pytest.mark.parametrize("pause", [0.25, 0.5])
def test_cuts_are_in_pauses(room: float, pause: float) -> None:
    """Not in the short silences within words, whatever the noise of the room."""
    for seed in range(3):
        samples, pauses = babble(130.0, room=room, pause=pause, seed=seed)
        chunks = list(cut(pieces(samples, [RATE])))
        check(chunks, samples)
        for chunk in chunks[1:]:
            last = [(begin, end) for begin, end in pauses if chunk.start - 5.5 < begin and end < chunk.start + 5.5]
            if last:
                assert any(begin - 0.06 <= chunk.start <= end for begin, end in last)


def test_the_middle_of_the_longest_pause() -> None:
    samples = noise(60.0, 0.1)
    samples[round(25.5 * RATE) : 26 * RATE] = 0
    samples[27 * RATE : round(28.5 * RATE)] = 0
    samples[29 * RATE : round(29.3 * RATE)] = 0
    first = next(cut([samples]))
    assert len(first.samples) / RATE == pytest.approx(27.75, abs=0.02)


def test_a_whisper_is_louder_than_a_pause() -> None:
    """A pause is found by what is around it, not by a fixed level, and an offset of the recorder is no sound."""
    for level in (1.0, 1e-3):
        samples = noise(40.0, 0.1)
        samples[28 * RATE : 29 * RATE] = noise(1.0, 0.001)
        first = next(cut([samples * np.float32(level) + np.float32(0.05)]))
        assert 28.0 < len(first.samples) / RATE < 29.0


@pytest.mark.system
@pytest.mark.parametrize("language", sorted(ASTERISK))
def test_real_speech(language: str) -> None:
    """Cut where it is quiet for a tenth of a second: 15 dB below the speech around, breaths and all."""
    samples = np.concatenate(list(read(recording(language, "demo-instruct").path)))
    chunks = list(cut(pieces(samples, [RATE])))
    check(chunks, samples)
    assert len(chunks) >= 3
    for _, chunk in pairwise(chunks):
        at = round(chunk.start * RATE)
        around, here = samples[at - 3 * RATE : at + 3 * RATE], samples[at - RATE // 20 : at + RATE // 20]
        assert np.sqrt(np.mean(here**2)) < 0.18 * np.sqrt(np.mean(around**2))
        assert not is_silent(chunk.samples)


@pytest.mark.parametrize("level", [0.0, 1e-5, 0.1])
def test_silence_and_steady_noise(level: float) -> None:
    samples = noise(95.0, level)
    chunks = list(cut(pieces(samples, [RATE])))
    check(chunks, samples)
    assert len(chunks) == 4


def test_only_one_piece_is_held() -> None:
    """An hour goes through, and what is given out does not keep the block that it was in."""
    taken = 0

    def blocks() -> Iterator[Array]:
        nonlocal taken
        for _ in range(3600):
            taken += 1
            yield np.zeros(RATE, np.float32)

    for chunk in cut(blocks()):
        assert taken <= chunk.start + 32
        assert chunk.samples.base is None
    assert all(chunk.samples.base is None for chunk in cut([noise(90.0, 0.1)]))


def test_bad_lengths() -> None:
    for longest, search in ((0.0, 0.0), (30.0, 31.0), (30.0, -1.0), (-5.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(UnbraidError, match="longest"):
            cut([], longest=longest, search=search)


# Silence


def test_silent() -> None:
    assert is_silent(np.zeros(0, np.float32))
    assert is_silent(np.zeros(RATE, np.float32))
    assert is_silent(np.full(RATE, 0.1, np.float32))  # an offset, not a sound
    assert is_silent(noise(5.0, 1e-5))
    assert is_silent(np.round(noise(5.0, 3e-5) * 32768) / 32768)  # the last bit of sixteen


@pytest.mark.system
@pytest.mark.parametrize("language", LANGUAGES)
def test_speech_is_not_silent(language: str) -> None:
    """Not even 30 dB too quiet, or a single word in half a minute of silence."""
    samples = recording(language).samples
    assert not is_silent(samples * 0.03)
    loudest = int(np.argmax(np.abs(samples)))
    lonely = np.zeros(30 * RATE, np.float32)
    word = samples[max(0, loudest - RATE // 10) : loudest + RATE // 10]
    lonely[-len(word) :] = 0.1 * word
    assert not is_silent(lonely)


@pytest.mark.parametrize("kind", ["hiss", "hum"])
@pytest.mark.parametrize("seconds", [1.0, 4.0, 29.0])
def test_what_is_the_same_all_the_time_is_no_speech(kind: str, seconds: float) -> None:
    assert is_steady(noises.noise(kind, seconds))
    assert not is_steady(noises.noise("music", seconds + 1.0))


def test_speech_in_noise_as_loud_as_itself_is_not_steady() -> None:
    """Syllables: bursts of harmonics, four a second, with noise of the same energy over all."""
    time = np.arange(3 * RATE) / RATE
    voice = sum(np.sin(2 * np.pi * pitch * time) for pitch in (150, 300, 600, 900)) * (np.sin(8 * np.pi * time) > 0.3)
    sound = voice + np.random.default_rng(0).normal(0.0, float(voice.std()), len(voice))
    assert not is_steady(sound.astype(np.float32) * np.float32(0.1))
    assert not is_steady(np.zeros(100, np.float32))  # too short to say
