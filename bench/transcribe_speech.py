"""What `transcribe.py` lets be transcribed: real recordings with what is said in them."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from tests.support.real_speech import ASTERISK, RATE, Recording, recording

LANGUAGES = tuple(ASTERISK)
_SHORT = ("demo-abouttotry", "demo-nogo", "demo-thanks")
_LONG = ("jfk", "demo-congrats", "demo-instruct", "demo-abouttotry", "demo-nogo", "demo-thanks")
_PAUSE = 0.5  # seconds between recordings that are joined


def sentences() -> list[Recording]:
    """A chunk each, of 11 to 17 s, in five languages and one of them twice."""
    return [recording("en", "jfk"), *(recording(language) for language in LANGUAGES)]


def short(*, few: bool) -> list[Recording]:
    """Recordings of less than a chunk, in five languages; all have transcripts."""
    found = [recording(language, name) for name in _SHORT[: 1 if few else None] for language in LANGUAGES]
    return [one for one in [recording("en", "jfk"), *found] if one.transcript]


def long(folder: Path) -> Recording:
    """Two minutes of English and more, joined and written to `folder`."""
    parts = [recording("en", name) for name in _LONG]
    pause = np.zeros(round(_PAUSE * RATE), np.float32)
    samples = np.concatenate([piece for part in parts for piece in (part.samples, pause)])
    path = folder / "long.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.rint(samples * 32768).astype("<i2").tobytes())
    return Recording(path, "en", " ".join(part.transcript or "" for part in parts))
