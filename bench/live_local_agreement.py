"""LocalAgreement-2 as `whisper_streaming` does it, written after its paper ("Turning Whisper into Real-Time
Transcription System", Macháček, Dabre and Bojar, 2023) and its description, on the same listener as ours.

All of the buffer is transcribed each time that so much new sound has come (`chunk`, one second by default there), with
times of words, and with the last 200 characters that have left the buffer as the prompt. Words that lie before the last
one that is confirmed are dropped, and words that repeat its end (up to five). What two passes in a row have in common
is confirmed. When the buffer is longer than 15 s, it is cut at the end of the last segment that is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import numpy as np

from unbraid.speech.attempt import Attempt
from unbraid.speech.audio.chunking import Chunk
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Segment, Word

TRIM = 15.0
_PROMPT = 200
_NEAR = 1.0
_TOLERANCE = 0.1
_NGRAM = 5


@dataclass
class LocalAgreement:
    """One talker."""

    transcriber: Transcriber
    chunk: float = 1.0
    text: str = ""
    passes: int = 0
    _sound: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    _start: float = 0.0
    """Where the buffer begins, in seconds of the stream."""
    _confirmed: list[Word] = field(default_factory=list)
    _before: list[Word] = field(default_factory=list)
    """What the last pass has heard after the confirmed words."""
    _gone: str = ""
    """Confirmed text that has left the buffer."""
    _ended: bool = False
    _waiting: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, samples: Samples) -> None:
        self._sound = np.concatenate([self._sound, samples])
        self._waiting += len(samples)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def words(self) -> AsyncGenerator[str, None]:
        while True:
            while self._waiting < self.chunk * RATE and not self._ended:
                self._changed.clear()
                await self._changed.wait()
            ended = self._ended
            self._waiting = 0
            if told := await self._pass():
                yield told
            if ended:
                rest = "".join(word.text for word in self._before)
                self.text += rest
                if rest:
                    yield rest
                return

    async def _pass(self) -> str:
        sound, start = self._sound, self._start
        options = TranscriptionOptions(
            timestamps=True, words=True, vad=None, prompt=self._gone[-_PROMPT:], language="en"
        )
        attempt = Attempt(self.transcriber.listener, self.transcriber.adapter, Chunk(start, sound), options, 0.0)
        await attempt.decode()
        self.passes += 1
        segments = [event for event in attempt.events if isinstance(event, Segment)]
        heard = [word for segment in segments for word in segment.words]
        new = self._new(heard)
        agreed: list[Word] = []
        for word, other in zip(new, self._before, strict=False):
            if word.text != other.text:
                break
            agreed.append(word)
        self._confirmed += agreed
        self._before = new[len(agreed) :]
        if len(self._sound) / RATE > TRIM:
            self._trim(segments)
        told = "".join(word.text for word in agreed)
        self.text += told
        return told

    def _new(self, heard: list[Word]) -> list[Word]:
        last = self._confirmed[-1].end if self._confirmed else self._start
        new = [word for word in heard if word.start > last - _TOLERANCE]
        if new and self._confirmed and abs(new[0].start - last) < _NEAR:
            for size in range(min(len(self._confirmed), len(new), _NGRAM), 0, -1):
                if [word.text for word in self._confirmed[-size:]] == [word.text for word in new[:size]]:
                    return new[size:]
        return new

    def _trim(self, segments: list[Segment]) -> None:
        last = self._confirmed[-1].end if self._confirmed else 0.0
        ends = [segment.end for segment in segments[:-1] if segment.end <= last]
        if ends:
            cut = ends[-1]
            self._gone = "".join(word.text for word in self._confirmed if word.end <= cut)
            self._sound = self._sound[round((cut - self._start) * RATE) :]
            self._start = cut
