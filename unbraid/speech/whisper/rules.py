"""Which tokens Whisper may write next: the rules that its makers gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.vocabulary import Vocabulary
from ..decoding.sampling import Logits
from .tokens import WhisperTokens

_LATEST_FIRST = 1.0  # seconds: what is said begins no later, or is taken for silence


@dataclass(frozen=True)
class WhisperRules:
    """The rules for one model."""

    tokens: WhisperTokens
    suppressed: tuple[int, ...] = ()
    """Never written: music signs, brackets, and the tokens that only prompts have."""
    not_first: tuple[int, ...] = ()
    """Not written as the first of the text: a space, or nothing at all."""

    @classmethod
    def of(
        cls, vocabulary: Vocabulary, config: Mapping[str, Any], generation_config: Mapping[str, Any]
    ) -> WhisperRules:
        """As a model's own files have them: `config.json` and `generation_config.json`."""
        known = WhisperTokens(vocabulary)
        said = generation_config.get("suppress_tokens") or config.get("suppress_tokens") or ()
        prompts = (known.sot, known.transcribe, known.translate, known.no_speech, known.startofprev, known.startoflm)
        never = {int(token) for token in said if token >= 0} | {*prompts, *known.languages.values()}
        blank = vocabulary.token_id(" ")
        first = {int(token) for token in generation_config.get("begin_suppress_tokens") or ()}
        first = first or {known.eot, *([] if blank is None else [blank])}
        return cls(known, tuple(sorted(never)), tuple(sorted(first)))

    @property
    def end(self) -> int:
        return self.tokens.eot

    @property
    def silence(self) -> int:
        return self.tokens.no_speech

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        """Forbid what may not follow `written`, which is the output after its prefix."""
        logits[list(self.suppressed)] = -np.inf
        if not written:
            logits[list(self.not_first)] = -np.inf
        for stretch in self.closed(written, timestamps):
            logits[stretch] = -np.inf
        if timestamps:
            self._time_if_likely(logits)

    def closed(self, written: Sequence[int], timestamps: bool) -> Iterator[slice]:
        """The stretches of the vocabulary that may not follow `written`, whatever the model thinks of them."""
        tokens = self.tokens
        yield slice(tokens.no_timestamps, tokens.no_timestamps + 1)
        yield slice(tokens.size, None)  # what fills up the rows of some models is no time
        if not timestamps:
            yield slice(tokens.first_timestamp, None)
            return
        yield from self._pairs(written)
        yield from self._forward(written)
        if not written:
            yield slice(None, tokens.first_timestamp)
            yield slice(tokens.timestamp(_LATEST_FIRST) + 1, None)

    def _pairs(self, written: Sequence[int]) -> Iterator[slice]:
        """Times come in pairs, where one stretch ends and the next begins; only the last may be alone."""
        first = self.tokens.first_timestamp
        if not written or written[-1] < first:
            return
        if len(written) < 2 or written[-2] >= first:
            yield slice(first, None)
        else:
            yield slice(None, self.tokens.eot)

    def _forward(self, written: Sequence[int]) -> Iterator[slice]:
        """Times never go back, and no stretch is empty."""
        first = self.tokens.first_timestamp
        last = next((token for token in reversed(written) if token >= first), None)
        if last is None:
            return
        opens = written[-1] >= first and (len(written) < 2 or written[-2] < first)
        yield slice(first, last if opens else last + 1)

    def _time_if_likely(self, logits: Logits) -> None:
        """Where all times together are likelier than any word, a time comes."""
        first = self.tokens.first_timestamp
        times, words = logits[first:], logits[:first]
        most = float(times.max(initial=-np.inf))
        if most == -np.inf or np.isneginf(words).all():
            return
        if most + float(np.log(np.exp(times - most).sum())) > float(words.max()):
            logits[:first] = -np.inf
