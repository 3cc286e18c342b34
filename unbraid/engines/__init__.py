"""Engines: what generates tokens. llama.cpp and vLLM in this process, servers over HTTP, or a recording.

`base` has the protocol, and every other module is an engine or a part of several:

    llama_cpp/  vllm/  sglang.py  openai.py  replay/     the engines
    server.py  http.py  sse.py  refusals.py  routing.py  engines that are servers, one or several
    reader.py  stops.py  retokenize.py  jobs.py          chunks to tokens, stop texts, threads

The public names are here; an engine is imported from its own module, since each needs packages of its own.
"""

from __future__ import annotations

from .base import (
    Audio,
    Engine,
    EngineBusy,
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
    "EngineBusy",
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
