"""Which tokens Whisper may write next: the rules that its makers gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .whisper_tokens import WhisperTokens
from .writing import Logits

_LATEST_FIRST = 1.0  # seconds: what is said begins no later, or is taken for silence


@dataclass(frozen=True)
class WhisperRules:
    """The rules for one model."""

    tokens: WhisperTokens
    suppressed: tuple[int, ...] = ()
    """Never written: music signs, brackets, and the tokens that only prompts have."""
    not_first: tuple[int, ...] = ()
    """Not written as the first of the text: a space, or nothing at all."""

    @property
    def end(self) -> int:
        return self.tokens.eot

    @property
    def silence(self) -> int:
        return self.tokens.no_speech

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
