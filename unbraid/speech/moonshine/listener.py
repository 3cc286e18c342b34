"""Moonshine on ONNX Runtime, as a listener: one chunk after the other, in a worker thread."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from ...core.vocabulary import Vocabulary, WholeVocabulary
from ...engines.base import Load, Piece, Unsupported
from ...tokens import vocabulary as vocabulary_of
from ..audio.decode import RATE
from ..decoding.base import Logits
from ..decoding.sampling import SamplingDecoding
from ..decoding.worker import ListeningWorker, ListenJob
from ..listening import ListenEnd, ListenRequest
from ..onnx import Device
from .adapter import END, MoonshineVocabulary
from .files import DEFAULT_MOONSHINE, MoonshineFiles, resolve_moonshine
from .model import MoonshineModel

_TOKENS_PER_SECOND = 6.5  # the limit of its makers: an output with more is a hallucination
_FEWEST = 10  # the least limit: a short word may have several tokens
_LONGEST = 64  # seconds; its makers refuse more


class MoonshineEngine:
    """A Moonshine in this process.

    model: what `resolve_moonshine` takes or returns.
    queue_size: how many chunks may wait.
    """

    parallel = 2
    """One chunk is decoded at a time; a second one waits, so that the thread is never idle."""
    goes_on_from_words = True

    def __init__(
        self,
        model: str | Path | MoonshineFiles = DEFAULT_MOONSHINE,
        *,
        queue_size: int = 256,
        threads: int | None = None,
        device: Device = "auto",
    ) -> None:
        from tokenizers import Tokenizer

        self.files = model if isinstance(model, MoonshineFiles) else resolve_moonshine(model)
        tokens = cast(WholeVocabulary, vocabulary_of(Tokenizer.from_file(str(self.files.tokenizer))))
        self._vocabulary = MoonshineVocabulary(tokens, self.files.language)
        end = tokens.token_id(END)
        if end is None:
            raise Unsupported(f"{self.files.tokenizer} has no {END}: it is not Moonshine's")
        self._rules = MoonshineRules(end, tuple(sorted(tokens.special - {end})))
        self._model = MoonshineModel(self.files, threads=threads, device=device)
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

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        seconds = len(request.samples) / RATE
        if request.timestamps:
            raise Unsupported("Moonshine writes no timestamps: leave them out")
        if request.words:
            raise Unsupported("Moonshine cannot time words: leave them out")
        if request.beams != 1:
            raise Unsupported("Moonshine has no beam search here: leave beams out")
        if not request.prompt:
            raise Unsupported("Moonshine needs a prompt of a token or more: <s>")
        if seconds > _LONGEST:
            raise Unsupported(f"Moonshine takes {_LONGEST} s at once, not {seconds:.1f}: cut the recording")
        async with aclosing(self._worker.listen(request, self._decoding(request, seconds))) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # In the worker's thread

    def _decode(self, jobs: list[ListenJob]) -> Iterator[None]:
        for job in jobs:
            state = self._model.begin(job.request.samples, job.request.prompt)
            while tokens := job.advance(state.logits[None]).tokens:
                yield
                self._model.step(state, tokens[0])

    # Decoding

    def _decoding(self, request: ListenRequest, seconds: float) -> SamplingDecoding:
        limit = max(_FEWEST, math.ceil(seconds * _TOKENS_PER_SECOND))
        if request.max_tokens is not None:
            limit = min(limit, request.max_tokens)
        rng = np.random.default_rng(request.seed or 0)  # so that a recording always gives the same transcript
        return SamplingDecoding(self._rules, request.prefix, request.timestamps, request.temperature, limit, rng)


@dataclass(frozen=True)
class MoonshineRules:
    """The rules of Moonshine: text, then the end token. See `TokenRules`."""

    end: int
    never: tuple[int, ...]
    """Special tokens that do not occur in outputs."""
    silence: int | None = None

    def apply(self, logits: Logits, written: Sequence[int], timestamps: bool) -> None:
        logits[list(self.never)] = -np.inf
