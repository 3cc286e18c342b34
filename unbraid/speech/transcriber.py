"""The transcriber: a recording of any length to its transcript.

    transcriber = Transcriber(WhisperEngine())
    async for event in transcriber.run(read("talk.mp3"), TranscriptionOptions()):
        ...  # Detected, Delta, Segment, Progress; the last one is the Transcript

The recording is cut into chunks. Several chunks are transcribed at once, and their events come out in order. A chunk
whose output fails the thresholds is decoded again at a higher temperature (temperature fallback, as in OpenAI's
Whisper); `attempt` is one such try. In a stream, text that was sent is never taken back, so there is no second try.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeGuard

from ..engines.base import EngineFailed
from .adapters import Adapter
from .attempt import Attempt, Thresholds, TokenCounts
from .audio.chunking import Chunk, cut, is_silent
from .audio.decode import RATE, Samples
from .errors import UnsupportedOption
from .families import adapter_for
from .listening import Listener, max_beams, supports_word_times
from .options import TranscriptionOptions
from .transcript import Delta, Detected, Progress, Segment, Transcript, TranscriptEvent

_DEFAULT_THRESHOLDS = Thresholds()
_NO_PREFIX = "the model did not begin with the tokens it was given, so that the language is not known"


class PrefixMissing(EngineFailed):
    """An output in a stream that does not begin with its prefix."""


class Transcriber:
    """Transcribes with one model."""

    def __init__(
        self, listener: Listener, adapter: Adapter | None = None, thresholds: Thresholds = _DEFAULT_THRESHOLDS
    ) -> None:
        self.listener = listener
        self.adapter = adapter or adapter_for(listener.vocabulary)
        self._thresholds = thresholds

    def check(self, options: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for options that the model does not support; `UnsupportedOption` for those of the
        listener."""
        self.adapter.check(options)
        if options.words and not supports_word_times(self.listener):
            raise UnsupportedOption("this model cannot time words; ask for segments", "words")
        most = max_beams(self.listener)
        if not 1 <= options.beams <= most:
            known = f"takes 1 to {most} beams" if most > 1 else "has no beam search: it takes 1 beam"
            raise UnsupportedOption(f"this model {known}, not {options.beams}", "beams")
        if options.beams > 1 and options.temperature:
            raise UnsupportedOption("beam search needs temperature 0: leave out the beams or the temperature", "beams")

    async def run(
        self, blocks: Iterable[Samples], options: TranscriptionOptions, *, stream: bool = False
    ) -> AsyncGenerator[TranscriptEvent, None]:
        """Transcribe a recording. Its samples are read as they are needed.

        stream: send text token by token. Otherwise it comes when its chunk has passed the thresholds. In a stream that
            holds, too, for chunks that may be silence, and with beam search.
        """
        self.check(options)
        chunks = iter(cut(blocks, longest=self.adapter.max_seconds))
        builder = _TranscriptBuilder()
        tasks: deque[_ChunkTask] = deque()
        try:
            more = True
            while more or tasks:
                while more and len(tasks) < self.listener.parallel:
                    chunk = await _next(chunks)
                    more = chunk is not None
                    if chunk is not None:
                        tasks.append(_ChunkTask(self, chunk, options, stream))
                if tasks:
                    task = tasks[0]
                    async for event in task.events():
                        if builder.add(event):
                            yield event
                    tasks.popleft()
                    builder.seconds = task.end
                    yield Progress(task.end)
        finally:
            for task in tasks:
                await task.cancel()
        yield builder.transcript(getattr(blocks, "warnings", ()))

    async def transcribe(self, blocks: Iterable[Samples], options: TranscriptionOptions) -> Transcript:
        """The transcript alone."""
        found: Transcript | None = None
        async for event in self.run(blocks, options):
            if isinstance(event, Transcript):
                found = event
        assert found is not None
        return found

    async def transcribe_chunk(
        self, chunk: Chunk, options: TranscriptionOptions, stream: bool
    ) -> AsyncGenerator[_ChunkEvent, None]:
        """The events of one chunk, with temperature fallback."""
        if is_silent(chunk.samples):
            return
        limits = self._thresholds
        counts = TokenCounts()
        for temperature in limits.temperatures if options.temperature is None else (options.temperature,):
            attempt = Attempt(self.listener, self.adapter, chunk, options, temperature)
            held: list[TranscriptEvent] = []
            sent = False
            async for event in attempt.events():
                if stream and attempt.prefix_missing:
                    raise PrefixMissing(_NO_PREFIX)
                if sent or (stream and options.beams == 1 and not attempt.may_be_silence(limits)):
                    sent = True
                    yield event
                else:
                    held.append(event)
            if stream and attempt.prefix_missing:
                raise PrefixMissing(_NO_PREFIX)
            counts = counts.plus(attempt.counts)
            if sent or attempt.is_silence(limits) or not attempt.fails(limits):
                break
        if sent or not attempt.is_silence(limits):
            for event in held:
                yield event
            if attempt.prefix_missing:
                yield _Warning(f"{_NO_PREFIX}, from {chunk.start:.1f} s on")
        yield counts


async def _next(chunks: Iterator[Chunk]) -> Chunk | None:
    """Read the next chunk in a thread. A caller that is cancelled still waits for the thread, because the file must not
    be closed while it is read."""
    reading = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait([reading])
        reading.exception()  # retrieved, so that asyncio does not log it
        raise


@dataclass(frozen=True, slots=True)
class _Warning:
    """A warning about a chunk, for the user."""

    text: str


_ChunkEvent = TranscriptEvent | TokenCounts | _Warning


class _ChunkTask:
    """One chunk in progress. Its events are kept until those of all chunks before it are out."""

    def __init__(self, transcriber: Transcriber, chunk: Chunk, options: TranscriptionOptions, stream: bool) -> None:
        self.end = chunk.start + len(chunk.samples) / RATE
        self._queue: asyncio.Queue[_ChunkEvent | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(transcriber, chunk, options, stream))

    async def _run(self, transcriber: Transcriber, chunk: Chunk, options: TranscriptionOptions, stream: bool) -> None:
        try:
            async with aclosing(transcriber.transcribe_chunk(chunk, options, stream)) as events:
                async for event in events:
                    self._queue.put_nowait(event)
        finally:
            self._queue.put_nowait(None)

    async def events(self) -> AsyncGenerator[_ChunkEvent, None]:
        while (event := await self._queue.get()) is not None:
            yield event
        await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@dataclass
class _TranscriptBuilder:
    """The transcript of the chunks so far."""

    language: str | None = None
    probability: float | None = None
    text: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    counts: TokenCounts = field(default_factory=TokenCounts)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def add(self, event: _ChunkEvent) -> TypeGuard[TranscriptEvent]:
        """Add what a chunk gave. Returns whether it is an event for the caller."""
        if isinstance(event, TokenCounts):
            self.counts = self.counts.plus(event)
            return False
        if isinstance(event, _Warning):
            self.warnings.append(event.text)
            return False
        if isinstance(event, Detected):
            if self.language is not None:
                return False
            self.language, self.probability = event.language, event.probability
        elif isinstance(event, Delta):
            self.text.append(event.text)
        elif isinstance(event, Segment):
            self.segments.append(event)
        return True

    def transcript(self, warnings: Iterable[str]) -> Transcript:
        return Transcript(
            "".join(self.text).strip(),
            self.language,
            self.probability,
            self.seconds,
            tuple(self.segments),
            self.counts.prompt,
            self.counts.completion,
            (*warnings, *self.warnings),
        )
