"""Which engine runs a model that listens, by the model's name."""

from __future__ import annotations

from ..models.moonshine_files import KNOWN_MOONSHINE
from ..transcription.hearing import Listener


def load_listener(model: str, *, threads: int | None = None) -> Listener:
    """A model that listens, inside this process: a Whisper, if it is not known to be something else."""
    if model in KNOWN_MOONSHINE:
        from .moonshine import MoonshineEngine

        return MoonshineEngine(model, threads=threads)
    from .whisper import WhisperEngine

    return WhisperEngine(model, threads=threads)
