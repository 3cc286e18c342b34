"""A recording of any length to its transcript: cut into chunks, several of which are transcribed at once, and put
together again in order.

    transcriber = Transcriber(WhisperEngine())
    async for event in transcriber.run(read("talk.mp3"), Wish()):
        ...  # Detected, Delta, Segment, Progress; the last one is the Transcript
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ..engines.base import EngineFailed
from .adapters import Adapter, BadWish, TranscriptionOptions, adapter_for
from .attempt import Attempt, Spent, Thresholds
from .audio.chunking import Chunk, cut, is_silent
from .audio.decode import RATE, Samples
from .listening import Listener, most_beams, tells_words
from .transcript import Delta, Detected, Progress, Segment, Transcript, TranscriptEvent

__all__ = ["PrefixMissing", "Thresholds", "Transcriber"]

_OPENAIS = Thresholds()
_ASTRAY = "the model did not begin as it was told to, so that the language is not known"


class PrefixMissing(EngineFailed):
    """A stream whose output does not begin as it was made to."""


class Transcriber:
    """Transcribes with one model."""

    def __init__(self, listener: Listener, adapter: Adapter | None = None, thresholds: Thresholds = _OPENAIS) -> None:
        self.listener = listener
        self.adapter = adapter or adapter_for(listener.vocabulary)
        self._thresholds = thresholds

    def check(self, wish: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for what the model cannot do: `BadWish` where it is not the adapter who says so."""
        self.adapter.check(wish)
        if wish.words and not tells_words(self.listener):
            raise BadWish("this model does not tell when each word was said; ask for segments", "words")
        most = most_beams(self.listener)
        if not 1 <= wish.beams <= most:
            known = f"takes 1 to {most} beams" if most > 1 else "has no beam search: it takes 1 beam"
            raise BadWish(f"this model {known}, not {wish.beams}", "beams")
        if wish.beams > 1 and wish.temperature:
            raise BadWish("several beams leave nothing to chance: leave them or the temperature out", "beams")

    async def run(
        self, blocks: Iterable[Samples], wish: TranscriptionOptions, *, stream: bool = False
    ) -> AsyncGenerator[TranscriptEvent, None]:
        """All that comes of a recording, whose samples are read as they are needed.

        stream: text goes out token by token, and is never taken back; otherwise once its chunk is believed. So it is in
            a stream, too, where nobody may have spoken in the chunk, and where there are several beams.
        """
        self.check(wish)
        chunks = iter(cut(blocks, longest=self.adapter.longest))
        whole = _Whole()
        tasks: deque[_Turn] = deque()
        try:
            more = True
            while more or tasks:
                while more and len(tasks) < self.listener.parallel:
                    chunk = await _next(chunks)
                    more = chunk is not None
                    if chunk is not None:
                        tasks.append(_Turn(self, chunk, wish, stream))
                if tasks:
                    turn = tasks[0]
                    async for event in turn.events():
                        for said in whole.add(event):
                            yield said
                    tasks.popleft()
                    whole.seconds = turn.end
                    yield Progress(turn.end)
        finally:
            for turn in tasks:
                await turn.cancel()
        yield whole.transcript(getattr(blocks, "warnings", ()))

    async def transcribe(self, blocks: Iterable[Samples], wish: TranscriptionOptions) -> Transcript:
        """The transcript alone."""
        found: Transcript | None = None
        async for event in self.run(blocks, wish):
            if isinstance(event, Transcript):
                found = event
        assert found is not None
        return found

    # --- One chunk -------------------------------------------------------------------------------------------------

    async def hear(self, chunk: Chunk, wish: TranscriptionOptions, stream: bool) -> AsyncGenerator[_Told, None]:
        if is_silent(chunk.samples):
            return
        limits = self._thresholds
        spent = Spent()
        for temperature in limits.temperatures if wish.temperature is None else (wish.temperature,):
            attempt = Attempt(self.listener, self.adapter, chunk, wish, temperature)
            held: list[TranscriptEvent] = []
            told = False
            async for event in attempt.events():
                if stream and attempt.astray:
                    raise PrefixMissing(_ASTRAY)
                if told or (stream and wish.beams == 1 and not attempt.may_be_silence(limits)):
                    told = True
                    yield event
                else:
                    held.append(event)
            if stream and attempt.astray:
                raise PrefixMissing(_ASTRAY)
            spent = spent.plus(attempt.spent)
            if told or attempt.is_silence(limits) or not attempt.fails(limits):
                break
        if told or not attempt.is_silence(limits):
            for event in held:
                yield event
            if attempt.astray:
                yield _Warned(f"{_ASTRAY}, from {chunk.start:.1f} s on")
        yield spent


async def _next(chunks: Iterator[Chunk]) -> Chunk | None:
    """The next chunk, read in a thread. Who gives up waits for the thread all the same: it has the file in its hands,
    and nobody can close it before."""
    reading = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait([reading])
        reading.exception()  # nobody wants to know it any more
        raise


@dataclass(frozen=True, slots=True)
class _Warned:
    """What a user should know of a chunk."""

    text: str


_Told = TranscriptEvent | Spent | _Warned


class _Turn:
    """One chunk at work, whose events wait until it is its turn."""

    def __init__(self, transcriber: Transcriber, chunk: Chunk, wish: TranscriptionOptions, stream: bool) -> None:
        self.end = chunk.start + len(chunk.samples) / RATE
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(transcriber, chunk, wish, stream))

    async def _run(self, transcriber: Transcriber, chunk: Chunk, wish: TranscriptionOptions, stream: bool) -> None:
        try:
            async with aclosing(transcriber.hear(chunk, wish, stream)) as events:
                async for event in events:
                    self._queue.put_nowait(event)
        finally:
            self._queue.put_nowait(None)

    async def events(self) -> AsyncGenerator[_Told, None]:
        while (event := await self._queue.get()) is not None:
            yield event
        await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@dataclass
class _Whole:
    """The recording, as far as it is heard."""

    language: str | None = None
    probability: float | None = None
    text: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def add(self, event: _Told) -> Iterator[TranscriptEvent]:
        if isinstance(event, Spent):
            self.spent = self.spent.plus(event)
            return
        if isinstance(event, _Warned):
            self.warnings.append(event.text)
            return
        if isinstance(event, Detected):
            if self.language is not None:
                return
            self.language, self.probability = event.language, event.probability
        elif isinstance(event, Delta):
            self.text.append(event.text)
        elif isinstance(event, Segment):
            self.segments.append(event)
        yield event

    def transcript(self, warnings: Iterable[str]) -> Transcript:
        duration = self.seconds
        return Transcript(
            "".join(self.text).strip(),
            self.language,
            self.probability,
            duration,
            tuple(self.segments),
            self.spent.prompt,
            self.spent.completion,
            (*warnings, *self.warnings),
        )
