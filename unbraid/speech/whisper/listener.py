"""Whisper inside the process, as a listener: chunks that wait are decoded together, in a thread.

A Whisper's decoder reads one token for all of its rows at a time, so rows begin together: those that come while a batch
runs make up the next one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import numpy as np

from ...engines.base import Load, Piece, PromptTooLong, Unsupported
from ..decoding.beams import BeamWriting
from ..decoding.sampling import Writing
from ..decoding.worker import Job, ListeningWorker
from .vocabulary import ListeningVocabulary
from ..listening import ListenEnd, ListenRequest, TextVocabulary
from .features import log_mels
from .files import DEFAULT_WHISPER, WhisperFiles, resolve_whisper
from .model import WhisperModel
from .rules import WhisperRules


class WhisperEngine:
    """A Whisper, run by ONNX Runtime in this process.

    model: what `resolve_whisper` takes, or what it has returned.
    parallel: how many outputs are decoded in one batch: those of chunks, and the beams of one.
    queue_size: how many chunks may wait.
    """

    most_beams = 8
    """Each has its own copy of what the model heard: 37 MB with whisper-base, half a gigabyte with the largest."""

    def __init__(
        self,
        model: str | Path | WhisperFiles = DEFAULT_WHISPER,
        *,
        parallel: int = 4,
        queue_size: int = 256,
        threads: int | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        self.files = model if isinstance(model, WhisperFiles) else resolve_whisper(model)
        self.parallel = parallel
        self._vocabulary = ListeningVocabulary(Tokenizer.from_file(str(self.files.tokenizer)))
        self._rules = WhisperRules.of(self._vocabulary, self.files.config, self.files.generation_config)
        self.tokens = self._rules.tokens
        self._model = WhisperModel(self.files, threads=threads)
        self._worker = ListeningWorker(
            self.model,
            self._decode,
            batch=parallel,
            queue_size=queue_size,
            alike=lambda request: len(request.prompt),
        )

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def vocabulary(self) -> TextVocabulary:
        return self._vocabulary

    @property
    def tells_words(self) -> bool:
        return bool(self._model.heads)

    @property
    def load(self) -> Load:
        return self._worker.load

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        room = self._model.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(f"a prompt of {len(request.prompt)} tokens leaves no room in {self._model.context}")
        if request.words and not self.tells_words:
            raise Unsupported(f"{self.model} does not tell when each word was said: its files have no attention")
        if not 1 <= request.beams <= self.most_beams:
            raise Unsupported(f"a Whisper has 1 to {self.most_beams} beams here, not {request.beams}")
        if request.beams > 1 and request.temperature > 0:
            raise Unsupported("beams leave nothing to chance: leave them or the temperature out")
        async with aclosing(self._worker.listen(request, self._writing(request, room))) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # --- In the worker's thread ------------------------------------------------------------------------------------

    def _decode(self, jobs: list[Job]) -> None:
        mels = log_mels([job.request.samples for job in jobs], self.files.bins)
        prompts = np.array([job.request.prompt for job in jobs], np.int64)
        looking = any(job.request.words for job in jobs)
        state = self._model.begin(self._model.encode(mels), prompts, attentions=looking)
        counts = [1] * len(jobs)
        """The rows of each job, which lie side by side."""
        while True:
            rows: list[int] = []
            tokens: list[int] = []
            first = 0
            for at, count in enumerate(counts):
                mine = slice(first, first + count)
                step = jobs[at].advance(state.logits[mine], None if state.attention is None else state.attention[mine])
                rows += [first + row for row in step.rows]
                tokens += step.tokens
                first += count
                counts[at] = len(step.rows)
            jobs[:] = [job for job, count in zip(jobs, counts, strict=True) if count]
            counts = [count for count in counts if count]
            if not jobs:
                return
            if rows != list(range(state.rows)):
                state = self._model.select(state, rows)
            self._model.step(state, np.array(tokens, np.int64))

    # --- Settings --------------------------------------------------------------------------------------------------

    def _writing(self, request: ListenRequest, room: int) -> Writing | BeamWriting:
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        chance = np.random.default_rng(request.seed or 0)  # the same recording has the same transcript
        one = Writing(self._rules, request.prefix, request.timestamps, request.temperature, limit, chance)
        return one if request.beams == 1 else BeamWriting(one, request.beams)
