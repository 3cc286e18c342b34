"""Whisper on ONNX Runtime, as a listener: chunks that wait are decoded as one batch, in a worker thread.

All rows of a batch begin together, because a decoder reads one token for each row at a time. Chunks that arrive while a
batch runs form the next one; which chunks, and when, is the worker's to say.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...engines.base import EngineFailed, Load, Piece, PromptTooLong, TokenLogprob, Unsupported
from ..audio.decode import RATE, Samples
from ..decoding.beams import decoding_for
from ..decoding.sampling import log_softmax
from ..decoding.worker import ListeningWorker, ListenJob
from ..listening import ListenEnd, ListenRequest, TextVocabulary
from ..onnx import Device
from ..onnx.runtime import Floats
from .features import FRAMES, columns_needed, log_mel
from .files import DEFAULT_WHISPER, WhisperFiles, resolve_whisper
from .model import Encoded, WhisperModel
from .rules import WhisperRules
from .tokens import WhisperVocabulary

_POSITION = 0.02
"""Seconds of a position of the encoder's output."""
_SILENT_COLUMNS = 600
_SILENCE = slice(150, 300)  # positions: three seconds


class Encodings:
    """The encoder's output by the array of samples, so that each sound is encoded once.

    A chunk whose output fails the thresholds is decoded again, up to five times, and only the decoding differs. An
    entry lives as long as somebody has the samples. Sounds are told apart by identity, not by content; a slice of an
    array is another sound.

    encode: computes the output. One thread calls `of`; arrays may go in any.
    """

    def __init__(self, encode: Callable[[Samples], Floats]) -> None:
        self._encode = encode
        self._known: dict[int, tuple[weakref.ref[Samples], Floats]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, samples: Samples) -> Floats:
        key = id(samples)
        entry = self._known.get(key)
        if entry is not None and entry[0]() is samples:
            return entry[1]
        encoding = self._encode(samples)
        self._known[key] = weakref.ref(samples, lambda gone: self._forget(key, gone)), encoding
        return encoding

    def _forget(self, key: int, gone: weakref.ref[Samples]) -> None:
        entry = self._known.get(key)
        if entry is not None and entry[0] is gone:  # not an entry that another array has made at the same address
            self._known.pop(key, None)


