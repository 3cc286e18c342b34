"""Moonshine inside the process, as a listener: one chunk after the other, in a thread."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..constraints.token_sets import TokenSets
from ..core.vocabulary import Vocabulary, WholeVocabulary
from ..models.moonshine_files import DEFAULT_MOONSHINE, MoonshineFiles, resolve_moonshine
from ..tokens import vocabulary as vocabulary_of
from ..transcription.audio import RATE
from ..transcription.hearing import Heard, Hearing
from ..transcription.moonshine import END, MoonshineVocabulary
from ..transcription.whisper_rules import loops
from .base import Load, Piece, TokenLogprob, Unsupported
from .listening_worker import Job, ListeningWorker
from .moonshine_onnx import MoonshineModel

_TOKENS_PER_SECOND = 6.5  # what its makers allow: a Moonshine that writes more has lost its thread
_FEWEST = 10  # and this in any case: a short word may have several tokens
_LONGEST = 64  # seconds; its makers refuse more


class MoonshineEngine:
    """A Moonshine, run by ONNX Runtime in this process.

    model: what `resolve_moonshine` takes, or what it has returned.
    queue_size: how many chunks may wait.
    """

    parallel = 2
    """One is decoded at a time; another one that waits is there when that is done."""

    def __init__(
        self,
        model: str | Path | MoonshineFiles = DEFAULT_MOONSHINE,
        *,
        queue_size: int = 256,
        threads: int | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        self.files = model if isinstance(model, MoonshineFiles) else resolve_moonshine(model)
        tokens = cast(WholeVocabulary, vocabulary_of(Tokenizer.from_file(str(self.files.tokenizer))))
        self._vocabulary = MoonshineVocabulary(tokens, self.files.language)
        end = tokens.token_id(END)
        if end is None:
            raise Unsupported(f"{self.files.tokenizer} has no {END}: it is not Moonshine's")
        self._end = end
        self._never = sorted(tokens.special - {end})
        self._model = MoonshineModel(self.files, threads=threads)
        self._worker = ListeningWorker(self.model, self._decode, queue_size=queue_size)

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def load(self) -> Load:
        return self._worker.load

    async def listen(self, request: Hearing) -> AsyncGenerator[Piece | Heard, None]:
        """The output, piece by piece; see `Listener`."""
        seconds = len(request.samples) / RATE
        if request.timestamps:
            raise Unsupported("Moonshine tells no times: leave timestamps out")
        if not request.prompt:
            raise Unsupported("Moonshine needs a prompt of a token or more: <s>")
        if seconds > _LONGEST:
            raise Unsupported(f"Moonshine takes {_LONGEST} s at once, not {seconds:.1f}: cut the recording")
        async with aclosing(self._worker.listen(request, self._writing(request, seconds))) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # In the worker's thread

    def _decode(self, jobs: list[Job]) -> None:
        for job in jobs:
            state = self._model.begin(job.request.samples, job.request.prompt)
            while (token := job.advance(state.logits)) is not None:
                self._model.step(state, token)

    # Choices

    def _writing(self, request: Hearing, seconds: float) -> _Writing:
        limit = max(_FEWEST, math.ceil(seconds * _TOKENS_PER_SECOND))
        if request.max_tokens is not None:
            limit = min(limit, request.max_tokens)
        chance = np.random.default_rng(request.seed)
        return _Writing(self._end, self._never, request.prefix, request.temperature, limit, chance)


@dataclass
class _Writing:
    """One output while it is written: see `Writing`."""

    end: int
    never: list[int]
    """Tokens that mean nothing in an output."""
    prefix: TokenSets
    temperature: float
    limit: int
    chance: np.random.Generator
    begun: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    no_speech: float | None = None
    choices: dict[int, float] = field(default_factory=dict)

    def next(self, logits: NDArray[np.float32]) -> TokenLogprob:
        allowed = self.prefix.allowed(self.begun)
        if allowed is not None:
            token, logprob = self._of(logits, sorted(allowed))
            self.begun.append(token)
        else:
            token, logprob = self._chosen(logits)
            self.written.append(token)
        return TokenLogprob(token, b"", logprob)

    @property
    def reason(self) -> str | None:
        if self.written and self.written[-1] == self.end:
            return "stop"
        if len(self.begun) + len(self.written) >= self.limit:
            return "length"
        return "loop" if loops(self.written) else None

    def _of(self, logits: NDArray[np.float32], allowed: list[int]) -> tuple[int, float]:
        """The likeliest of a few, whatever the temperature is."""
        likely = np.exp(_log_softmax(logits[allowed]))
        if len(allowed) > 1 and not self.choices:
            self.choices = dict(zip(allowed, map(float, likely), strict=True))
        best = int(likely.argmax())
        return allowed[best], float(np.log(likely[best]))

    def _chosen(self, logits: NDArray[np.float32]) -> tuple[int, float]:
        logits = logits.copy()
        logits[self.never] = -np.inf
        if self.temperature <= 0:
            token = int(logits.argmax())
        else:
            likely = np.exp(_log_softmax(logits / self.temperature))
            token = int(self.chance.choice(len(likely), p=likely / likely.sum()))
        return token, float(_log_softmax(logits)[token])


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return found
