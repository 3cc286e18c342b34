"""What comes of a recording: segments with their times, and the text as it arrives."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from .words import Word


@dataclass(frozen=True, slots=True)
class Segment:
    """What was said between two times."""

    start: float
    """Seconds from the beginning of the recording."""
    end: float
    text: str
    language: str | None
    tokens: tuple[int, ...] = field(default=(), repr=False)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    """Of the chunk that it stands in."""
    no_speech_prob: float | None = None
    words: tuple[Word, ...] = field(default=(), repr=False)
    """Its words, where they were asked for; it then lasts from the first to the last of them."""

    @property
    def compression_ratio(self) -> float:
        """How much shorter the text can be written; above 2.4 it mostly repeats itself."""
        return compression_ratio(self.text)


@dataclass(frozen=True, slots=True)
class Detected:
    """The language of the recording is known."""

    language: str | None
    """None where the model did not say it."""
    probability: float | None


@dataclass(frozen=True, slots=True)
class Delta:
    """The next of the text."""

    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    seconds: float
    """Of the recording, from its beginning on."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """All of it. The last thing that is said of a recording."""

    text: str
    language: str | None
    language_probability: float | None
    duration: float
    segments: tuple[Segment, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    warnings: tuple[str, ...] = ()


TranscriptEvent = Detected | Delta | Segment | Progress | Transcript


def compression_ratio(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
