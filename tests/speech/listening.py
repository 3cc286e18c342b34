"""What the tests of listeners share: one Whisper, what it hears inside this process, and what it hears elsewhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from unbraid.engines.routing import Routing
from unbraid.speech.audio.decode import Samples
from unbraid.speech.listening import Listener
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Transcript, TranscriptEvent

from ..support.real_speech import recording

T = TypeVar("T")
TINY = "whisper-tiny"
QUIET = Routing(check_interval=60.0)
PLAIN = TranscriptionOptions()


def run(work: Coroutine[Any, Any, T], seconds: float = 600.0) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def speech() -> Samples:
    """Three seconds of it: weasels have eaten our phone system."""
    return recording("en", "tt-weasels").samples


def free_url() -> str:
    """Where nobody is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


async def events_of(
    listener: Listener, samples: Samples, options: TranscriptionOptions, stream: bool
) -> list[TranscriptEvent]:
    return [event async for event in Transcriber(listener).run([samples], options, stream=stream)]


async def transcript_of(listener: Listener, samples: Samples, options: TranscriptionOptions) -> Transcript:
    """Streamed and whole, which is the same."""
    whole = await Transcriber(listener).transcribe([samples], options)
    streamed = await events_of(listener, samples, options, stream=True)
    assert "".join(event.text for event in streamed if isinstance(event, Delta)).strip() == whole.text
    last = streamed[-1]
    assert isinstance(last, Transcript)
    assert (last.text, last.language) == (whole.text, whole.language)
    return whole


def times(transcript: Transcript) -> list[tuple[float, float, str]]:
    return [(segment.start, segment.end, segment.text) for segment in transcript.segments]
