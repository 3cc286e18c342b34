"""The sound that a client sends, made into utterances, and their words as they become certain.

With turn detection, the detector says where an utterance begins and ends. Without it, the client does (`commit`); the
detector then only keeps silence from the model. In both cases words are sought while somebody speaks, so that few are
left for the end. `Utterance.deltas` go out at once, or when the client commits, where only that gives them a place.

Bounds: a backlog makes `append` wait, and with it the connection (`LiveTranscription.caught_up`); `_MOST_OPEN`
utterances may be unfinished. Sound is kept only where the model of the conversation hears it, `_LONGEST` seconds of an
utterance.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Protocol

from ...speech.audio.decode import RATE, Samples
from ...speech.audio.pcm import SoundFormat, SoundReader, pcm_bytes
from ...speech.live.transcription import LiveTranscription
from ...speech.live.utterances import (
    Quiet,
    SpokenSound,
    Started,
    Stopped,
    UtteranceDetector,
    UtteranceEvent,
    UtteranceOptions,
)
from ...speech.transcriber import Transcriber
from ..errors import ApiError, api_error_of
from .event_writer import new_id
from .options import SessionOptions

_SLICE = 32_000
"""Bytes of sound that are worked on at a time."""
_MOST_OPEN = 8
_LONGEST = 600.0
_LEAST = 0.1
"""Seconds that can be committed. As in OpenAI's API."""


@dataclass(eq=False)
class Utterance:
    """What somebody says, as far as it has come."""

    id: str = field(default_factory=lambda: new_id("item"))
    hearing: LiveTranscription | None = None
    """None where nothing is transcribed."""
    kept: list[bytes] = field(default_factory=list, repr=False)
    """Its sound, as PCM of 16 kHz, where somebody wants it."""
    seconds: float = 0.0
    released: bool = False
    """Whether its words may go out."""
    held: list[str] = field(default_factory=list)
    """Words that wait for that."""
    task: asyncio.Task[None] | None = None
    error: ApiError | None = None

    @property
    def text(self) -> str:
        return "" if self.hearing is None else self.hearing.text


class UtteranceEvents(Protocol):
    """Who is told of utterances: a session."""

    async def started(self, utterance: Utterance, seconds: float) -> None: ...

    async def stopped(self, utterance: Utterance, seconds: float) -> None: ...

    async def committed(self, utterance: Utterance, by_detector: bool) -> None: ...

    async def heard(self, utterance: Utterance, text: str) -> None:
        """Words that are certain."""
        ...

    async def transcribed(self, utterance: Utterance) -> None:
        """All of it was heard, or `error` says why not."""
        ...


