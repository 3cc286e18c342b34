"""The tokens of an output that come from elsewhere, up to where it begins to repeat itself."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...constraints.dialects.token_sets import TokenSets
from ...engines.base import Piece, TokenLogprob
from .sampling import loops


class HeardTokens:
    """prefix: what the output must begin with.
    end: the token that ends it.
    """

    def __init__(self, prefix: TokenSets, end: int) -> None:
        self.said: list[TokenLogprob] = []
        """All that have come."""
        self.loops = False
        """It began to repeat itself: it is to be aborted, and nothing more is taken."""
        self._prefix = prefix
        self._end = end
        self._written: list[int] = []

    def take(self, said: Iterable[TokenLogprob]) -> Piece:
        """The next of them, less those that come after it began to repeat itself."""
        first = len(self.said)
        for one in said:
            if self.loops:
                break
            if len(self.said) >= len(self._prefix.sets):
                self._written.append(one.token)
            self.said.append(one)
            self.loops = one.token != self._end and loops(self._written)
        taken = tuple(self.said[first:])
        return Piece(tuple(one.token for one in taken), logprobs=taken)

    @property
    def choice(self) -> dict[int, float]:
        """The first token that was one of several, and how likely it was among them."""
        several = (step for step, some in enumerate(self._prefix.sets) if len(some) > 1)
        step = next(several, len(self.said))
        return {one.token: math.exp(one.logprob) for one in self.said[step : step + 1]}
