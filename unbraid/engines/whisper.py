"""Whisper inside the process, as a listener: chunks that wait are decoded together, in a thread.

A Whisper's decoder reads one token for all of its rows at a time, so rows begin together: those that come while a batch
runs make up the next one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import numpy as np

from ..core.vocabulary import Vocabulary
from ..models.whisper_files import DEFAULT_WHISPER, WhisperFiles, resolve_whisper
from ..prompts.encoding import encoder
from ..transcription.features import log_mels
from ..transcription.hearing import Heard, Hearing, TextVocabulary
from ..transcription.whisper_rules import WhisperRules
from ..transcription.whisper_tokens import WhisperTokens
from ..transcription.writing import Writing
from .base import Load, Piece, PromptTooLong
from .listening_worker import Job, ListeningWorker
from .whisper_onnx import State, WhisperModel


class WhisperEngine:
    """A Whisper, run by ONNX Runtime in this process.

    model: what `resolve_whisper` takes, or what it has returned.
    parallel: how many chunks are decoded in one batch.
    queue_size: how many may wait.
    """

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
        self._vocabulary = _Vocabulary(Tokenizer.from_file(str(self.files.tokenizer)))
        self.tokens = WhisperTokens(self._vocabulary)
        self._rules = WhisperRules(self.tokens, self._suppressed("suppress_tokens"), self._not_first())
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
    def load(self) -> Load:
        return self._worker.load

    async def listen(self, request: Hearing) -> AsyncGenerator[Piece | Heard, None]:
        """The output, piece by piece; see `Listener`."""
        room = self._model.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(f"a prompt of {len(request.prompt)} tokens leaves no room in {self._model.context}")
        async with aclosing(self._worker.listen(request, self._writing(request, room))) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # --- In the worker's thread ------------------------------------------------------------------------------------

    def _decode(self, jobs: list[Job]) -> None:
        mels = log_mels([job.request.samples for job in jobs], self.files.bins)
        prompts = np.array([job.request.prompt for job in jobs], np.int64)
        state: State = self._model.begin(self._model.encode(mels), prompts)
        while jobs:
            tokens = [job.advance(state.logits[row]) for row, job in enumerate(jobs)]
            going_on = [row for row, token in enumerate(tokens) if token is not None and not jobs[row].aborted]
            if len(going_on) < len(jobs):
                jobs[:] = [jobs[row] for row in going_on]
                if not jobs:
                    return
                state = self._model.select(state, going_on)
            chosen = [cast(int, tokens[row]) for row in going_on]
            self._model.step(state, np.array(chosen, np.int64))

    # --- Settings --------------------------------------------------------------------------------------------------

    def _writing(self, request: Hearing, room: int) -> Writing:
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        chance = np.random.default_rng(request.seed or 0)  # the same recording has the same transcript
        return Writing(self._rules, request.prefix, request.timestamps, request.temperature, limit, chance)

    def _suppressed(self, name: str) -> tuple[int, ...]:
        said = self.files.generation_config.get(name) or self.files.config.get(name) or ()
        known = self.tokens
        prompts = (known.sot, known.transcribe, known.translate, known.no_speech, known.startofprev, known.startoflm)
        return tuple(sorted({int(token) for token in said if token >= 0} | {*prompts, *known.languages.values()}))

    def _not_first(self) -> tuple[int, ...]:
        said = self.files.generation_config.get("begin_suppress_tokens") or ()
        blank = self._vocabulary.token_id(" ")
        found = {int(token) for token in said} or {self.tokens.eot, *([] if blank is None else [blank])}
        return tuple(sorted(found))


class _Vocabulary:
    """The tokens of a tokenizer, and those of a text."""

    def __init__(self, tokenizer: object) -> None:
        self._encoder = encoder(tokenizer)
        known: Vocabulary = self._encoder.vocabulary
        self.version = known.version
        self.dummy_prefix = known.dummy_prefix
        self.token_id = known.token_id
        self.token_bytes = known.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)
