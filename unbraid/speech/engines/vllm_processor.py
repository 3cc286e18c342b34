"""A logits processor for vLLM: Whisper's prefix and rules, applied at each step.

vLLM reports logits only as the logprobs of requested tokens, after this processor. So the processor normalises the
logits of the tokens that may be chosen. Tokens that must not be chosen but are reported (the other languages, and
silence) get their logprob minus `REPORTED_OFFSET`.

This module needs torch and vLLM. Only vLLM's own processes load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from ..whisper.tokens import WhisperVocabulary
from .vllm import EXTRA_ARGS_KEY, REPORTED_OFFSET, rules_of

_NEVER = -float("inf")


@dataclass
class Row:
    """One output in progress."""

    prefix: list[torch.Tensor]
    """The tokens that may come first, second, and so on."""
    timestamps: bool
    output: list[int]
    """All tokens so far: vLLM's own list, which grows."""

    @property
    def allowed(self) -> torch.Tensor | None:
        """The tokens that may come next; None after the prefix."""
        return self.prefix[len(self.output)] if len(self.output) < len(self.prefix) else None

    @property
    def written(self) -> list[int]:
        """The output after its prefix."""
        return self.output[len(self.prefix) :]


class WhisperProcessor(LogitsProcessor):  # type: ignore[misc]
    """One for all requests. Requests without `EXTRA_ARGS_KEY` are left alone."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        config = vllm_config.model_config
        self._rules = rules_of(config, WhisperVocabulary(cached_tokenizer_from_config(config)))
        self._device = device
        self._rows: dict[int, Row] = {}
        size = config.hf_config.vocab_size
        self._never = self._mask(size, [list(self._rules.suppressed)])
        self._untimed = self._mask(size, [list(self._rules.suppressed), *self._rules.forbidden((), timestamps=False)])
        """Without timestamps, each step but the first forbids the same tokens."""
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
        instructions = (params.extra_args or {}).get(EXTRA_ARGS_KEY)
        return None if instructions is None else self._new_row(instructions, output)

    def _new_row(self, instructions: Mapping[str, Any], output: list[int]) -> Row:
        return Row([*map(self._tokens, instructions["prefix"])], instructions["timestamps"], output)

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
            logits[new, silence] = no_speech - REPORTED_OFFSET
        return logits

    def _write(self, logits: torch.Tensor, places: list[int]) -> None:
        """Apply the rules to the rows `places`: `WhisperRules.apply`, for all of them at once."""
        some = logits if len(places) == len(logits) else logits[places]
        rows = [self._rows[place] for place in places]
        timed = [at for at, row in enumerate(rows) if row.timestamps]
        some.masked_fill_(self._never if timed else self._untimed, _NEVER)
        for at, row in enumerate(rows):
            text = row.written
            if not text:
                some[at, self._not_first] = _NEVER
            for forbidden in self._rules.forbidden(text, row.timestamps) if timed else ():
                some[at, forbidden] = _NEVER
        if timed:
            first = self._rules.tokens.first_timestamp
            rows_timed = some[timed]
            likely = rows_timed[:, first:].logsumexp(-1) > rows_timed[:, :first].amax(-1)
            rows_timed[:, :first].masked_fill_(likely[:, None], _NEVER)
            some[timed] = rows_timed
        logits[places] = some.log_softmax(-1)


def _choose(row: torch.Tensor, allowed: torch.Tensor) -> None:
    """The likeliest of a few, whatever the temperature is."""
    likely = row[allowed].log_softmax(-1)
    best = torch.arange(len(allowed), device=row.device) == likely.argmax()
    row.fill_(_NEVER)
    row[allowed] = torch.where(best, likely, likely - REPORTED_OFFSET)
