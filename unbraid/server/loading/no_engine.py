"""No engine: a server that tokenizes and parses for others, and generates nothing itself (`--tokens-only`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ...core.vocabulary import Vocabulary
from ...engines import Finish, Generation, Load, Piece, Unsupported


class NoEngine:
    """Stands where an engine stands."""

    def __init__(self, model: str, vocabulary: Vocabulary | None, context: int | None) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.context = context
        self.load = Load()

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        raise Unsupported("this server has no engine (--tokens-only): it renders, derenders, parses and tokenizes")
        yield  # what makes it a generator

    async def check(self) -> None:
        """It can always do what it does."""

    async def close(self) -> None:
        """There is nothing to free."""
