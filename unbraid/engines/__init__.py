"""Engines: what generates tokens. llama.cpp and vLLM in this process, servers over HTTP, or a recording.

    table.py           all engines: the flag, grammar syntax and place of each
    base.py            the protocol, its values and its errors
    llama_cpp/         llama.cpp, in this process and as a server
    vllm/              vLLM, in this process and as a server
    sglang.py          SGLang's server
    openai.py          any server with OpenAI's completions
    replay.py          scripted or recorded outputs
    recording.py       outputs written to a file, for `replay`
    no_engine.py       none, for a server that only tokenizes and parses
    server.py          what all engines that are servers share
    http/              the HTTP client of these engines
    routing/           several engines as one
    reader.py          an engine's chunks to pieces, cut at stop texts
    tokenizers.py      the tokenizer of an engine's model, as far as a server tells it
    jobs.py            work in a thread, results in an event loop

The public names are here. Import an engine from its own module, since each needs packages of its own.
"""

from __future__ import annotations

from .base import (
    Audio,
    Engine,
    EngineBusy,
    EngineDown,
    EngineError,
    EngineFailed,
    EngineTimeout,
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
    "EngineTimeout",
    "Finish",
    "Generation",
    "Load",
    "Piece",
    "PromptTooLong",
    "Sampling",
    "TokenLogprob",
    "Unsupported",
]
