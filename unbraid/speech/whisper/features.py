"""Log-mel spectrograms, the input of Whisper, as OpenAI's own code computes them.

A column is 25 ms of sound, one every 10 ms: 3,000 columns are thirty seconds, whatever the length of the recording. A
row is a mel band: 80 of them, or 128 from large-v3 on. Only numpy is needed. Of a short recording, the first
`columns_needed` are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...errors import UnbraidError
from ..audio.decode import RATE

FRAMES = 3_000
"""Columns of a spectrogram: thirty seconds."""

_FEWEST = 1_500  # columns; with fewer, short recordings lose words
_AFTER = 300  # columns of silence after a recording, by which the model knows that it is over
_STEP = 500  # recordings of about the same length have as many columns, and go into one batch
_AT_ONCE = 500  # frames whose spectrum is computed at once; 30 s would take 30 MB
_FFT = 400
_HOP = 160
_LENGTH = FRAMES * _HOP
_LEAST = 1e-10  # the floor of energies
_RANGE = 8.0  # the dynamic range, in powers of ten below the loudest
_LINEAR = 1_000.0  # Hz up to which the mel scale is linear; it is logarithmic above
_MELS_PER_HZ = 3 / 200
_MELS_PER_E = 27 / np.log(6.4)


def columns_needed(samples: NDArray[np.float32]) -> int:
    """How many columns the encoder reads of a recording: those of its sound and 3 s more, and 15 s at least, in steps
    of 5 s. It was trained with thirty seconds, but hears the same in these, in less time."""
    count = max(_FEWEST, len(samples) // _HOP + _AFTER)
    return min(FRAMES, -(-count // _STEP) * _STEP)


def log_mel(samples: NDArray[np.float32], bins: int = 80) -> NDArray[np.float32]:
    """The spectrogram of the first thirty seconds of `samples` at 16 kHz, with silence after their end: an array of
    (`bins`, 3000)."""
    spectrogram = np.empty((bins, FRAMES), np.float32)
    _log_mel(samples, spectrogram)
    return spectrogram


def log_mels(samples: Sequence[NDArray[np.float32]], bins: int = 80) -> NDArray[np.float32]:
    """The spectrograms of several recordings, each on its own scale: an array of (recordings, `bins`, 3000)."""
    spectrograms = np.empty((len(samples), bins, FRAMES), np.float32)
    for one, spectrogram in zip(samples, spectrograms, strict=True):
        _log_mel(one, spectrogram)
    return spectrograms


def _log_mel(samples: NDArray[np.float32], spectrogram: NDArray[np.float32]) -> None:
    if samples.ndim != 1:
        raise UnbraidError(f"a recording is one row of samples, not an array of shape {samples.shape}")
    samples = samples[:_LENGTH]
    # Frames in the silence after the recording are not computed. The others are centred, so they need padding: the
    # recording is reflected at its start, and followed by silence or, if it is full, reflected at its end.
    frames = min(FRAMES, -(-(len(samples) + _FFT // 2) // _HOP))
    silence = min(_LENGTH - len(samples), _FFT)
    padded = np.pad(np.pad(samples.astype(np.float64), (0, silence)), _FFT // 2, mode="reflect")
    windows = sliding_window_view(padded, _FFT)[::_HOP][:frames]
    mels = np.empty((len(spectrogram), frames))
    for start in range(0, frames, _AT_ONCE):
        spectrum = np.fft.rfft(windows[start : start + _AT_ONCE] * _window(), axis=1)
        energies = np.ascontiguousarray((spectrum.real**2 + spectrum.imag**2).T)
        for (first, weights), band in zip(_bands(len(spectrogram)), mels, strict=True):
            np.matmul(weights, energies[first : first + len(weights)], out=band[start : start + _AT_ONCE])
    logs = np.log10(np.maximum(mels, _LEAST))
    least = max(float(logs.max(initial=np.log10(_LEAST))) - _RANGE, np.log10(_LEAST))
    spectrogram[:, :frames] = (np.maximum(logs, least) + 4.0) / 4.0
    spectrogram[:, frames:] = (least + 4.0) / 4.0


@cache
def _window() -> NDArray[np.float64]:
    """A periodic Hann window."""
    return np.hanning(_FFT + 1)[:-1].astype(np.float64)


@cache
def mel_filters(bins: int) -> NDArray[np.float64]:
    """The mel filter bank: an array of (`bins`, 201).

    Triangles of area one on Slaney's mel scale, from 0 to 8 kHz, as in librosa.
    """
    if bins < 1:
        raise UnbraidError(f"a spectrogram has bands, 80 or 128 in Whisper, not {bins}")
    frequencies = np.fft.rfftfreq(_FFT, 1 / RATE)
    corners = _hertz(np.linspace(0.0, _mels(RATE / 2), bins + 2))
    below, middle, above = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising = (frequencies - below) / (middle - below)
    falling = (above - frequencies) / (above - middle)
    triangles: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (above - below))
    return triangles


@cache
def _bands(bins: int) -> list[tuple[int, NDArray[np.float64]]]:
    """The filter bank without its zeros: the first frequency and the weights of each band. Ten times as fast as the
    whole matrix, which is nearly all zeros."""
    bands = []
    for weights in mel_filters(bins):
        (places,) = weights.nonzero()
        first, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
        bands.append((first, weights[first:end]))
    return bands


def _mels(hertz: float) -> float:
    return float(_LINEAR * _MELS_PER_HZ + np.log(hertz / _LINEAR) * _MELS_PER_E)  # above the linear part


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    edge = _LINEAR * _MELS_PER_HZ
    return np.where(mels < edge, mels / _MELS_PER_HZ, _LINEAR * np.exp((mels - edge) / _MELS_PER_E))
