"""A recording of any length to its transcript: cut into chunks, several of which are transcribed at once, and put
together again in order.

    transcriber = Transcriber(WhisperEngine())
    async for event in transcriber.run(read("talk.mp3"), Wish()):
        ...  # Detected, Delta, Segment, Progress; the last one is the Transcript
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ..constraints.token_sets import TokenSets
from ..core.events import Content, Event, Language, Timestamp
from ..core.parser import Parser
from ..engines.base import EngineFailed
from .adapters import Adapter, Wish, adapter_for
from .audio import RATE, Samples
from .cutting import Chunk, cut, is_silent
from .hearing import ANYTHING, Heard, Listener
from .transcript import Delta, Detected, Progress, Segment, Transcript, TranscriptEvent, compression_ratio

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When an output is not believed. The values are those of OpenAI's Whisper."""

    no_speech: float = 0.6
    """Nobody spoke if that is likelier than this, and the words are unlikely too."""
    avg_logprob: float = -1.0
    compression_ratio: float = 2.4
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Tried one after the other until one is believed. A stream has only the first: it cannot take back its words."""


_OPENAIS = Thresholds()
_ASTRAY = "the model did not begin as it was told to, so that the language is not known"


class PrefixMissing(EngineFailed):
    """A stream whose output does not begin as it was made to."""


class Transcriber:
    """Transcribes with one model."""

    def __init__(self, listener: Listener, adapter: Adapter | None = None, thresholds: Thresholds = _OPENAIS) -> None:
        self.listener = listener
        self.adapter = adapter or adapter_for(listener.vocabulary)
        self.ends = frozenset(map(listener.vocabulary.token_id, self.adapter.format.ends))
        """The tokens that end an output."""
        self._thresholds = thresholds

    async def run(
        self, blocks: Iterable[Samples], wish: Wish, *, stream: bool = False
    ) -> AsyncGenerator[TranscriptEvent, None]:
        """All that comes of a recording, whose samples are read as they are needed.

        stream: text goes out token by token, and is never taken back; otherwise once its chunk is believed.
        """
        self.adapter.check(wish)
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

    async def transcribe(self, blocks: Iterable[Samples], wish: Wish) -> Transcript:
        """The transcript alone."""
        found: Transcript | None = None
        async for event in self.run(blocks, wish):
            if isinstance(event, Transcript):
                found = event
        assert found is not None
        return found

    # --- One chunk -------------------------------------------------------------------------------------------------

    async def hear(self, chunk: Chunk, wish: Wish, stream: bool) -> AsyncGenerator[_Told, None]:
        if is_silent(chunk.samples):
            return
        if stream:
            attempt = _Attempt(self, chunk, wish, wish.temperature or 0.0)
            async for event in attempt.events():
                if attempt.astray:
                    raise PrefixMissing(_ASTRAY)
                yield event
            if attempt.astray:
                raise PrefixMissing(_ASTRAY)
            yield attempt.spent
            return
        limits = self._thresholds
        temperatures = limits.temperatures if wish.temperature is None else (wish.temperature,)
        spent = _Spent()
        for temperature in temperatures:
            attempt = _Attempt(self, chunk, wish, temperature)
            events = [event async for event in attempt.events()]
            spent = spent.plus(attempt.spent)
            if attempt.is_silence(limits) or not attempt.fails(limits):
                break
        if not attempt.is_silence(limits):
            for event in events:
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
class _Spent:
    """The tokens of an attempt."""

    prompt: int = 0
    completion: int = 0

    def plus(self, other: _Spent) -> _Spent:
        return _Spent(self.prompt + other.prompt, self.completion + other.completion)


@dataclass(frozen=True, slots=True)
class _Warned:
    """What a user should know of a chunk."""

    text: str


_Told = TranscriptEvent | _Spent | _Warned


class _Turn:
    """One chunk at work, whose events wait until it is its turn."""

    def __init__(self, transcriber: Transcriber, chunk: Chunk, wish: Wish, stream: bool) -> None:
        self.end = chunk.start + len(chunk.samples) / RATE
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(transcriber, chunk, wish, stream))

    async def _run(self, transcriber: Transcriber, chunk: Chunk, wish: Wish, stream: bool) -> None:
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
class _Attempt:
    """One chunk heard once, at one temperature."""

    transcriber: Transcriber
    chunk: Chunk
    wish: Wish
    temperature: float
    prefix: TokenSets = ANYTHING
    """What the output was made to begin with."""
    heard: Heard | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    astray: bool = False
    """The output began with something else."""

    async def events(self) -> AsyncGenerator[TranscriptEvent, None]:
        adapter, listener = self.transcriber.adapter, self.transcriber.listener
        request = adapter.hearing(self.chunk.samples, self.wish, self.temperature)
        self.prefix = request.prefix
        parser = Parser(adapter.format, vocabulary=listener.vocabulary, keep_message=False)
        segments = _Segments(self)
        async with aclosing(listener.listen(request)) as outputs:
            async for output in outputs:
                if isinstance(output, Heard):
                    self.heard = output
                    continue
                self.logprobs += [one.logprob for one in output.logprobs]
                for token in output.ids:  # one by one: each segment has its own
                    segments.take(token, in_prefix=self.note(token))
                    for said in segments.read(parser.feed_tokens([token])):
                        yield said
        if self.heard is None:
            raise EngineFailed("the model ended without saying how")
        self.astray = not self.prefix.accepts(self.tokens)
        for said in segments.read(parser.finish()):
            yield said
        for segment in segments.finish(self.heard):
            yield segment

    def note(self, token: int) -> bool:
        """Whether a token, the next one, is of those that the output was made to begin with."""
        allowed = self.prefix.allowed(self.tokens)
        self.tokens.append(token)
        self.astray = self.astray or (allowed is not None and token not in allowed)
        return allowed is not None and not self.astray

    @property
    def seconds(self) -> float:
        return len(self.chunk.samples) / RATE

    @property
    def probability(self) -> float | None:
        """How likely the language was, among those that it could be. None where it was given."""
        return None if self.wish.language is not None or not self.logprobs else math.exp(self.logprobs[0])

    @property
    def avg_logprob(self) -> float:
        """Of the text and its end, as OpenAI reckons it: an end that did not come counts, too."""
        logprobs = self.logprobs if self.astray else self.logprobs[len(self.prefix.sets) :]
        ended = bool(self.tokens) and self.tokens[-1] in self.transcriber.ends
        return sum(logprobs) / max(1, len(logprobs) if ended else len(logprobs) + 1)

    @property
    def spent(self) -> _Spent:
        return _Spent() if self.heard is None else _Spent(self.heard.prompt_tokens, self.heard.completion_tokens)

    def is_silence(self, limits: Thresholds) -> bool:
        no_speech = self.heard.no_speech if self.heard is not None else None
        return no_speech is not None and no_speech > limits.no_speech and self.avg_logprob < limits.avg_logprob

    def fails(self, limits: Thresholds) -> bool:
        assert self.heard is not None
        repeats = compression_ratio(self.text.strip()) > limits.compression_ratio or self.heard.reason == "loop"
        return repeats or self.avg_logprob < limits.avg_logprob


class _Segments:
    """What the parser says of the tokens, to the text and the segments of the recording."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt
        self._said: str | None = None
        """The language, by the model."""
        self._begin = 0.0
        self._text = ""
        self._tokens: list[int] = []
        self._done: list[tuple[float, float, str, tuple[int, ...]]] = []

    def take(self, token: int, in_prefix: bool) -> None:
        """The next token, before what the parser says of it."""
        if not in_prefix and token not in self._attempt.transcriber.ends:
            self._tokens.append(token)

    def read(self, events: Iterable[Event]) -> Iterator[TranscriptEvent]:
        attempt = self._attempt
        for event in events:
            if isinstance(event, Language):
                self._said = event.code
            elif isinstance(event, Content):
                if not attempt.text and self._language is not None:  # not before: where nothing is said, no language is
                    yield Detected(self._language, None if self._said is None else attempt.probability)
                self._text += event.text
                attempt.text += event.text
                yield Delta(event.text)
            elif isinstance(event, Timestamp):
                self._time(max(self._begin, min(event.seconds, attempt.seconds)))

    def finish(self, heard: Heard) -> Iterator[Segment]:
        self._close(self._attempt.seconds)
        attempt, start = self._attempt, self._attempt.chunk.start
        for begin, end, text, tokens in self._done:
            yield Segment(
                round(start + begin, 2),
                round(start + end, 2),
                text,
                self._language,
                tokens,
                attempt.temperature,
                attempt.avg_logprob,
                heard.no_speech,
            )

    @property
    def _language(self) -> str | None:
        adapter = self._attempt.transcriber.adapter
        if self._attempt.astray:
            return None
        if adapter.supports_language_detection:
            return self._said
        return self._said or adapter.language or self._attempt.wish.language

    def _time(self, seconds: float) -> None:
        """The end of a segment, or the beginning of one. Its token belongs to it."""
        token = self._tokens[-1:]
        if not self._close(seconds):
            self._tokens = token
        self._begin = seconds

    def _close(self, end: float) -> bool:
        if not self._text.strip():
            return False
        self._done.append((self._begin, end, self._text, tuple(self._tokens)))
        self._text, self._tokens = "", []
        return True


@dataclass
class _Whole:
    """The recording, as far as it is heard."""

    language: str | None = None
    probability: float | None = None
    text: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    spent: _Spent = field(default_factory=_Spent)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def add(self, event: _Told) -> Iterator[TranscriptEvent]:
        if isinstance(event, _Spent):
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
