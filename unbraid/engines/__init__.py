"""Where tokens come from: llama.cpp inside the process, SGLang, vLLM and other servers, or a recording."""

from __future__ import annotations

from .base import (
    Audio,
    Engine,
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
)

__all__ = [
    "Audio",
    "Engine",
    "EngineDown",
    "EngineError",
    "EngineFailed",
    "Finish",
    "Generation",
    "Load",
    "Piece",
    "PromptTooLong",
    "Sampling",
    "TokenLogprob",
    "Unsupported",
]
