"""Which token Whisper writes next: the rules that its makers gave it, and the choice among what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..constraints.token_sets import TokenSets
from ..engines.base import TokenLogprob
from .whisper_tokens import WhisperTokens

Logits = NDArray[np.float32]

_LATEST_FIRST = 1.0  # seconds: what is said begins no later, or is taken for silence
_REPEATS = 4
_LOOP = 40  # tokens that a repetition must have to be no figure of speech
_LONGEST_PERIOD = 32


@dataclass(frozen=True)
class WhisperRules:
    """The rules for one model."""

    tokens: WhisperTokens
    suppressed: tuple[int, ...] = ()
    """Never written: music signs, brackets, and the tokens that only prompts have."""
    not_first: tuple[int, ...] = ()
    """Not written as the first of the text: a space, or nothing at all."""

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        """Forbid what may not follow `written`, which is the output after its prefix."""
        tokens = self.tokens
        logits[list(self.suppressed)] = -np.inf
        logits[tokens.no_timestamps] = -np.inf
        logits[tokens.size :] = -np.inf  # what fills up the rows of some models is no time
        if not written:
            logits[list(self.not_first)] = -np.inf
        if not timestamps:
            logits[tokens.first_timestamp :] = -np.inf
            return
        self._pairs(logits, written)
        self._forward(logits, written)
        if not written:
            logits[: tokens.first_timestamp] = -np.inf
            logits[tokens.timestamp(_LATEST_FIRST) + 1 :] = -np.inf
        self._time_if_likely(logits)

    def _pairs(self, logits: Logits, written: Sequence[int]) -> None:
        """Times come in pairs, where one stretch ends and the next begins; only the last may be alone."""
        first = self.tokens.first_timestamp
        if not written or written[-1] < first:
            return
        if len(written) < 2 or written[-2] >= first:
            logits[first:] = -np.inf
        else:
            logits[: self.tokens.eot] = -np.inf

    def _forward(self, logits: Logits, written: Sequence[int]) -> None:
        """Times never go back, and no stretch is empty."""
        first = self.tokens.first_timestamp
        last = next((token for token in reversed(written) if token >= first), None)
        if last is None:
            return
        opens = written[-1] >= first and (len(written) < 2 or written[-2] < first)
        logits[first : last if opens else last + 1] = -np.inf

    def _time_if_likely(self, logits: Logits) -> None:
        """Where all times together are likelier than any word, a time comes."""
        first = self.tokens.first_timestamp
        times, words = logits[first:], logits[:first]
        most = float(times.max(initial=-np.inf))
        if most == -np.inf or np.isneginf(words).all():
            return
        if most + float(np.log(np.exp(times - most).sum())) > float(words.max()):
            logits[:first] = -np.inf


@dataclass
class Writing:
    """One output while it is written: what comes next, and whether it goes on."""

    rules: WhisperRules
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
        if self.no_speech is None:
            self.no_speech = float(_softmax(logits)[self.rules.tokens.no_speech])
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
        if self.written and self.written[-1] == self.rules.tokens.eot:
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
