"""Sounds in which nobody speaks, and recordings put together of sentences with such sounds between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unbraid.speech.audio.decode import RATE, Samples

from ..support.real_speech import Recording

KINDS = ("silence", "hiss", "hum", "music")
_SCALE = (0, 3, 5, 7, 10, 12, 15)  # semitones


def syllables(seconds: float, level: float = 0.1) -> Samples:
    """Noise that swells four times a second, as speech does: what stays the same is not decoded."""
    time = np.arange(round(seconds * RATE)) / RATE
    swell = 0.1 + 0.9 * np.sin(4 * np.pi * time) ** 8
    return (np.random.default_rng(1).uniform(-level, level, len(time)) * swell).astype(np.float32)


def noise(kind: str, seconds: float, level: float = 0.03) -> Samples:
    """A sound of about this loudness."""
    count = round(seconds * RATE)
    rng = np.random.default_rng(count)
    time = np.arange(count) / RATE
    if kind == "silence":
        return np.zeros(count, np.float32)
    if kind == "hiss":
        sound = rng.normal(0.0, 1.0, count)
    elif kind == "hum":
        tones = ((50, 1.0), (150, 0.6), (350, 0.2))
        sound = np.sum([part * np.sin(2 * np.pi * pitch * time) for pitch, part in tones], axis=0)
    else:
        sound = _music(count, rng)
    return (level * sound).astype(np.float32)


def _music(count: int, rng: np.random.Generator) -> np.ndarray:
    """Plucked notes with overtones, three a second."""
    note = np.arange(RATE) / RATE
    sound = np.zeros(count + RATE)
    for at in range(0, count, RATE // 3):
        pitch = 220 * 2 ** (rng.choice(_SCALE) / 12)
        tone = sum(np.sin(2 * np.pi * pitch * overtone * note) / overtone for overtone in range(1, 6))
        sound[at : at + RATE] += tone * np.exp(-3 * note)
    return sound[:count]


@dataclass(frozen=True)
class Said:
    """A sentence in a recording that was put together."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Collage:
    """Sentences with pauses before each, and a noise under all."""

    samples: Samples
    sentences: tuple[Said, ...]

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.sentences)

    def silent_at(self, seconds: float, *, slack: float) -> bool:
        return all(not one.start - slack <= seconds <= one.end + slack for one in self.sentences)


def collage(recordings: Sequence[Recording], pauses: Sequence[float], kind: str, level: float = 0.02) -> Collage:
    """The recordings in order, each after a pause, and the last pause after them; without the silence at their ends."""
    parts: list[Samples] = []
    sentences: list[Said] = []
    count = 0
    for one, pause in zip([*recordings, None], pauses, strict=True):
        parts.append(np.zeros(round(pause * RATE), np.float32))
        count += len(parts[-1])
        if one is not None:
            sound = _trimmed(one.samples)
            sentences.append(Said(one.transcript or "", count / RATE, (count + len(sound)) / RATE))
            parts.append(sound)
            count += len(sound)
    samples = np.concatenate(parts)
    return Collage(np.clip(samples + noise(kind, len(samples) / RATE, level), -1, 1), tuple(sentences))


def _trimmed(samples: Samples) -> Samples:
    energies = np.convolve(samples.astype(np.float64) ** 2, np.full(400, 1 / 400), "same")
    loud = np.flatnonzero(energies > 1e-5)
    return samples[loud[0] : loud[-1] + 1]
