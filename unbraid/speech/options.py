"""Transcription options: what a user asks of one recording.

The values are the same for the server, the command line and the library. Which of them a model supports, its adapter
and its listener say (`Transcriber.check`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VadOptions:
    """What counts as speech, and what is left out of a recording before a model hears it."""

    threshold: float = 0.5
    """The least probability of speech."""
    padding: float = 0.4
    """Seconds that are kept before and after speech."""
    pause: float = 2.0
    """Seconds: longer pauses are left out, but for the padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions:
    """What to do with a recording."""

    task: Task = "transcribe"
    language: str | None = None
    """A code or a name; None to detect it."""
    languages: tuple[str, ...] = ()
    """The candidates for detection; empty for all languages of the model."""
    prompt: str = ""
    """Text that could precede the recording: it hints at names, spelling and style."""
    hotwords: str = ""
    """Words that may come up: names and terms. They stand before the prompt, and are kept where it is too long."""
    timestamps: bool = False
    """Whether segments have times. The text is the same with and without."""
    words: bool = False
    """Whether words have times, too."""
    speakers: bool = False
    """Whether segments say who speaks."""
    temperature: float | None = None
    """None or 0 for the fallback sequence: 0 first, then higher temperatures for chunks that fail the thresholds. Any
    other is the only one."""
    beams: int | None = None
    """The width of the beam search at temperature 0; 1 for greedy decoding. None leaves it to the transcriber."""
    seed: int | None = None
    logprobs: bool = False
    """Whether the tokens of the text are wanted, with their logprobs."""
    vad: VadOptions | None = VadOptions()
    """What is speech, for a transcriber that has a voice activity detector; None to decode all of the recording."""

    @property
    def context(self) -> str:
        """The hotwords and the prompt, for models that are given text."""
        return " ".join(filter(None, (self.hotwords.strip(), self.prompt.strip())))
