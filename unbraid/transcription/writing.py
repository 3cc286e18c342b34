"""An output of a model that listens, while it is written: the choice among what its family's rules leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..constraints.token_sets import TokenSets
from ..engines.base import TokenLogprob

Logits = NDArray[np.float32]

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
    no_speech: float | None = None
    choices: dict[int, float] = field(default_factory=dict)

    def next(self, logits: Logits) -> TokenLogprob:
        """The next token."""
        if self.no_speech is None and self.rules.silence is not None:
            self.no_speech = float(_softmax(logits)[self.rules.silence])
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

    def _of(self, logits: Logits, allowed: list[int]) -> tuple[int, float]:
        """The likeliest of a few, whatever the temperature is."""
        if len(allowed) == 1:
            return allowed[0], 0.0
        likely = _softmax(logits[allowed])
        if not self.choices:
            self.choices = dict(zip(allowed, map(float, likely), strict=True))
        best = int(likely.argmax())
        return allowed[best], float(np.log(likely[best]))

    def _chosen(self, logits: Logits) -> tuple[int, float]:
        likely = _softmax(logits)
        if self.temperature <= 0:
            token = int(logits.argmax())
        else:
            token = int(self.chance.choice(len(likely), p=_softmax(logits / self.temperature)))
        return token, float(np.log(max(likely[token], 1e-30)))

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


def _softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    exponents = np.exp(shifted)
    likely: NDArray[np.float64] = exponents / exponents.sum()
    return likely
