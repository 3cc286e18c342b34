"""Choosing the tokens of one output: the likeliest at temperature 0 (greedy decoding), else drawn at random.

    model      logits of the next token, for each row of the output
    decoding   SamplingDecoding.step(logits) -> NextTokens: what is final, and what each row continues with
    model      reads these tokens, and so on, until `reason` says why the output has ended

While the output is in its prefix, the choice is among the tokens that the prefix allows there, and always greedy: the
language, for instance. After the prefix, the family's rules (`TokenRules`) forbid tokens first. An output that repeats
one phrase over and over, as speech models sometimes do until their context is full, is ended (`is_looping`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...constraints.printers.token_sets import TokenSets
from ...engines.base import TokenLogprob
from ..listening import EndReason
from .alignment import Attention

Logits = NDArray[np.float32]
Logprobs = NDArray[np.float64]

_ANY = -1  # stands for the token that is not chosen yet
_REPEATS = 4
_LOOP = 40  # tokens that a repetition must have: people repeat short phrases, too
_LONGEST_PERIOD = 32
_COLUMNS = 1024


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

    def apply(self, logits: Logits, output: Sequence[int], timestamps: bool) -> None:
        """Set the logits to minus infinity of tokens that may not follow `output`, the output after its prefix."""
        ...


@dataclass(frozen=True, slots=True)
class NextTokens:
    """What follows from one step of the model."""

    emitted: tuple[TokenLogprob, ...]
    """The tokens that are final now."""
    rows: tuple[int, ...] = ()
    """The rows that continue, as indices into the output's rows; one may come several times. None at the end."""
    tokens: tuple[int, ...] = ()
    """The token that each of these rows continues with."""
    forced: tuple[int, ...] = ()
    """The tokens that follow it in all of them without a choice: the model reads them in the same step."""


@dataclass
class SamplingDecoding:
    """One output while it is written, with one row. `beams.BeamDecoding` has several."""

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
    """The tokens of the prefix."""
    written: list[int] = field(default_factory=list)
    """The tokens after the prefix."""
    attention: list[Attention] = field(default_factory=list, repr=False)
    """The cross-attention at each of all these tokens, if it was given."""
    no_speech: float | None = None
    """The probability that nobody speaks; known after the first step."""
    choices: dict[int, float] = field(default_factory=dict)
    """See `ListenEnd.choices`."""

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
    ) -> NextTokens:
        """Choose what comes next.

        logits: of the rows that the last step let continue: (rows, vocabulary).
        attention: the cross-attention of these rows: (rows, heads, frames).
        before: the same at the forced tokens of the last step, for each of them.
        forced: how many tokens without a choice may be in the result: no more than `forced` says.
        """
        token = self.next(logits[0])
        if attention is not None:
            self.attention += [one[0] for one in (*before, attention)]
        if self.reason is not None:
            return NextTokens((token,))
        following = tuple(self.prefix.forced(self.begun)[:forced])
        self.begun += following
        emitted = (token, *(TokenLogprob(one, b"", 0.0) for one in following))
        return NextTokens(emitted, (0,), (token.token,), following)

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
            self.no_speech = float(np.exp(float(logits[self.rules.silence]) - log_total(logits)))

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
        return token, float(logits[token]) - log_total(logits)

    @property
    def reason(self) -> EndReason | None:
        """Why the output has ended; None if it has not."""
        if self.written and self.written[-1] == self.rules.end:
            return "stop"
        if len(self.begun) + len(self.written) >= self.limit:
            return "length"
        return "loop" if is_looping(self.written) else None


def log_softmax(logits: Logits) -> Logprobs:
    """The logprobs of all tokens, in double precision."""
    shifted = logits.astype(np.float64) - logits.max()
    logprobs: Logprobs = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def log_total(logits: Logits) -> float:
    """What to subtract from a logit to get its logprob. `log_softmax` does it for all, in twice the time."""
    most = logits.max()
    return float(most) + float(np.log(np.exp(logits - most).sum(dtype=np.float64)))


def likeliest(logits: Logits, count: int) -> NDArray[np.int64]:
    """The tokens with the highest logits, in no order. They are in the columns with the highest of all: sorting those
    takes a twentieth of the time of sorting a vocabulary."""
    rows = len(logits) // _COLUMNS
    if count >= min(rows, _COLUMNS):
        return np.argsort(-logits)[:count]
    tops = logits[: rows * _COLUMNS].reshape(rows, _COLUMNS).max(axis=0)
    columns = np.argpartition(-tops, count)[:count]
    places = (columns + _COLUMNS * np.arange(rows)[:, None]).ravel()
    places = np.concatenate([places, np.arange(rows * _COLUMNS, len(logits))])
    return places[np.argpartition(-logits[places], count)[:count]]


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
