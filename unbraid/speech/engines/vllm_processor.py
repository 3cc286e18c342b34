"""Inside vLLM: Whisper's prefix and rules, applied to the logits of each step.

What the logits were, vLLM tells nobody outside but by the logprobs of tokens that are asked for. So a logit becomes a
logprob here, of what may be chosen; and what is not to be chosen but to be told of, the languages that it is not and
that nobody speaks, stands lower by `TOLD`.

This module needs torch and vLLM: only vLLM's own processes load it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from .vllm import ASKED, TOLD, rules_of
from ..whisper.vocabulary import ListeningVocabulary

_NEVER = -float("inf")


@dataclass
class Row:
    """One output while it is written."""

    prefix: list[torch.Tensor]
    """Which tokens may come first, second, and so on."""
    timestamps: bool
    output: list[int]
    """All of it so far. vLLM's own list, which grows."""

    @property
    def allowed(self) -> torch.Tensor | None:
        """The tokens of which one must come next; None after the prefix."""
        return self.prefix[len(self.output)] if len(self.output) < len(self.prefix) else None

    @property
    def written(self) -> list[int]:
        """The output after its prefix."""
        return self.output[len(self.prefix) :]


class WhisperProcessor(LogitsProcessor):  # type: ignore[misc]
    """One for all requests. Those that do not ask for it are left alone."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        config = vllm_config.model_config
        self._rules = rules_of(config, ListeningVocabulary(cached_tokenizer_from_config(config)))
        self._device = device
        self._rows: dict[int, Row] = {}
        size = config.hf_config.vocab_size
        self._never = self._mask(size, [list(self._rules.suppressed)])
        self._untimed = self._mask(size, [list(self._rules.suppressed), *self._rules.closed((), timestamps=False)])
        """Where no times come, the same is forbidden at each step but the first."""
        self._not_first = self._tokens(self._rules.not_first)

    def _mask(self, size: int, some: list[Any]) -> torch.Tensor:
        mask = torch.zeros(size, dtype=torch.bool)
        for tokens in some:
            mask[tokens] = True
        return mask.to(self._device)

    def _tokens(self, some: Any) -> torch.Tensor:
        return torch.tensor(list(some), dtype=torch.long, device=self._device)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, self._row)

    def _row(self, params: Any, prompt: list[int] | None, output: list[int]) -> Row | None:
        asked = (params.extra_args or {}).get(ASKED)
        return None if asked is None else Row([*map(self._tokens, asked["prefix"])], asked["timestamps"], output)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        silence = self._rules.silence
        new = [at for at, row in self._rows.items() if not row.output]
        no_speech = logits[new].log_softmax(-1)[:, silence] if new else None
        for at, row in self._rows.items():
            if row.allowed is not None:
                _choose(logits[at], row.allowed)
        writing = sorted(at for at, row in self._rows.items() if row.allowed is None)
        if writing:
            self._write(logits, writing)
        if no_speech is not None:
            logits[new, silence] = no_speech - TOLD
        return logits

    def _write(self, logits: torch.Tensor, places: list[int]) -> None:
        """By the rules, in the rows `places`: what `WhisperRules.apply` does, for all of them at once."""
        some = logits if len(places) == len(logits) else logits[places]
        rows = [self._rows[place] for place in places]
        timed = [at for at, row in enumerate(rows) if row.timestamps]
        some.masked_fill_(self._never if timed else self._untimed, _NEVER)
        for at, row in enumerate(rows):
            written = row.written
            if not written:
                some[at, self._not_first] = _NEVER
            for stretch in self._rules.closed(written, row.timestamps) if timed else ():
                some[at, stretch] = _NEVER
        if timed:
            first = self._rules.tokens.first_timestamp
            heard = some[timed]
            likely = heard[:, first:].logsumexp(-1) > heard[:, :first].amax(-1)
            heard[:, :first].masked_fill_(likely[:, None], _NEVER)
            some[timed] = heard
        logits[places] = some.log_softmax(-1)


def _choose(row: torch.Tensor, allowed: torch.Tensor) -> None:
    """The likeliest of a few, whatever the temperature is."""
    likely = row[allowed].log_softmax(-1)
    best = torch.arange(len(allowed), device=row.device) == likely.argmax()
    row.fill_(_NEVER)
    row[allowed] = torch.where(best, likely, likely - TOLD)
