"""A text that is read aloud while a model is still writing it: a sentence at a time, by the voice that is loaded.

    narrator = Narrator(ChosenVoice(speaker, "af_heart"), tell)
    narrator.write("Hello there, my friend. How")  # the first sentence is spoken from here on
    narrator.write(" are you?")
    await narrator.finish()                        # all was spoken, and told

Each sentence is told when its sound is there: its text, then its sound in short parts. So what was told of a text that
is broken off is what somebody could have heard. The text waits for the voice, and the model for neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from ...speech.synthesis.sentences import SentenceCutter, read_aloud
from ...speech.synthesis.speaker import CannotSpeak, Sound, Speaker, SpeakRequest

_PART = 0.2
"""Seconds of sound in one event."""


@dataclass(frozen=True, slots=True)
class ChosenVoice:
    """A voice of a speaker, and how fast it speaks."""

    speaker: Speaker
    name: str
    speed: float = 1.0

    def request(self, text: str) -> SpeakRequest:
        return SpeakRequest(text=text, voice=self.name, speed=self.speed)


class Narrator:
    """Reads one text.

    tell: is given each sentence with all its sound, in order.
    """

    def __init__(self, voice: ChosenVoice, tell: Callable[[str, Sound], Awaitable[None]]) -> None:
        self._voice = voice
        self._tell = tell
        self._cutter = SentenceCutter()
        self._sentences: asyncio.Queue[str | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read())

    def write(self, text: str) -> None:
        """More of the text. Raises what has gone wrong with what came before."""
        if self._task.done():
            self._task.result()
        for sentence in self._cutter.feed(text):
            self._sentences.put_nowait(sentence)

    async def finish(self) -> None:
        """There is no more of it. Waits until all was told."""
        for sentence in self._cutter.finish():
            self._sentences.put_nowait(sentence)
        self._sentences.put_nowait(None)
        await self._task

    async def close(self) -> None:
        """Stop in the middle."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        while (sentence := await self._sentences.get()) is not None:
            await self._tell(sentence, await self._sound(sentence))

    async def _sound(self, sentence: str) -> Sound:
        """The sound of a sentence; none where there is nothing in it that can be spoken."""
        words = read_aloud(sentence)
        stretches: list[Sound] = []
        try:
            if words:
                async with aclosing(self._voice.speaker.speak(self._voice.request(words))) as spoken:
                    stretches = [each.sound async for each in spoken]
        except CannotSpeak:
            pass
        return np.concatenate(stretches) if stretches else np.zeros(0, np.float32)


def parts(sound: Sound, rate: int) -> Iterator[Sound]:
    """A sound in parts of which each is one event."""
    size = round(_PART * rate)
    return (sound[at : at + size] for at in range(0, len(sound), size))
