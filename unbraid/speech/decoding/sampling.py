"""Sampling: one token after the other, the likeliest at temperature 0 (greedy decoding), else drawn at random.

While the output is in its prefix, the choice is among the tokens that the prefix allows there, and always greedy: the
language, for instance. After the prefix, the family's rules forbid tokens first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...constraints.printers.token_sets import TokenSets
from ...engines.base import TokenLogprob
from ..listening import EndReason
from .alignment import Attention
from .base import Logits, Step, TokenRules, log_softmax
from .loop_guard import is_looping

_ANY = -1  # stands for the token that is not chosen yet


@dataclass
class SamplingDecoding:
    """An output with one row; see `Decoding`."""

    rules: TokenRules
    prefix: TokenSets
    timestamps: bool
    temperature: float
    limit: int
    """The most tokens, with those of the prefix."""
    rng: np.random.Generator
    goes_on: bool = False
    """Whether the prefix ends with text: what may not be written first may follow it."""
    begun: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    attention: list[Attention] = field(default_factory=list, repr=False)
    no_speech: float | None = None
    choices: dict[int, float] = field(default_factory=dict)

    @property
    def forced(self) -> int:
        """How many tokens follow the next one without a choice, so that a step is left after them."""
        if not self.in_prefix:
            return 0
        room = self.limit - len(self.begun) - 2
        return max(0, min(room, len(self.prefix.forced([*self.begun, _ANY]))))

    def step(
        self,
        logits: Logits,
        attention: NDArray[np.float32] | None = None,
        before: Sequence[NDArray[np.float32]] = (),
        forced: int = 0,
    ) -> Step:
        token = self.next(logits[0])
        if attention is not None:
            self.attention += [one[0] for one in (*before, attention)]
        if self.reason is not None:
            return Step((token,))
        following = tuple(self.prefix.forced(self.begun)[:forced])
        self.begun += following
        emitted = (token, *(TokenLogprob(one, b"", 0.0) for one in following))
        return Step(emitted, (0,), (token.token,), following)

    def next(self, logits: Logits) -> TokenLogprob:
        """The next token, by the logits of the one row."""
        self.note_silence(logits)
        allowed = self.prefix.allowed(self.begun)
        if allowed is not None:
            token, logprob = self._choose_among(logits, sorted(allowed))
            self.begun.append(token)
        else:
            logits = logits.copy()
            self.rules.apply(logits, [*self.begun, *self.written] if self.goes_on else self.written, self.timestamps)
            token, logprob = self._sample(logits)
            self.written.append(token)
        return TokenLogprob(token, b"", logprob)

    def note_silence(self, logits: Logits) -> None:
        """Set `no_speech`, by the logits of the first step. Where the prefix was read before, there is none."""
        if self.no_speech is None and self.rules.silence is not None and not self.begun and not self.written:
            self.no_speech = float(np.exp(log_softmax(logits)[self.rules.silence]))

    @property
    def in_prefix(self) -> bool:
        """Whether the next token is one of the prefix."""
        return self.prefix.allowed(self.begun) is not None

    def _choose_among(self, logits: Logits, allowed: list[int]) -> tuple[int, float]:
        """The likeliest of a few tokens, whatever the temperature is. Its logprob is relative to these."""
        if len(allowed) == 1:
            return allowed[0], 0.0
        logprobs = log_softmax(logits[allowed])
        if not self.choices:
            self.choices = dict(zip(allowed, map(float, np.exp(logprobs)), strict=True))
        best = int(logprobs.argmax())
        return allowed[best], float(logprobs[best])

    def _sample(self, logits: Logits) -> tuple[int, float]:
        """A token at the temperature, and its logprob without it."""
        if self.temperature <= 0:
            token = int(logits.argmax())
        else:
            probabilities = np.exp(log_softmax(logits / self.temperature))
            token = int(self.rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
        return token, float(log_softmax(logits)[token])

    @property
    def reason(self) -> EndReason | None:
        if self.written and self.written[-1] == self.rules.end:
            return "stop"
        if len(self.begun) + len(self.written) >= self.limit:
            return "length"
        return "loop" if is_looping(self.written) else None
