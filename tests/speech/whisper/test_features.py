"""Spectrograms as OpenAI's Whisper and Hugging Face's transformers compute them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unbraid import UnbraidError
from unbraid.speech.audio.decode import RATE
from unbraid.speech.whisper.features import FRAMES, columns_needed, log_mel, log_mels, mel_filters

from ...support.real_speech import recording

Array = NDArray[np.float32]


def by_the_book(samples: Array, bins: int) -> NDArray[np.float64]:
    """Whisper's definition, step by step and in no hurry: all thirty seconds, each frequency by its own sum."""
    padded = np.pad(
        np.pad(samples[: 30 * RATE].astype(np.float64), (0, max(0, 30 * RATE - len(samples)))), 200, "reflect"
    )
    times = np.arange(400)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * times / 400)
    waves = np.exp(-2j * np.pi * np.outer(times, np.arange(201)) / 400)
    frames = np.stack([padded[at : at + 400] * window for at in range(0, 30 * RATE, 160)])
    logs = np.log10(np.maximum(mel_filters(bins) @ (np.abs(frames @ waves) ** 2).T, 1e-10))
    result: NDArray[np.float64] = (np.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0
    return result


@cache
def _extractor(bins: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.WhisperFeatureExtractor(feature_size=bins)


def by_transformers(samples: Array, bins: int) -> Array:
    padded = np.pad(samples[: 30 * RATE], (0, max(0, 30 * RATE - len(samples))))
    features: Array = np.asarray(_extractor(bins)._np_extract_fbank_features(padded[None], "cpu"))[0]
    return features


CASES: dict[str, Callable[[], Array]] = {
    "a sentence": lambda: recording("fr").samples,
    "a minute": lambda: recording("en", "demo-instruct").samples,
    "nothing": lambda: np.zeros(0, np.float32),
    "silence": lambda: np.zeros(RATE, np.float32),
    "one sample": lambda: np.ones(1, np.float32),
    "less than a window": lambda: np.linspace(-1, 1, 150, dtype=np.float32),
    "thirty seconds": lambda: np.tile(recording("it").samples, 3)[: 30 * RATE],
    "a little less": lambda: np.tile(recording("it").samples, 3)[: 30 * RATE - 100],
    "faint": lambda: recording("ru").samples * np.float32(1e-4),
    "noise": lambda: np.random.default_rng(3).normal(0, 0.2, 20 * RATE).astype(np.float32),
}


@pytest.mark.system
@pytest.mark.parametrize("bins", [80, 128])
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_others(case: str, bins: int) -> None:
    samples = CASES[case]()
    spectrogram = log_mel(samples, bins)
    assert spectrogram.shape == (bins, FRAMES)
    assert spectrogram.dtype == np.float32
    assert np.abs(spectrogram - by_transformers(samples, bins)).max() < 1e-5
    if bins == 80:
        assert np.abs(spectrogram - by_the_book(samples, bins)).max() < 1e-5


@given(st.integers(0, 31 * RATE), st.floats(1e-6, 1.0))
def test_frames_that_are_left_out_are_those_of_silence(count: int, level: float) -> None:
    """What is computed for a short recording is what would be for it and the silence after it."""
    samples = (level * np.sin(np.arange(count) * 0.3)).astype(np.float32)
    padded = np.pad(samples, (0, max(0, 30 * RATE - count)))
    assert np.abs(log_mel(samples) - log_mel(padded)).max() < 1e-6


@pytest.mark.system
def test_several_at_once() -> None:
    samples = [recording("en").samples, np.zeros(0, np.float32), recording("de").samples * np.float32(0.01)]
    together = log_mels(samples, 128)
    assert together.shape == (3, 128, FRAMES)
    for one, spectrogram in zip(samples, together, strict=True):
        assert np.array_equal(spectrogram, log_mel(one, 128))
    assert log_mels([], 80).shape == (0, 80, FRAMES)


@pytest.mark.parametrize(
    ("seconds", "columns"), [(0, 1500), (12, 1500), (12.1, 2000), (17, 2000), (22, 2500), (26.9, 3000), (31, 3000)]
)
def test_columns_that_the_encoder_needs(seconds: float, columns: int) -> None:
    """The recording and 3 s more, 15 s at least."""
    assert columns_needed(np.zeros(round(seconds * RATE), np.float32)) == columns


def test_bad_arguments() -> None:
    with pytest.raises(UnbraidError, match="one row"):
        log_mel(np.zeros((2, RATE), np.float32))
    with pytest.raises(UnbraidError, match="80 or 128"):
        log_mel(np.zeros(RATE, np.float32), 0)
