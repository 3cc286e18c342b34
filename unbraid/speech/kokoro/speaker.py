"""Kokoro, as a speaker: a sentence after the other, in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import numpy as np

from ...engines.base import Load
from ..synthesis.sentences import sentences
from ..synthesis.speaker import FASTEST, SLOWEST, CannotSpeak, SpeakRequest, Spoken
from ..synthesis.turns import SentenceTurns
from .files import DEFAULT_KOKORO, KokoroFiles, resolve_kokoro
from .model import FRAME, RATE, KokoroModel
from .notation import LANGUAGES, phonetic, tokens


class KokoroSpeaker:
    """A Kokoro in this process.

    model: what `resolve_kokoro` takes or returns.
    queue_size: how many requests there may be at once.
    """

    rate = RATE

    def __init__(
        self,
        model: str | Path | KokoroFiles = DEFAULT_KOKORO,
        *,
        queue_size: int = 64,
        threads: int | None = None,
    ) -> None:
        self.files = model if isinstance(model, KokoroFiles) else resolve_kokoro(model)
        self.voices = tuple(self.files.voices)
        self._model = KokoroModel(self.files, threads=threads)
        self._turns = SentenceTurns(self.model, queue_size)
        short: dict[str, list[str]] = {}
        for name in self.voices:
            short.setdefault(name.partition("_")[2], []).append(name)
        self._short = {name: voices[0] for name, voices in short.items() if len(voices) == 1}
        phonetic("a", LANGUAGES["a"])  # a missing espeak-ng is reported at the start

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def load(self) -> Load:
        return self._turns.load

    def check_request(self, request: SpeakRequest) -> None:
        """See `Speaker`."""
        self._voice(request.voice)
        if not SLOWEST <= request.speed <= FASTEST:
            raise CannotSpeak(f"speed must be from {SLOWEST:g} to {FASTEST:g}, not {request.speed:g}", field="speed")
        if not request.text.strip():
            raise CannotSpeak("input is empty: there is nothing to speak", field="input")

    async def speak(self, request: SpeakRequest) -> AsyncGenerator[Spoken, None]:
        """See `Speaker`."""
        self.check_request(request)
        voice = self._voice(request.voice)
        with self._turns.request():
            pieces = await asyncio.to_thread(sentences, request.text)
            heard = False
            work = [partial(self._spoken, piece, voice, request.speed) for piece in pieces]
            coming = self._turns.soon(work[0])
            try:
                for following in [*work[1:], None]:
                    spoken = await self._turns.result(coming)
                    if following is not None:
                        coming = self._turns.soon(following)  # it is made while this one is sent
                    if spoken.read:
                        heard = True
                        yield spoken
            finally:
                coming.cancel()
        if not heard:
            message = "input has nothing that can be spoken: give words in the language of the voice"
            raise CannotSpeak(message, field="input")

    async def close(self) -> None:
        await self._turns.close()

    def _voice(self, name: str) -> str:
        """The voice of that name, or of the short name that only one has: `heart` is `af_heart`."""
        found = name if name in self.files.voices else self._short.get(name)
        if found is None:
            message = f"voice: there is no {name[:64]!r}; there are {', '.join(self.voices)}"
            raise CannotSpeak(message, field="voice")
        return found

    # In the thread

    def _spoken(self, piece: str, voice: str, speed: float) -> Spoken:
        written = phonetic(piece, LANGUAGES[voice[0]])
        parts = tokens(written, self.files.vocabulary) if any(map(str.isalpha, written)) else []
        style = self.files.voices[voice]
        made = [self._model.speak(part, style, speed) for part in parts]
        sound = np.concatenate(made) if made else np.zeros(0, np.float32)
        return Spoken(sound, sum(map(len, parts)), len(sound) // FRAME)
