"""A text that is read aloud while a model is still writing it: a sentence at a time, by the voice that is loaded.

    narrator = Narrator(ChosenVoice(speaker, "af_heart"), tell)
    narrator.write("Hello there, my friend. How")  # the first sentence is spoken from here on
    narrator.write(" are you?")
    await narrator.finish()                        # all was spoken, and told

Each sentence is told when its first sound is there: its text, then its sound in short parts. So what was told of a
text that is broken off is what somebody could have heard, but for the end of its last sentence. The text waits for the
voice, and the model for neither. Of the first sentence, the voice is asked for its sound as soon as there is some.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from ...speech.synthesis.sentences import SentenceCutter, read_aloud
from ...speech.synthesis.speaker import CannotSpeak, Sound, Speaker, SpeakRequest, Spoken

_PART = 0.2
"""Seconds of sound in one event."""


@dataclass(frozen=True, slots=True)
class ChosenVoice:
    """A voice of a speaker, and how fast it speaks."""

    speaker: Speaker
    name: str
    speed: float = 1.0

    def request(self, text: str, *, soon: bool) -> SpeakRequest:
        return SpeakRequest(text=text, voice=self.name, speed=self.speed, soon=soon)


@dataclass(frozen=True, slots=True, eq=False)
class ReadAloud:
    """A sentence with its first sound, or more sound of the same sentence."""

    text: str
    """None of it where this is more of the same."""
    sound: Sound
    total: int
    """How many samples the sentence has in all."""


class Narrator:
    """Reads one text.

    tell: is given all sound, in order, each sentence with the first of its own.
    """

    def __init__(self, voice: ChosenVoice, tell: Callable[[ReadAloud], Awaitable[None]]) -> None:
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
        is_first = True
        while (sentence := await self._sentences.get()) is not None:
            text: str | None = sentence
            held = [np.zeros(0, np.float32)]
            async with aclosing(self._sounds(sentence, soon=is_first)) as spoken:
                async for each in spoken:
                    is_first = False
                    if text is None or each.total:
                        await self._tell(ReadAloud(text or "", each.sound, each.total))
                        text = None
                    else:
                        held.append(each.sound)
            if text is not None:  # how long its sound is was not known before all of it was there
                sound = np.concatenate(held)
                await self._tell(ReadAloud(text, sound, len(sound)))

    async def _sounds(self, sentence: str, *, soon: bool) -> AsyncGenerator[Spoken, None]:
        words = read_aloud(sentence)
        if not words:
            return
        try:
            async with aclosing(self._voice.speaker.speak(self._voice.request(words, soon=soon))) as spoken:
                async for each in spoken:
                    yield each
        except CannotSpeak:
            pass


def parts(sound: Sound, rate: int) -> Iterator[Sound]:
    """A sound in parts of which each is one event."""
    size = round(_PART * rate)
    return (sound[at : at + size] for at in range(0, len(sound), size))
