"""Where tokens come from: llama.cpp inside the process, SGLang, vLLM and other servers, or a recording."""

from __future__ import annotations

from .base import (
    Engine,
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
)

__all__ = [
    "Engine",
    "EngineDown",
    "EngineError",
    "EngineFailed",
    "Finish",
    "Generation",
    "Piece",
    "PromptTooLong",
    "Sampling",
    "TokenLogprob",
    "Unsupported",
]