class WhisperEngine:
    """A Whisper in this process.

    model: what `resolve_whisper` takes or returns.
    parallel: how many rows are decoded in one batch; each chunk has one, and with beam search one for each beam.
    queue_size: how many chunks may wait.
    full_window: whether the encoder reads thirty seconds of each chunk, as in training, also where the chunk is short.
    """

    max_beams = 8
    """With files that are not rewritten (`graphs`) each beam has a copy of the keys and values of the audio: 37 MB with
    whisper-base, 0.5 GB with the largest."""
    goes_on_from_words = True
    tells_languages = True

    def __init__(
        self,
        model: str | Path | WhisperFiles = DEFAULT_WHISPER,
        *,
        parallel: int = 4,
        queue_size: int = 256,
        threads: int | None = None,
        device: Device = "auto",
        full_window: bool = False,
    ) -> None:
        from tokenizers import Tokenizer

        self.files = model if isinstance(model, WhisperFiles) else resolve_whisper(model)
        self.parallel = parallel
        self.full_window = full_window
        self._vocabulary = WhisperVocabulary(Tokenizer.from_file(str(self.files.tokenizer)))
        self._rules = WhisperRules.of(self._vocabulary, self.files.config, self.files.generation_config)
        self.tokens = self._rules.tokens
        self._model = WhisperModel(self.files, threads=threads, device=device)
        self._encodings = Encodings(self._encode)
        self._run: Any = None
        """The options of the encoder's run."""
        self._worker = ListeningWorker(
            self.model,
            self._decode,
            batch=parallel,
            queue_size=queue_size,
            # With as many beams each, recordings share keys and values among beams, and say what each says alone.
            batch_key=lambda request: (len(request.prompt), request.beams, self._columns(request.samples)),
        )

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def vocabulary(self) -> TextVocabulary:
        return self._vocabulary

    @property
    def supports_word_times(self) -> bool:
        return bool(self._model.heads)

    @property
    def load(self) -> Load:
        return self._worker.load

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        room = self._model.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(f"a prompt of {len(request.prompt)} tokens leaves no room in {self._model.context}")
        if request.words and not self.supports_word_times:
            raise Unsupported(f"{self.model} cannot time words: its files do not output cross-attention")
        if not 1 <= request.beams <= self.max_beams:
            raise Unsupported(f"a Whisper has 1 to {self.max_beams} beams here, not {request.beams}")
        if request.beams > 1 and request.temperature > 0:
            raise Unsupported("beam search needs temperature 0: leave out the beams or the temperature")
        decoding = decoding_for(request, self._rules, room)
        certain = request.prefix.forced(()) if request.goes_on else []
        if request.beams == 1 and len(certain) == len(request.prefix.sets):
            # There is nothing to choose, so the model reads it with the prompt, in one step.
            request = replace(request, prompt=(*request.prompt, *certain))
            decoding.begun += certain
            yield Piece(tuple(certain), logprobs=tuple(TokenLogprob(token, b"", 0.0) for token in certain))
        async with aclosing(self._worker.listen(request, decoding)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # In the worker's thread

    def _encode(self, samples: Samples) -> Floats:
        return self._model.hidden(log_mel(samples, self.files.bins)[:, : self._columns(samples)], self._run)

    def _columns(self, samples: Samples) -> int:
        """How many columns of the spectrogram the encoder reads."""
        full = self.full_window or not self._model.takes_fewer_columns
        return FRAMES if full else columns_needed(samples)

    def _encoding(self, job: ListenJob) -> Floats | None:
        """The encoder's output; None if the job is given up, also while the encoder computes."""
        self._run = run = self._model.run_options()
        job.on_abort(lambda: setattr(run, "terminate", True))
        try:
            return None if job.aborted else self._encodings.of(job.request.samples)
        except EngineFailed:
            if job.aborted:
                return None
            raise

    def _languages(self, request: ListenRequest, encoded: Encoded, row: int) -> tuple[Mapping[int, float], ...]:
        """What is spoken in stretches of a sound. The decoder is given each with silence after it, as if that were all
        of the sound: one step, and no run of the encoder."""
        tokens = sorted(request.languages)
        chances: list[Mapping[int, float]] = []
        for begin, end in request.stretches:
            first = round(begin / _POSITION)
            part = self._model.part(encoded, row, first, max(round(end / _POSITION), first + 1), self._silence)
            logits = self._model.begin(part, np.array([[self.tokens.sot]])).logits[0]
            chances.append(dict(zip(tokens, np.exp(log_softmax(logits[tokens])).tolist(), strict=True)))
        return tuple(chances)

    @cached_property
    def _silence(self) -> Encoded:
        """Silence after a sound that is over."""
        columns = _SILENT_COLUMNS if self._model.takes_fewer_columns else FRAMES
        hidden = self._model.hidden(log_mel(np.zeros(RATE, np.float32), self.files.bins)[:, :columns])
        return self._model.encoded([hidden[:, _SILENCE]])

    def _decode(self, jobs: list[ListenJob]) -> Iterator[None]:
        hidden = []
        for job in tuple(jobs):
            encoding = self._encoding(job)
            if encoding is None:
                jobs.remove(job)
            else:
                hidden.append(encoding)
            yield
        if not jobs:
            return
        prompts = np.array([job.request.prompt for job in jobs], np.int64)
        attentive = any(job.request.words for job in jobs)
        encoded = self._model.encoded(hidden)
        for row, job in enumerate(jobs):
            job.languages = self._languages(job.request, encoded, row)
        state = self._model.begin(encoded, prompts, attentions=attentive)
        del hidden, encoded
        counts = [1] * len(jobs)
        """How many rows each job has; they lie side by side."""
        while True:
            rows: list[int] = []
            tokens: list[tuple[int, ...]] = []
            first = 0
            forced = min(job.forced for job in jobs) if self._model.reads_runs else 0
            for at, count in enumerate(counts):
                mine = slice(first, first + count)
                attention = None if state.attention is None else state.attention[mine]
                step = jobs[at].advance(state.logits[mine], attention, [one[mine] for one in state.before], forced)
                rows += [first + row for row in step.rows]
                tokens += [(token, *step.forced) for token in step.tokens]
                first += count
                counts[at] = len(step.rows)
            jobs[:] = [job for job, count in zip(jobs, counts, strict=True) if count]
            counts = [count for count in counts if count]
            if not jobs:
                return
            if rows != list(range(state.rows)):
                state = self._model.select(state, rows)
            yield
            self._model.step(state, np.array(tokens, np.int64))
