"""Transcription options: what a user asks of one recording.

The values are the same for the server, the command line and the library. Which of them a model supports, its adapter
and its listener say (`Transcriber.check`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Task = Literal["transcribe", "translate"]


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
    timestamps: bool = False
    """Whether segments have times."""
    words: bool = False
    """Whether words have times."""
    temperature: float | None = None
    """None for the fallback sequence: 0 first, then higher temperatures for chunks that fail the thresholds."""
    beams: int = 1
    """The width of the beam search at temperature 0; 1 for greedy decoding."""
    seed: int | None = None
