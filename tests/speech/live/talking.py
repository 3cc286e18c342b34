"""Talkers and listeners for tests of live speech: who says what when is in the samples, so nothing has to be guessed.

`say` makes sound in which each word is a stretch of one level. `WordListener` hears such sound as a Whisper would: it
goes on from given words, takes a word that is cut off for another one, and changes its mind about punctuation.
`LevelVoice` takes what is loud for speech.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from functools import cache

import numpy as np

from unbraid.engines.base import Piece, TokenLogprob
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.audio.vad import FRAME
from unbraid.speech.listening import ListenEnd, ListenRequest, TextVocabulary
from unbraid.speech.live.transcription import LiveTranscription
from unbraid.speech.whisper.tokens import WhisperTokens
from unbraid.tokens import vocabulary

from ...support.real_tokenizers import whisper_like

WORD = 0.4
"""Seconds of a word."""
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_STEP = 0.05


def say(words: Sequence[str], *, gap: float = 0.0) -> Samples:
    """Sound with these words. Without a gap, the same word twice is one."""
    parts = []
    tone = np.sin(2 * np.pi * 500 * np.arange(round(WORD * RATE)) / RATE)
    for word in words:
        level = _STEP * (1 + WORDS.index(word))
        parts += [(level * tone).astype(np.float32), silence(gap)]
    return np.concatenate(parts) if parts else silence(0)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def words_in(samples: Samples) -> list[tuple[str, bool]]:
    """The words that are said, and whether each is there in full. Less than 40 ms of one is not heard."""
    size = RATE // 100
    frames = np.abs(samples[: len(samples) // size * size].reshape(-1, size)).max(axis=1, initial=0.0)
    numbers = [min(round(float(level) / _STEP), len(WORDS)) for level in frames]
    runs = [(number, len(list(group))) for number, group in itertools.groupby(numbers)]
    return [(WORDS[number - 1], count * size >= 0.9 * WORD * RATE) for number, count in runs if number and count >= 4]


class LevelVoice:
    """Speech is what is loud. Takes the place of Silero's detector, and of one recording for it."""

    def listen(self) -> LevelVoice:
        return LevelVoice()

    def feed(self, samples: Samples) -> Samples:
        frames = np.abs(samples.reshape(-1, FRAME)).max(axis=1, initial=0.0)
        found: Samples = (frames > _STEP / 2).astype(np.float32)
        return found


class WordListener:
    """Hears the words of `say`.

    goes_on: whether it can be made to go on from words.
    """

    model = "words"
    parallel = 1

    def __init__(self, vocabulary: TextVocabulary, *, goes_on: bool = True, language: str = "en") -> None:
        self.vocabulary = vocabulary
        self.goes_on_from_words = goes_on
        self.language = language
        self.requests: list[ListenRequest] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        """Where it is set, outputs wait for it."""
        self.closed = 0

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            for token in self._output(request):
                yield Piece((token,), logprobs=(TokenLogprob(token, b"", -0.1),))
            yield ListenEnd("stop", len(request.prompt), 1)
        except (GeneratorExit, asyncio.CancelledError):
            self.closed += 1
            raise

    def _output(self, request: ListenRequest) -> list[int]:
        known = special_tokens()
        begun = [min(some) if len(some) == 1 else known.language(self.language) for some in request.prefix.sets]
        heard = words_in(request.samples)
        text = "".join(f" {word if whole else word[:2]}" for word, whole in heard)
        # A pass in two ends with a full stop where there may be more: punctuation is not to be relied on.
        text += "." if len(request.samples) // (RATE // 2) % 2 else ""
        written = encode(text)
        if request.goes_on:
            given = begun[3:]
            said = whisper_like().decode(given)
            rest = len(said.split())
            text = "".join(f" {word if whole else word[:2]}" for word, whole in heard[rest:])
            written = encode(text + ("." if len(request.samples) // (RATE // 2) % 2 and text else ""))
        return [*begun, *written, known.eot]

    async def close(self) -> None:
        """Nothing to be released."""


@cache
def special_tokens() -> WhisperTokens:
    return WhisperTokens(vocabulary(whisper_like()))


def encode(text: str) -> list[int]:
    return list(whisper_like().encode(text, add_special_tokens=False).ids)


async def heard_in_steps(
    hearing: LiveTranscription, sound: Samples, cuts: Sequence[int], *, pauses: bool = True
) -> list[str]:
    """What is heard if the sound comes in these parts, each after all before it was listened to."""
    told: list[str] = []

    async def listen() -> None:
        told.extend([text async for text in hearing.words()])

    task = asyncio.create_task(listen())
    for start, end in zip([0, *cuts], [*cuts, len(sound)], strict=True):
        hearing.add(sound[start:end], silent=not sound[start:end].any())
        if pauses and end >= RATE // 4 and not np.abs(sound[end - RATE // 4 : end]).any():
            hearing.pause()
        for _ in range(50):  # let it do what it can
            await asyncio.sleep(0)
    hearing.end()
    await task
    return told
