"""Which engine runs a model that listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .moonshine.files import KNOWN_MOONSHINE

if TYPE_CHECKING:
    from .listening import Listener

ListenerKind = Literal["embedded", "vllm-local", "vllm", "sglang", "openai"]
"""Inside this process on ONNX Runtime, or on vLLM; or a server elsewhere: the last three."""


def load_listener(model: str, *, threads: int | None = None) -> Listener:
    """A model that listens, inside this process: a Whisper, if it is not known to be something else."""
    if model in KNOWN_MOONSHINE:
        from .moonshine.listener import MoonshineEngine

        return MoonshineEngine(model, threads=threads)
    from .whisper.listener import WhisperEngine

    return WhisperEngine(model, threads=threads)
