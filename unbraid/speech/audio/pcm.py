"""Sound as bytes: PCM of 16 bits and G.711 as they come over a line, to samples of 16 kHz, and back; and WAV files.

A `SoundReader` takes bytes cut anywhere, in the middle of a sample too. Law: how they are cut makes no difference to
the samples. So the filter that changes the rate is computed sample by sample, each from the same inputs in the same
order. The way back (`write_sound`) is for what a client is sent, and `as_wav` for servers that take files.
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from ..errors import BadAudio
from .decode import RATE, Samples

_FULL = 32768.0
_TELEPHONE = 8_000
_RATES = (8_000, 16_000, 24_000, 32_000, 44_100, 48_000)
_REACH = 16  # zero crossings of the filter on each side
_BAND = 0.92  # of the lower half rate that is kept
_BIAS, _CLIP = 0x84, 32635  # of µ-law, by ITU-T G.711


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """How sound is written. G.711 has 8 kHz."""

    kind: str = "pcm"
    """`pcm` (16 bits, little-endian, mono), `pcmu` (µ-law) or `pcma` (A-law)."""
    rate: int = 24_000

    def __post_init__(self) -> None:
        if self.kind not in ("pcm", "pcmu", "pcma"):
            raise BadAudio(f"sound is pcm, pcmu or pcma here, not {self.kind!r:.40}")
        if self.kind != "pcm" and self.rate != _TELEPHONE:
            raise BadAudio(f"{self.kind} has {_TELEPHONE} samples a second, not {self.rate!r:.40}")
        if self.rate not in _RATES:
            rates = ", ".join(map(str, _RATES))
            raise BadAudio(f"sound has one of {rates} samples a second, not {self.rate!r:.40}")

    @property
    def width(self) -> int:
        """The bytes of a sample."""
        return 2 if self.kind == "pcm" else 1

    def seconds(self, size: int) -> float:
        """How long so many bytes last."""
        return size / self.width / self.rate


class SoundReader:
    """Reads one stream of sound."""

    def __init__(self, format: SoundFormat) -> None:
        self.format = format
        self._half = b""
        """The first byte of a sample whose second has not come."""
        self._resampler = None if format.rate == RATE else Resampler(format.rate, RATE)

    def feed(self, data: bytes) -> Samples:
        """The samples of 16 kHz that these bytes complete."""
        data = self._half + data
        whole = len(data) - len(data) % self.format.width
        data, self._half = data[:whole], data[whole:]
        samples = _read(data, self.format.kind)
        return samples if self._resampler is None else self._resampler.feed(samples)

    def finish(self) -> Samples:
        """The rest, where the filter has waited for more. What is fed next is another stream."""
        self._half = b""
        return np.zeros(0, np.float32) if self._resampler is None else self._resampler.finish()


class Resampler:
    """Changes the rate of a stream, by a windowed sinc."""

    def __init__(self, rate: int, target: int) -> None:
        ratio = Fraction(target, rate)
        self._up, self._down = ratio.numerator, ratio.denominator
        self._filters = _filters(self._up, self._down)
        self._taps = self._filters.shape[1]
        self._begin()

    def _begin(self) -> None:
        self._held: Samples = np.zeros(self._taps // 2, np.float32)
        """The inputs that outputs to come are made of, from input `_first` on; before the stream there was silence."""
        self._first = -(self._taps // 2)
        self._made = 0
        self._given = 0

    def feed(self, samples: Samples) -> Samples:
        self._given += len(samples)
        held = np.concatenate([self._held, samples])
        # Output n stands at input n * down / up, and needs the taps around it.
        end = self._first + len(held) - self._taps // 2
        count = max(0, -(-(end * self._up) // self._down) - self._made)
        numbers = np.arange(self._made, self._made + count, dtype=np.int64)
        places, phases = np.divmod(numbers * self._down, self._up)
        firsts = places - self._taps // 2 + 1 - self._first
        outputs = np.zeros(count, np.float32)
        for tap in range(self._taps):  # in this order for every sample, however the stream is cut
            outputs += held[firsts + tap] * self._filters[phases, tap]
        self._made += count
        following = self._made * self._down // self._up - self._taps // 2 + 1
        drop = max(0, following - self._first)
        self._held, self._first = held[drop:], self._first + drop
        return outputs

    def finish(self) -> Samples:
        inputs, outputs = self._given, self._made
        rest = self.feed(np.zeros(self._taps, np.float32))
        self._begin()
        return rest[: max(0, -(-inputs * self._up // self._down) - outputs)]


@cache
def _filters(up: int, down: int) -> Samples:
    """The taps for each phase: (up, taps)."""
    band = _BAND * min(1.0, up / down)
    half = int(np.ceil(_REACH / band))
    places = np.arange(-half + 1, half + 1)[None, :] - np.arange(up)[:, None] / up
    taps = band * np.sinc(band * places) * np.cos(np.clip(places / half, -1, 1) * np.pi / 2) ** 2
    normal: Samples = (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
    return normal


def read_pcm(data: bytes) -> Samples:
    """PCM of 16 bits as samples of the same rate."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(_FULL)


def _read(data: bytes, kind: str) -> Samples:
    if kind == "pcm":
        return read_pcm(data)
    return _table(kind)[np.frombuffer(data, np.uint8)]


@cache
def _table(kind: str) -> Samples:
    """What each byte of G.711 stands for."""
    codes = np.arange(256, dtype=np.int32)
    if kind == "pcmu":
        codes = ~codes & 0xFF
        values = (((codes & 0x0F) << 3) + _BIAS) << ((codes & 0x70) >> 4)
        values = np.where(codes & 0x80, _BIAS - values, values - _BIAS)
    else:
        codes = codes ^ 0x55
        segment = (codes & 0x70) >> 4
        values = ((codes & 0x0F) << 4) + 8
        values = np.where(segment >= 1, (values + 0x100) << np.maximum(segment - 1, 0), values)
        values = np.where(codes & 0x80, values, -values)
    samples: Samples = values.astype(np.float32) / np.float32(_FULL)
    return samples


def write_sound(samples: Samples, kind: str) -> bytes:
    """Samples of the format's own rate as bytes of it. G.711 takes the value that is nearest."""
    whole = np.clip(np.rint(samples * _FULL), -_FULL, _FULL - 1).astype(np.int32)
    if kind == "pcm":
        return bytes(whole.astype("<i2").tobytes())
    values = np.rint(_table(kind) * _FULL).astype(np.int32)
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    at = np.clip(np.searchsorted(ranked, np.clip(whole, -_CLIP, _CLIP)), 1, 255)
    nearer = np.where(whole - ranked[at - 1] <= ranked[at] - whole, at - 1, at)
    return bytes(order[nearer].astype(np.uint8).tobytes())


def pcm_bytes(samples: Samples) -> bytes:
    """Samples as PCM of 16 bits."""
    return write_sound(samples, "pcm")


def as_wav(samples: Samples) -> bytes:
    """Mono, 16 bits."""
    return wav_of_pcm(pcm_bytes(samples))


def wav_of_pcm(data: bytes) -> bytes:
    """PCM of 16 bits, mono, as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(RATE)
        wav.writeframes(data)
    return file.getvalue()
