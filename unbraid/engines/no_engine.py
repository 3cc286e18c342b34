"""No engine, for a server that only tokenizes and parses for others (`--tokens-only`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..models import CATALOG
from ..templates.sources import TokenizerFiles, load_tokenizer
from .base import Engine, EngineOptions, Finish, Generation, Load, Piece, Unsupported
from .tokenizers import vocabulary_of

_LEAST_CONTEXT = 64
"""Tokens of context of a model that only tokenizes."""


class NoEngine:
    """An engine that refuses all requests."""

    def __init__(
        self, model: str, vocabulary: Vocabulary | None, context: int | None, tokenizer: Engine | None = None
    ) -> None:
        """tokenizer: the engine behind the vocabulary, if it has to be closed in the end."""
        self.model = model
        self.vocabulary = vocabulary
        self.context = context
        self.load = Load()
        self._tokenizer = tokenizer

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        raise Unsupported("this server has no engine (--tokens-only): it renders, derenders, parses and tokenizes")
        yield  # makes this a generator

    async def check(self) -> None:
        """Always able to tokenize and parse."""

    async def close(self) -> None:
        if self._tokenizer is not None:
            await self._tokenizer.close()


def load(options: EngineOptions) -> tuple[NoEngine, TokenizerFiles]:
    """From the settings of the server."""
    source = options.tokenizer or options.model
    if source is None:
        raise UnbraidError(
            "--tokens-only needs --model: a folder with the model's tokenizer, ORG/REPO on the hub, or a GGUF model"
        )
    if _is_gguf(source):
        return _from_gguf(source, options)
    files = load_tokenizer(source)
    return NoEngine(options.model or source, vocabulary_of(files), options.context), files


def _is_gguf(source: str) -> bool:
    """Whether the model is a GGUF file, by one of the names that `unbraid.models.resolve` takes."""
    if Path(source).exists():
        return source.endswith(".gguf")
    return source in CATALOG or source.endswith(".gguf") or ":" in source


def _from_gguf(source: str, options: EngineOptions) -> tuple[NoEngine, TokenizerFiles]:
    """The tokenizer in a GGUF file is llama.cpp's: the model is loaded, with room for next to nothing."""
    try:
        from .llama_cpp.embedded import EmbeddedEngine, tokenizer_files
    except ImportError as error:
        message = f"the tokenizer of a GGUF model needs llama.cpp ({error}): pip install 'unbraid[server]'"
        raise UnbraidError(message) from error
    engine = EmbeddedEngine(source, context=_LEAST_CONTEXT, parallel=1, queue=0, threads=1, gpu_layers=0)
    context = options.context or engine.gguf.context_length
    return NoEngine(engine.model, engine.vocabulary, context, engine), tokenizer_files(engine)
