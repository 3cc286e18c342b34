"""No engine, for a server that only tokenizes and parses for others (`--tokens-only`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..templates.sources import TokenizerFiles, load_tokenizer
from .base import EngineOptions, Finish, Generation, Load, Piece, Unsupported
from .tokenizers import vocabulary_of


class NoEngine:
    """An engine that refuses all requests."""

    def __init__(self, model: str, vocabulary: Vocabulary | None, context: int | None) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.context = context
        self.load = Load()

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        raise Unsupported("this server has no engine (--tokens-only): it renders, derenders, parses and tokenizes")
        yield  # makes this a generator

    async def check(self) -> None:
        """Always able to tokenize and parse."""

    async def close(self) -> None:
        """Nothing to free."""


def load(options: EngineOptions) -> tuple[NoEngine, TokenizerFiles]:
    """From the settings of the server."""
    source = options.tokenizer or options.model
    if source is None:
        raise UnbraidError("--tokens-only needs --model: a folder with the model's tokenizer, or ORG/REPO on the hub")
    files = load_tokenizer(source)
    return NoEngine(options.model or source, vocabulary_of(files), options.context), files
