"""Repetition loops: speech models sometimes write one phrase over and over until their context is full.

`is_looping` recognises that. `ReceivedTokens` applies it to the outputs of other engines, which do not stop by
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...constraints.printers.token_sets import TokenSets
from ...engines.base import Piece, TokenLogprob

_REPEATS = 4
_LOOP = 40  # tokens that a repetition must have: people repeat short phrases, too
_LONGEST_PERIOD = 32


def is_looping(tokens: Sequence[int]) -> bool:
    """Whether an output ends with one phrase over and over."""
    if len(tokens) < _LOOP:
        return False
    for period in range(1, _LONGEST_PERIOD + 1):
        size = max(period * _REPEATS, -(-_LOOP // period) * period)
        end = tokens[-size:]
        if len(end) == size and all(end[at] == end[at - period] for at in range(period, size)):
            return True
    return False


class ReceivedTokens:
    """The tokens of one output that another engine writes, up to where it begins to loop.

    prefix: what the output must begin with.
    end: the token that ends it.
    """

    def __init__(self, prefix: TokenSets, end: int) -> None:
        self.all: list[TokenLogprob] = []
        self.looping = False
        """The output loops: abort the request. Further tokens are ignored."""
        self._prefix = prefix
        self._end = end
        self._written: list[int] = []

    def take(self, tokens: Iterable[TokenLogprob]) -> Piece:
        """Add the next tokens. Returns them, without those after the start of a loop."""
        first = len(self.all)
        for token in tokens:
            if self.looping:
                break
            if len(self.all) >= len(self._prefix.sets):
                self._written.append(token.token)
            self.all.append(token)
            self.looping = token.token != self._end and is_looping(self._written)
        taken = tuple(self.all[first:])
        return Piece(tuple(one.token for one in taken), logprobs=taken)

    @property
    def choice(self) -> dict[int, float]:
        """The first token of the prefix that was a choice between several, with its probability among them."""
        several = (step for step, some in enumerate(self._prefix.sets) if len(some) > 1)
        step = next(several, len(self.all))
        return {one.token: math.exp(one.logprob) for one in self.all[step : step + 1]}
