"""The transcriber: a recording of any length to its transcript.

    transcriber = Transcriber(WhisperEngine())
    async for event in transcriber.run(read("talk.mp3"), TranscriptionOptions()):
        ...  # Detected, Delta, Segment, Progress; the last one is the Transcript

What is no speech is left out of the recording, and the rest is cut into chunks. Several chunks are transcribed at once,
and their events come out in order. A chunk whose output fails the thresholds is decoded again at a higher temperature
(temperature fallback, as in OpenAI's Whisper); `attempt` is one such try. A model sometimes ends its output before the
speech ends. Then what is left of the chunk is decoded, too.

The law of this module: the text is the same whatever is asked to come with it. What the model is asked depends on the
listener, never on whether times, words or a stream are wanted. So all replies are views of one transcript. A stream
tells text as it is decoded, if nothing speaks against it so far (`Attempt.believable`); `Transcript` settles it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ..engines.base import EngineFailed, TokenLogprob
from ..fairness import FairQueue, client
from .attempt import Attempt, Attempts, AttemptTokens, Thresholds
from .audio.chunking import Chunk, cut_in_steps, is_silent, is_steady
from .audio.decode import Samples
from .audio.vad import SpeechDetector, SpeechSpans
from .decoding.language_changes import LanguageQuestion
from .errors import UnsupportedOption
from .families import adapter_for
from .listening import Adapter, Listener, family_of, max_beams, supports_word_times
from .options import TranscriptionOptions
from .speakers.campplus import VoiceModel
from .speakers.turns import Voices
from .transcript import Delta, Detected, Segment, Transcript, TranscriptEvent, TranscriptProgress

T = TypeVar("T")

_DEFAULT_THRESHOLDS = Thresholds()
_SCANS = 2  # threads that read recordings
_BEAMS = 5  # where none are given, the listener has a beam search and a voice was detected
_LEAST_HEARD = 0.2  # seconds of a chunk that an output must have got further for the rest to be decoded
_MOST_PARTS = 12  # in which a chunk is decoded: a bound for models that stop again and again
_SLACK = 0.3  # seconds by which the end of the last word may be wrong
_LEAST_LEFT = 1.0  # seconds of speech after the last word that are more than its end
_NO_PREFIX = "the model did not begin with the tokens it was given, so that the language is not known"


class PrefixMissing(EngineFailed):
    """An output in a stream that does not begin with its prefix."""


class Transcriber:
    """Transcribes with one model."""

    def __init__(
        self,
        listener: Listener,
        adapter: Adapter | None = None,
        thresholds: Thresholds = _DEFAULT_THRESHOLDS,
        detector: SpeechDetector | None = None,
        stream_beams: int | None = None,
        voices: VoiceModel | None = None,
    ) -> None:
        """detector: says where somebody speaks. Without one, all of a recording is decoded.
        stream_beams: the width of the beam search for streams that name none; None for the same as otherwise.
        voices: tells speakers apart. Without one, nobody can ask who speaks.
        """
        self._voices = voices
        self._stream_beams = stream_beams
        self.listener = listener
        self.detector = detector
        self.adapter = adapter or adapter_for(listener.vocabulary, family_of(listener))
        self._thresholds = thresholds
        self._scanner = _Scanner()

    def check(self, options: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for options that the model does not support; `UnsupportedOption` for those of the
        listener."""
        self.adapter.check(options)
        if options.words and not supports_word_times(self.listener):
            raise UnsupportedOption("this model cannot time words; ask for segments", "words")
        if options.speakers and self._voices is None:
            raise UnsupportedOption("no model that tells speakers apart is loaded", "speakers")
        if options.logprobs and self.listener.vocabulary is None:
            raise UnsupportedOption("the server that transcribes gives text and no tokens; leave it out", "logprobs")
        if options.beams is None:
            return
        most = max_beams(self.listener)
        if not 1 <= options.beams <= most:
            limits = f"takes 1 to {most} beams" if most > 1 else "has no beam search: it takes 1 beam"
            raise UnsupportedOption(f"this model {limits}, not {options.beams}", "beams")
        if options.beams > 1 and options.temperature:
            raise UnsupportedOption("beam search needs temperature 0: leave out the beams or the temperature", "beams")

    async def run(
        self, blocks: Iterable[Samples], options: TranscriptionOptions, *, stream: bool = False
    ) -> AsyncGenerator[TranscriptEvent, None]:
        """Transcribe a recording. Its samples are read as they are needed.

        stream: the text goes out as it comes, so there is no place for a warning about it: an output that does not
            begin with its prefix is an error.
        """
        self.check(options)
        voice = None if self.detector is None else self.detector.listen()
        speech = SpeechSpans(blocks, voice, options.vad)
        chunks = cut_in_steps(speech, self.adapter.max_seconds, speech.spans, speech.talk)
        voices = Voices(self._voices) if options.speakers and self._voices is not None else None
        builder = _TranscriptBuilder(options)
        tasks: deque[_ChunkTask] = deque()
        try:
            more = True
            while more or tasks:
                while more and len(tasks) < self.listener.parallel:
                    chunk = await self._scanner.next(chunks)
                    more = chunk is not None
                    if chunk is not None:
                        if voices is not None:
                            await self._scanner.step(partial(voices.add, chunk))
                        tasks.append(_ChunkTask(self, chunk, self._decoding(options, stream), stream, speech))
                if tasks:
                    task = tasks[0]
                    async for event in task.events():
                        for public in builder.add(event):
                            yield public
                    tasks.popleft()
                    yield TranscriptProgress(task.end)
        finally:
            for task in tasks:
                await task.cancel()
        builder.seconds = speech.seconds
        transcript = builder.transcript(getattr(blocks, "warnings", ()))
        if voices is not None:
            transcript = await self._scanner.step(partial(voices.labelled, transcript))
        yield _without_words(transcript) if options.speakers and not options.words else transcript

    async def transcribe(self, blocks: Iterable[Samples], options: TranscriptionOptions) -> Transcript:
        """The transcript alone."""
        transcript: Transcript | None = None
        async for event in self.run(blocks, options):
            if isinstance(event, Transcript):
                transcript = event
        assert transcript is not None
        return transcript

    def _decoding(self, options: TranscriptionOptions, stream: bool) -> TranscriptionOptions:
        """What the model is asked: always for timestamps, if it can write them, and for the times of tokens, if the
        listener can tell. With timestamps a model says how far it has listened, so what it leaves out can be found."""
        return replace(
            options,
            timestamps=self.adapter.supports_timestamps,
            words=supports_word_times(self.listener),
            beams=self._beams(options, stream) if options.beams is None else options.beams,
        )

    def _beams(self, options: TranscriptionOptions, stream: bool) -> int:
        """The width of the beam search where none is given. Beams find likelier words, in noise too: so they need a
        detector that says that somebody speaks."""
        heeded = self.detector is not None and options.vad is not None
        beams = self._stream_beams if stream and self._stream_beams is not None else _BEAMS
        return min(beams, max_beams(self.listener)) if heeded else 1

    async def transcribe_chunk(
        self, chunk: Chunk, options: TranscriptionOptions, stream: bool, recording: object = None
    ) -> AsyncGenerator[_ChunkEvent, None]:
        """The events of one chunk: of all that is said in it, in one language or in several."""
        question = LanguageQuestion.of(self.listener, self.adapter, chunk, options, recording)
        async for event in self._part(chunk, options, stream, recording, question):
            yield event
        if question is None or not question.doubtful:
            return
        division = await question.divided()
        if division is not None:
            options = replace(options, languages=division.languages)
        for part in (chunk,) if division is None else division.parts:
            async for event in self._part(part, options, stream, recording):
                yield event

    async def _part(
        self,
        chunk: Chunk,
        options: TranscriptionOptions,
        stream: bool,
        recording: object,
        question: LanguageQuestion | None = None,
    ) -> AsyncGenerator[_ChunkEvent, None]:
        """The events of a chunk that is in one language. There are none where the question says that it may be in
        several."""
        rest: Chunk | None = chunk
        for _ in range(_MOST_PARTS):
            if rest is None or is_silent(rest.samples) or (rest.speech is None and is_steady(rest.samples)):
                break
            attempts = Attempts(self._thresholds)
            for temperature in self.temperatures(options):
                attempt = Attempt(self.listener, self.adapter, rest, options, temperature, recording, question=question)
                question = None
                held: list[Delta] = []
                async with aclosing(attempt.deltas()) as deltas:
                    async for delta in deltas:
                        held.append(delta)
                        if stream and not attempts.counts.completion and attempt.believable(self._thresholds):
                            yield _Ahead(attempt.detected, tuple(held))
                            held = []
                if attempt.question is not None and attempt.question.doubtful:
                    return
                if stream and attempt.prefix_missing:
                    raise PrefixMissing(_NO_PREFIX)
                if attempts.add(attempt):
                    break
            yield attempts.counts
            best = attempts.best
            if best is not None:
                for event in best.events:
                    yield event
                if best.prefix_missing:
                    yield _Warning(f"{_NO_PREFIX}, from {rest.start:.1f} s on")
            elif attempts.refused:
                yield _Warning(f"no words could be made out from {rest.start:.1f} to {rest.time(rest.seconds):.1f} s")
            rest = None if best is None else _left(best)

    def temperatures(self, options: TranscriptionOptions) -> tuple[float, ...]:
        return (options.temperature,) if options.temperature else self._thresholds.temperatures


