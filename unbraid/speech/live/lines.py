"""A stream of sound to lines of text: an utterance each, told while it is spoken.

async for text in live_lines(transcriber, TranscriptionOptions(), Microphone().sound()):
    print(text, end="")  # "Ask not", " what your country", " can do for you.", "\\n"
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from ...errors import UnbraidError
from ..audio.decode import Samples
from ..options import TranscriptionOptions
from ..transcriber import Transcriber
from .transcription import LiveTranscription
from .utterances import Quiet, SpokenSound, Started, Stopped, UtteranceDetector, UtteranceOptions

_Queue = asyncio.Queue[LiveTranscription | None]


async def live_lines(
    transcriber: Transcriber, options: TranscriptionOptions, sound: AsyncIterator[Samples]
) -> AsyncGenerator[str, None]:
    """What is said, as it becomes certain; a line break ends an utterance. Ends with the sound."""
    if transcriber.detector is None:
        raise UnbraidError("live transcription needs the voice activity detector: without it an utterance has no end")
    detector = UtteranceDetector(transcriber.detector.listen(), UtteranceOptions())
    utterances: _Queue = asyncio.Queue()
    feeding = asyncio.create_task(_feed(transcriber, options, sound, detector, utterances))
    try:
        while (utterance := await utterances.get()) is not None:
            async with aclosing(utterance.words()) as words:
                async for text in words:
                    yield text
            if utterance.text:
                yield "\n"
        await feeding
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(
    transcriber: Transcriber,
    options: TranscriptionOptions,
    sound: AsyncIterator[Samples],
    detector: UtteranceDetector,
    utterances: _Queue,
) -> None:
    """Cut the sound into utterances. They are in the queue from their first sound on."""
    spoken: LiveTranscription | None = None
    try:
        async for samples in sound:
            for event in await asyncio.to_thread(list, detector.feed(samples)):
                if isinstance(event, Started):
                    spoken = LiveTranscription(transcriber, options)
                    utterances.put_nowait(spoken)
                elif spoken is None:
                    continue
                elif isinstance(event, SpokenSound):
                    spoken.add(event.samples, silent=event.silent)
                elif isinstance(event, Quiet):
                    spoken.pause()
                elif isinstance(event, Stopped):
                    spoken.end()
                    spoken = None
            if spoken is not None:
                await spoken.caught_up()
    finally:
        if spoken is not None:
            spoken.add(detector.flush(), silent=True)
            spoken.end()
        utterances.put_nowait(None)
