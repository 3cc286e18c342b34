"""What the tests of a transcriber share: checks of transcripts, and a listener that writes what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tokenizers

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.base import Piece, TokenLogprob
from unbraid.speech.audio.chunking import Chunk, cut, is_silent
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.listening import EndReason, ListenEnd, ListenRequest, Opening
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Transcript, TranscriptEvent
from unbraid.speech.whisper.tokens import WhisperTokens
from unbraid.templates import encoder
from unbraid.tokens import vocabulary

from ..support.real_tokenizers import whisper_like
from ..support.waiting import until
from .listening import run
from .noises import syllables
from .whisper.whisper_models import prompt


async def all_of(events: AsyncGenerator[TranscriptEvent, None]) -> list[TranscriptEvent]:
    return [event async for event in events]


def texts(events: Sequence[TranscriptEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Delta)]


def end(events: Sequence[TranscriptEvent]) -> Transcript:
    last = events[-1]
    assert isinstance(last, Transcript)
    return last


def in_blocks(samples: Samples, size: int) -> list[Samples]:
    return [samples[at : at + size] for at in range(0, len(samples), size)]


def check(transcript: Transcript, tokenizer: tokenizers.Tokenizer) -> None:
    """What is true of every transcript."""
    known = WhisperTokens(vocabulary(tokenizer))
    at = 0.0
    for segment in transcript.segments:
        assert at <= segment.start <= segment.end <= transcript.duration + 0.006
        at = segment.end
        spelled = [token for token in segment.tokens if token < known.eot]
        assert tokenizer.decode(spelled) == segment.text
        assert all(token >= known.first_timestamp for token in set(segment.tokens) - set(spelled))
    assert "".join(segment.text for segment in transcript.segments).strip() == transcript.text
    assert "<|" not in transcript.text


@cache
def special_tokens() -> WhisperTokens:
    return WhisperTokens(vocabulary(whisper_like()))


@dataclass
class Saying:
    """What a listener writes."""

    ids: Sequence[int]
    reason: EndReason = "stop"
    logprob: float = -0.1
    no_speech: float = 0.01
    early: bool = False
    """Whether it is known from the first token on how likely it is that nobody spoke."""
    ready: Callable[[], bool] = lambda: True
    """It begins once this is so."""
    piece: int = 1
    """Tokens that come at once."""


class TokenizerVocabulary:
    version = None
    dummy_prefix = False

    def __init__(self) -> None:
        self._encoder = encoder(whisper_like())
        self.token_id = self._encoder.vocabulary.token_id
        self.token_bytes = self._encoder.vocabulary.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)


@cache
def text_vocabulary() -> TokenizerVocabulary:
    return TokenizerVocabulary()


@dataclass
class Pretended:
    """A listener that writes what it is told to."""

    write: Callable[[ListenRequest], Saying]
    parallel: int = 2
    model: str = "parrot"
    requests: list[ListenRequest] = field(default_factory=list)
    finished: list[ListenRequest] = field(default_factory=list)
    running: int = 0
    most: int = 0
    """That have been running at once."""

    @property
    def vocabulary(self) -> Vocabulary:
        return text_vocabulary()

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            saying = self.write(request)
            await until(saying.ready)
            for at in range(0, len(saying.ids), saying.piece):
                ids = tuple(saying.ids[at : at + saying.piece])
                logprobs = tuple(TokenLogprob(token, b"", saying.logprob) for token in ids)
                first = saying.early and at == 0
                yield Opening(ids, None, logprobs, saying.no_speech) if first else Piece(ids, logprobs=logprobs)
                await asyncio.sleep(0)
            self.finished.append(request)
            yield ListenEnd(saying.reason, len(request.prompt), len(saying.ids), saying.no_speech)
        finally:
            self.running -= 1

    async def close(self) -> None: ...


def plain(text: str) -> list[int]:
    """Ordinary tokens alone, whatever they spell."""
    return text_vocabulary().encode(text)


def output(text: str, language: str = "de") -> list[int]:
    known = special_tokens()
    return [*prompt(known, language)[1:3], *plain(text), known.eot]


def says(text: str, **how: Any) -> Callable[[ListenRequest], Saying]:
    return lambda request: Saying(output(text), **how)


def transcribed(
    write: Callable[[ListenRequest], Saying], options: TranscriptionOptions | None = None, **more: Any
) -> Transcript:
    return run(Transcriber(Pretended(write), **more).transcribe([syllables(2.0)], options or TranscriptionOptions()))


@cache
def talk() -> Samples:
    """Seven stretches of noise, each a little louder, with silence between."""
    return np.concatenate([np.append(syllables(22.0, 0.1 * n), np.zeros(6 * RATE, np.float32)) for n in range(1, 8)])


def chunks_of(samples: Samples) -> list[Chunk]:
    return [chunk for chunk in cut([samples]) if not is_silent(chunk.samples)]


def loudness(request: ListenRequest) -> int:
    return round(float(np.abs(request.samples).max()) * 10)


def streamed(write: Callable[[ListenRequest], Saying]) -> tuple[list[TranscriptEvent], Pretended]:
    listener = Pretended(write)
    return run(all_of(Transcriber(listener).run([syllables(2.0)], TranscriptionOptions(), stream=True))), listener