def _without_words(transcript: Transcript) -> Transcript:
    return replace(transcript, segments=tuple(replace(segment, words=()) for segment in transcript.segments))


def _left(attempt: Attempt) -> Chunk | None:
    """What is left of the chunk if the model ended its output before the speech ended. It begins in the pause after the
    last word: the time that the model wrote may lie in the middle of the next one."""
    chunk, until = attempt.chunk, attempt.until
    assert attempt.end is not None
    broken_off = attempt.end.reason == "length"
    if not attempt.text.strip() or until < _LEAST_HEARD:
        return None
    if chunk.speech is None and not broken_off and not attempt.goes_on:
        return None  # nothing says that there is more
    left = chunk.speech_after(until + _SLACK)
    if left <= (_SLACK if broken_off else _LEAST_LEFT):
        return None
    return chunk.after(chunk.quietest(attempt.said, until) if attempt.said else until)


class _Scanner:
    """Reads recordings and looks for speech in them, in threads of its own.

    A recording is read in steps: up to the next chunk, or half a minute in which nobody speaks. Clients take turns
    between steps, and one whose client has left has no further step. So hours of silence hold up nobody.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_SCANS, "unbraid-scan")
        self._turns = FairQueue(_SCANS, sys.maxsize)

    async def next(self, chunks: Iterator[Chunk | None]) -> Chunk | None:
        """The next chunk; None at the end."""
        while True:
            async with self._turns.place(client.get()):
                over, chunk = await self._step(partial(_read, chunks))
            if over or chunk is not None:
                return chunk

    async def step(self, work: Callable[[], T]) -> T:
        """Work on one chunk that is no reading."""
        async with self._turns.place(client.get()):
            return await self._step(work)

    async def _step(self, work: Callable[[], T]) -> T:
        """What `work` returns in a thread. A caller that is cancelled still waits for it to end, because the file must
        not be closed while it is read."""
        reading = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait([reading])
            reading.exception()  # retrieved, so that asyncio does not log it
            raise


def _read(chunks: Iterator[Chunk | None]) -> tuple[bool, Chunk | None]:
    """Whether the recording is over, and a chunk if there is one."""
    for chunk in chunks:
        return False, chunk
    return True, None


@dataclass(frozen=True, slots=True)
class _Warning:
    """A warning about a chunk, for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The language and the text that a stream tells while a chunk is still decoded. They come once more when they are
    settled."""

    detected: Detected | None
    deltas: tuple[Delta, ...]


_ChunkEvent = TranscriptEvent | AttemptTokens | _Warning | _Ahead


class _ChunkTask:
    """One chunk in progress. Its events are kept until those of all chunks before it are out."""

    def __init__(
        self, transcriber: Transcriber, chunk: Chunk, options: TranscriptionOptions, stream: bool, recording: object
    ) -> None:
        self.end = chunk.time(chunk.seconds, ends=True)
        self._queue: asyncio.Queue[_ChunkEvent | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(transcriber.transcribe_chunk(chunk, options, stream, recording)))

    async def _run(self, chunk_events: AsyncGenerator[_ChunkEvent, None]) -> None:
        try:
            async with aclosing(chunk_events) as events:
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

    options: TranscriptionOptions
    language: str | None = None
    probability: float | None = None
    text: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    counts: AttemptTokens = field(default_factory=AttemptTokens)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    _ahead: str = ""
    """What was told before it was settled."""
    _settling: bool = False
    """Whether a chunk is decoded, and its text is settled now."""
    _named: bool = False
    """Whether the language was told."""

    def add(self, event: _ChunkEvent) -> Iterator[TranscriptEvent]:
        """Add what a chunk gave. Yields what the caller is told of it."""
        if isinstance(event, _Ahead):
            yield from self._tell_ahead(event)
        elif (public := self._added(event)) is not None:
            yield public

    def _tell_ahead(self, event: _Ahead) -> Iterator[TranscriptEvent]:
        if event.detected is not None and not self._named:
            self._named = True
            yield event.detected
        self._ahead = "" if self._settling else self._ahead
        self._settling = False
        self._ahead += "".join(delta.text for delta in event.deltas)
        yield from event.deltas

    def _added(self, event: TranscriptEvent | AttemptTokens | _Warning) -> TranscriptEvent | None:
        if isinstance(event, AttemptTokens):
            self._ahead, self._settling = "" if self._settling else self._ahead, True
            self.counts = self.counts.plus(event)
            return None
        if isinstance(event, _Warning):
            self.warnings.append(event.text)
            return None
        if isinstance(event, Detected):
            if self.language is not None:
                return None
            self.language, self.probability = event.language, event.probability
            was_named, self._named = self._named, True
            return None if was_named else event
        if isinstance(event, Delta):
            self.text.append(event.text)
            if self.options.logprobs:
                self.logprobs += event.logprobs
            return self._not_told(event)
        if isinstance(event, Segment):
            self.segments.append(event if self.options.words or self.options.speakers else replace(event, words=()))
            if self.options.speakers:
                return None  # who says it is known at the end
            return self.segments[-1]
        return event

    def _not_told(self, delta: Delta) -> Delta | None:
        """What is new in text that is settled. Where another attempt has won, that is all from the first difference
        on: what was told before cannot be taken back."""
        ahead, text = self._ahead, delta.text
        if ahead.startswith(text):
            self._ahead = ahead[len(text) :]
            return None
        self._ahead = ""
        return replace(delta, text=text.removeprefix(ahead))

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
            tuple(self.logprobs),
        )