class InputAudio:
    """The input buffer of one session."""

    def __init__(
        self, transcriber: Transcriber | None, options: SessionOptions, listener: UtteranceEvents, *, keep: bool
    ) -> None:
        """keep: whether the sound of utterances is wanted."""
        self._transcriber = transcriber
        self._detector = None if transcriber is None else transcriber.detector
        self._options = options
        self._told = listener
        self._keep = keep
        self._reader = SoundReader(options.input_format)
        self._turns = self._new_turns()
        self._offset = 0.0
        """Seconds of the stream before the turns that are followed now."""
        self.open: Utterance | None = None
        self.unfinished: set[asyncio.Task[None]] = set()
        """The utterances that are being heard."""

    def _new_turns(self) -> UtteranceDetector | None:
        if self._detector is None:
            return None
        detection = self._options.turn_detection
        return UtteranceDetector(self._detector.listen(), UtteranceOptions() if detection is None else detection.turns)

    @property
    def format(self) -> SoundFormat:
        return self._reader.format

    def change(self, options: SessionOptions) -> None:
        """Go on with other options. What is open stays so."""
        before, self._options = self._options, options
        if options.input_format != self._reader.format:
            self._reader = SoundReader(options.input_format)
        if self._turns is not None and options.turn_detection != before.turn_detection:
            self._turns.change(UtteranceOptions() if options.turn_detection is None else options.turn_detection.turns)

    def committed_tasks(self) -> list[asyncio.Task[None]]:
        """The utterances that are over and not heard yet."""
        return [task for task in self.unfinished if self.open is None or task is not self.open.task]

    # What the client sends

    async def append(self, data: bytes) -> None:
        for at in range(0, len(data), _SLICE):
            samples = self._reader.feed(data[at : at + _SLICE])
            if self._options.turn_detection is not None:
                for event in await self._events(samples):
                    await self._follow(event)
            else:
                await self._add_by_hand(samples)
            if self.open is not None and self.open.hearing is not None:
                await self.open.hearing.caught_up()

    async def commit(self) -> Utterance:
        """What was said so far is an utterance. Raises `ApiError` where there is nothing."""
        utterance = self.open
        if utterance is None or utterance.seconds < _LEAST:
            have = 0.0 if utterance is None else 1000 * utterance.seconds
            message = f"the buffer has {have:.2f} ms of sound, too little to be committed: append 100 ms or more"
            raise ApiError(400, message, code="input_audio_buffer_commit_empty")
        if self._turns is not None:
            self._add(utterance, self._turns.flush(), silent=True)
            self._turns.end()
        await self._commit(utterance, by_detector=False)
        return utterance

    async def release(self) -> None:
        """The words of what is open may go out, though there may be more of it."""
        utterance = self.open = self.open or self._begin()
        await self._release(utterance)

    async def clear(self) -> None:
        """Forget what was said since the last utterance."""
        utterance, self.open = self.open, None
        self._reader = SoundReader(self.format)
        if self._turns is not None:
            self._turns.flush()
            self._turns.end()
        if utterance is not None and utterance.task is not None:
            await _cancelled(utterance.task)

    async def close(self) -> None:
        """Give all up."""
        self.open = None
        for task in list(self.unfinished):
            await _cancelled(task)

    # Utterances

    async def _events(self, samples: Samples) -> list[UtteranceEvent]:
        assert self._turns is not None, "turn detection needs a detector"
        return await asyncio.to_thread(list, self._turns.feed(samples))

    async def _follow(self, event: UtteranceEvent) -> None:
        """With turn detection: the detector says what belongs to an utterance."""
        if isinstance(event, Started):
            utterance = self.open = self._begin(released=True)
            await self._told.started(utterance, event.seconds)
        elif self.open is not None:
            if isinstance(event, SpokenSound):
                self._add(self.open, event.samples, silent=event.silent)
                if self._keep and self.open.seconds > _LONGEST and self._turns is not None:
                    self._turns.end()
                    await self._stop(self.open, self._turns.seconds)
            elif isinstance(event, Quiet) and self.open.hearing is not None:
                self.open.hearing.pause()
            elif isinstance(event, Stopped):
                await self._stop(self.open, event.seconds)

    async def _stop(self, utterance: Utterance, seconds: float) -> None:
        await self._told.stopped(utterance, seconds)
        await self._commit(utterance, by_detector=True)

    async def _add_by_hand(self, samples: Samples) -> None:
        """Without turn detection: all sound belongs to the utterance. The model hears what is speech of it."""
        utterance = self.open = self.open or self._begin()
        seconds = utterance.seconds + len(samples) / RATE
        if self._keep and seconds > _LONGEST:
            message = f"the buffer has {_LONGEST:g} seconds of sound, the most that it holds: commit or clear it"
            raise ApiError(413, message, code="input_audio_buffer_full")
        if self._turns is None:
            self._add(utterance, samples)
            return
        for event in await self._events(samples):
            if utterance.hearing is None:
                continue
            if isinstance(event, SpokenSound):
                utterance.hearing.add(event.samples, silent=event.silent)
            elif isinstance(event, Quiet | Stopped):
                utterance.hearing.pause()
        utterance.seconds = seconds
        if self._keep:
            utterance.kept.append(pcm_bytes(samples))

    def _begin(self, *, released: bool = False) -> Utterance:
        heard = self._options.transcription
        hearing = None
        if heard is not None and self._transcriber is not None:
            hearing = LiveTranscription(self._transcriber, heard.options)
        utterance = Utterance(hearing=hearing, released=released)
        if hearing is not None:
            utterance.task = asyncio.create_task(self._hear(utterance, hearing))
            self.unfinished.add(utterance.task)
            utterance.task.add_done_callback(self.unfinished.discard)
        return utterance

    def _add(self, utterance: Utterance, samples: Samples, *, silent: bool = False) -> None:
        utterance.seconds += len(samples) / RATE
        if utterance.hearing is not None:
            utterance.hearing.add(samples, silent=silent)
        if self._keep:
            utterance.kept.append(pcm_bytes(samples))

    async def _commit(self, utterance: Utterance, *, by_detector: bool) -> None:
        self.open = None
        await self._told.committed(utterance, by_detector)
        await self._release(utterance)
        if utterance.hearing is not None:
            utterance.hearing.end()
        else:
            await self._told.transcribed(utterance)
        while len(self.unfinished) > _MOST_OPEN:
            await asyncio.wait(self.unfinished, return_when=asyncio.FIRST_COMPLETED)

    async def _release(self, utterance: Utterance) -> None:
        utterance.released = True
        held, utterance.held = utterance.held, []
        for text in held:
            await self._told.heard(utterance, text)

    async def _hear(self, utterance: Utterance, hearing: LiveTranscription) -> None:
        try:
            async for text in hearing.words():
                if utterance.released and not utterance.held:
                    await self._told.heard(utterance, text)
                else:
                    utterance.held.append(text)
        except OSError:
            return  # nobody is there to be told
        except Exception as error:
            utterance.error = api_error_of(error)
        with contextlib.suppress(OSError):
            await self._told.transcribed(utterance)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
