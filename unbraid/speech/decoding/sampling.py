"""An output of a model that listens, while it is written: the choice among what its family's rules leave.

A model reads a token for each of its rows, and says what may come next in each. An output has one row, or several where
several beginnings of it are followed at once (`beams`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...constraints.dialects.token_sets import TokenSets
from ...engines.base import TokenLogprob
from .alignment import Attention

Logits = NDArray[np.float32]
Logprobs = NDArray[np.float64]

_REPEATS = 4
_LOOP = 40  # tokens that a repetition must have to be no figure of speech
_LONGEST_PERIOD = 32


class Rules(Protocol):
    """What a family of models may write."""

    @property
    def end(self) -> int:
        """The token that ends an output."""
        ...

    @property
    def silence(self) -> int | None:
        """The token that says, where an output begins, that nobody speaks."""
        ...

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        """Forbid what may not follow `written`, which is the output after its prefix."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What comes of a step of the model."""

    said: tuple[TokenLogprob, ...]
    """The tokens that are certain now."""
    rows: tuple[int, ...] = ()
    """Those that go on, by their place among the output's rows; one may come several times. None once it is over."""
    tokens: tuple[int, ...] = ()
    """With which each of them does."""


@dataclass
class Writing:
    """One output while it is written: what comes next, and whether it goes on."""

    rules: Rules
    prefix: TokenSets
    timestamps: bool
    temperature: float
    limit: int
    chance: np.random.Generator
    begun: list[int] = field(default_factory=list)
    """The tokens of the prefix."""
    written: list[int] = field(default_factory=list)
    """Those after it."""
    looks: list[Attention] = field(default_factory=list, repr=False)
    """Where the model looked for each token, if that is told."""
    no_speech: float | None = None
    choices: dict[int, float] = field(default_factory=dict)

    def step(self, logits: Logits, looks: NDArray[np.float32] | None = None) -> Step:
        """What comes next, by the logits (rows, vocabulary) of the rows that the last step let go on.

        looks: where the model looked for them: (rows, heads, frames).
        """
        said = self.next(logits[0])
        if looks is not None:
            self.looks.append(looks[0])
        return Step((said,)) if self.reason is not None else Step((said,), (0,), (said.token,))

    def next(self, logits: Logits) -> TokenLogprob:
        """The next token."""
        self.note_silence(logits)
        allowed = self.prefix.allowed(self.begun)
        if allowed is not None:
            token, logprob = self._of(logits, sorted(allowed))
            self.begun.append(token)
        else:
            logits = logits.copy()
            self.rules.apply(logits, self.written, self.timestamps)
            token, logprob = self._chosen(logits)
            self.written.append(token)
        return TokenLogprob(token, b"", logprob)

    def note_silence(self, logits: Logits) -> None:
        """Set `no_speech`, by the first step."""
        if self.no_speech is None and self.rules.silence is not None:
            self.no_speech = float(np.exp(logprobs_of(logits)[self.rules.silence]))

    @property
    def in_prefix(self) -> bool:
        """Whether what comes next is of what it has to begin with."""
        return self.prefix.allowed(self.begun) is not None

    def _of(self, logits: Logits, allowed: list[int]) -> tuple[int, float]:
        """The likeliest of a few, whatever the temperature is."""
        if len(allowed) == 1:
            return allowed[0], 0.0
        logprobs = logprobs_of(logits[allowed])
        if not self.choices:
            self.choices = dict(zip(allowed, map(float, np.exp(logprobs)), strict=True))
        best = int(logprobs.argmax())
        return allowed[best], float(logprobs[best])

    def _chosen(self, logits: Logits) -> tuple[int, float]:
        if self.temperature <= 0:
            token = int(logits.argmax())
        else:
            likely = np.exp(logprobs_of(logits / self.temperature))
            token = int(self.chance.choice(len(likely), p=likely / likely.sum()))
        return token, float(logprobs_of(logits)[token])

    @property
    def reason(self) -> str | None:
        """Why the output is over; None if it is not."""
        if self.written and self.written[-1] == self.rules.end:
            return "stop"
        if len(self.begun) + len(self.written) >= self.limit:
            return "length"
        return "loop" if loops(self.written) else None


def loops(tokens: Sequence[int]) -> bool:
    """Whether the end of an output is one phrase over and over."""
    if len(tokens) < _LOOP:
        return False
    for period in range(1, _LONGEST_PERIOD + 1):
        size = max(period * _REPEATS, -(-_LOOP // period) * period)
        end = tokens[-size:]
        if len(end) == size and all(end[at] == end[at - period] for at in range(period, size)):
            return True
    return False


def logprobs_of(logits: Logits) -> Logprobs:
    shifted = logits.astype(np.float64) - logits.max()
    logprobs: Logprobs = shifted - np.log(np.exp(shifted).sum())
    return logprobs
