"""The decoding protocol: the choice of tokens for one output, step by step.

A model reads one token for each of its rows and gives the logits of what may follow. A decoding takes these logits and
says which tokens come next. An output has one row (`sampling`) or several, one for each beam (`beams`). The model
family's rules (`TokenRules`) forbid tokens before one is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...engines.base import TokenLogprob
from ..listening import EndReason
from .alignment import Attention

Logits = NDArray[np.float32]
Logprobs = NDArray[np.float64]


class TokenRules(Protocol):
    """Which tokens a family of models may write."""

    @property
    def end(self) -> int:
        """The token that ends an output."""
        ...

    @property
    def silence(self) -> int | None:
        """The token whose probability, at the start of an output, is that of no speech."""
        ...

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        """Set the logits to minus infinity of tokens that may not follow `written`, the output after its prefix."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from one step of the model."""

    emitted: tuple[TokenLogprob, ...]
    """The tokens that are final now."""
    rows: tuple[int, ...] = ()
    """The rows that continue, as indices into the output's rows; one may come several times. None at the end."""
    tokens: tuple[int, ...] = ()
    """The token that each of these rows continues with."""
    forced: tuple[int, ...] = ()
    """The tokens that follow it in all of them without a choice: the model reads them in the same step."""


class Decoding(Protocol):
    """One output while it is written."""

    @property
    def begun(self) -> Sequence[int]:
        """The tokens of the prefix."""
        ...

    @property
    def written(self) -> Sequence[int]:
        """The tokens after the prefix."""
        ...

    @property
    def attention(self) -> Sequence[Attention]:
        """The cross-attention at each of these tokens, if it was given."""
        ...

    @property
    def no_speech(self) -> float | None:
        """The probability that nobody speaks; known after the first step."""
        ...

    @property
    def choices(self) -> Mapping[int, float]:
        """See `ListenEnd.choices`."""
        ...

    @property
    def reason(self) -> EndReason | None:
        """Why the output has ended; None if it has not."""
        ...

    @property
    def forced(self) -> int:
        """How many tokens follow the next one without a choice."""
        ...

    def step(
        self,
        logits: Logits,
        attention: NDArray[np.float32] | None = None,
        before: Sequence[NDArray[np.float32]] = (),
        forced: int = 0,
    ) -> Step:
        """Choose what comes next.

        logits: of the rows that the last step let continue: (rows, vocabulary).
        attention: the cross-attention of these rows: (rows, heads, frames).
        before: the same at the forced tokens of the last step, for each of them.
        forced: how many tokens without a choice may be in the result: no more than `forced` says.
        """
        ...


def log_softmax(logits: Logits) -> Logprobs:
    """The logprobs of all tokens, in double precision."""
    shifted = logits.astype(np.float64) - logits.max()
    logprobs: Logprobs = shifted - np.log(np.exp(shifted).sum())
    return logprobs
