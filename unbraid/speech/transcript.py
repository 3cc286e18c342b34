"""Transcripts: the events of a transcription as it proceeds, and the result."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from ..engines.base import TokenLogprob


@dataclass(frozen=True, slots=True)
class Word:
    """A word, with the space and the punctuation around it; or a piece of one."""

    text: str
    start: float
    """Seconds."""
    end: float
    probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Segment:
    """The text between two times."""

    start: float
    """Seconds from the beginning of the recording."""
    end: float
    text: str
    language: str | None
    tokens: tuple[int, ...] = field(default=(), repr=False)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    """The average of the whole chunk."""
    no_speech_prob: float | None = None
    words: tuple[Word, ...] = field(default=(), repr=False)
    """Where words were asked for. The segment then lasts from the first to the last of them."""
    speaker: str | None = None
    """Who says it, where that was asked for: `A`, `B`, …"""

    @property
    def compression_ratio(self) -> float:
        """The size of the text relative to its compressed size; above 2.4 it is mostly repetition."""
        return compression_ratio(self.text)


@dataclass(frozen=True, slots=True)
class Detected:
    """The language of the recording."""

    language: str | None
    """None if the model did not say it."""
    probability: float | None


@dataclass(frozen=True, slots=True)
class Delta:
    """The next part of the text."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = field(default=(), repr=False, compare=False)
    """The tokens that spell it; empty where the listener gives text and no tokens."""


@dataclass(frozen=True, slots=True)
class TranscriptProgress:
    """How far the transcription is."""

    seconds: float
    """From the start of the recording."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole result: the last event of a transcription."""

    text: str
    language: str | None
    language_probability: float | None
    duration: float
    segments: tuple[Segment, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    warnings: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = field(default=(), repr=False)
    """The tokens of the text, where they were asked for."""


TranscriptEvent = Detected | Delta | Segment | TranscriptProgress | Transcript


def compression_ratio(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
