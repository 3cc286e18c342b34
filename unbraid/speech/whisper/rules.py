"""Whisper's decoding rules: which tokens may come next.

They are those of OpenAI's code. Some tokens are never written. With timestamps, these come in pairs and never go back,
and one is forced where all of them together are likelier than any word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.vocabulary import Vocabulary
from ..decoding.sampling import Logits
from .tokens import WhisperTokens

_LATEST_FIRST = 1.0  # seconds: the latest first timestamp


@dataclass(frozen=True)
class WhisperRules:
    """The rules for one model."""

    tokens: WhisperTokens
    suppressed: tuple[int, ...] = ()
    """Never written: music signs, brackets, and tokens that occur only in prompts."""
    not_first: tuple[int, ...] = ()
    """Never written first: a space alone, and the end of the text."""

    @classmethod
    def of(
        cls, vocabulary: Vocabulary, config: Mapping[str, Any], generation_config: Mapping[str, Any]
    ) -> WhisperRules:
        """The rules in a model's own files, `config.json` and `generation_config.json`."""
        tokens = WhisperTokens(vocabulary)
        suppressed = generation_config.get("suppress_tokens") or config.get("suppress_tokens") or ()
        prompts = (
            tokens.sot,
            tokens.transcribe,
            tokens.translate,
            tokens.no_speech,
            tokens.startofprev,
            tokens.startoflm,
        )
        never = {int(token) for token in suppressed if token >= 0} | {*prompts, *tokens.languages.values()}
        blank = vocabulary.token_id(" ")
        first = {int(token) for token in generation_config.get("begin_suppress_tokens") or ()}
        first = first or {tokens.eot, *([] if blank is None else [blank])}
        return cls(tokens, tuple(sorted(never)), tuple(sorted(first)))

    @property
    def end(self) -> int:
        return self.tokens.eot

    @property
    def silence(self) -> int:
        return self.tokens.no_speech

    def apply(self, logits: Logits, output: Sequence[int], timestamps: bool) -> None:
        """Forbid what may not follow `output`; see `TokenRules`."""
        logits[list(self.suppressed)] = -np.inf
        if not output:
            logits[list(self.not_first)] = -np.inf
        for tokens in self.forbidden(output, timestamps):
            logits[tokens] = -np.inf
        if timestamps:
            self._force_timestamp(logits)

    def forbidden(self, output: Sequence[int], timestamps: bool) -> Iterator[slice]:
        """The ranges of the vocabulary that may not follow `output`, whatever their logits are."""
        tokens = self.tokens
        yield slice(tokens.no_timestamps, tokens.no_timestamps + 1)
        yield slice(tokens.size, None)  # the padding of some models' vocabularies
        if not timestamps:
            yield slice(tokens.first_timestamp, None)
            return
        yield from self._pairs(output)
        yield from self._forward(output)
        if not output:
            yield slice(None, tokens.first_timestamp)
            yield slice(tokens.timestamp(_LATEST_FIRST) + 1, None)

    def _pairs(self, output: Sequence[int]) -> Iterator[slice]:
        """Timestamps come in pairs, where one segment ends and the next begins; only the last may be single."""
        first = self.tokens.first_timestamp
        if not output or output[-1] < first:
            return
        if len(output) < 2 or output[-2] >= first:
            yield slice(first, None)
        else:
            yield slice(None, self.tokens.eot)

    def _forward(self, output: Sequence[int]) -> Iterator[slice]:
        """Timestamps never go back, and no segment is empty."""
        first = self.tokens.first_timestamp
        last = next((token for token in reversed(output) if token >= first), None)
        if last is None:
            return
        opens = output[-1] >= first and (len(output) < 2 or output[-2] < first)
        yield slice(first, last if opens else last + 1)

    def _force_timestamp(self, logits: Logits) -> None:
        """Force a timestamp where all of them together are likelier than any word."""
        first = self.tokens.first_timestamp
        times, words = logits[first:], logits[:first]
        most = float(times.max(initial=-np.inf))
        if most == -np.inf or np.isneginf(words).all():
            return
        if most + float(np.log(np.exp(times - most).sum())) > float(words.max()):
            logits[:first] = -np.inf
