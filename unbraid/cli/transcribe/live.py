"""`unbraid transcribe --live`: what is said into a microphone, as text, while it is said.

Ctrl-C ends the recording, and what was said is still told; a second one gives up. With a FILE, or - for standard input,
that is heard in place of the microphone.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ... import UnbraidError
from .transcripts import RecordingFile, recordings

if TYPE_CHECKING:
    from ...speech.audio.decode import Samples
    from ...speech.audio.microphone import Microphone
    from ...speech.options import TranscriptionOptions
    from ...speech.transcriber import Transcriber

Load = Callable[[argparse.Namespace], Awaitable["Transcriber"]]


def check_live(arguments: argparse.Namespace) -> None:
    """Raise `UnbraidError` for flags that live transcription has no place for."""
    if not arguments.live:
        raise UnbraidError("--microphone is for --live: give both")
    if arguments.files and arguments.microphone is not None:
        raise UnbraidError("--live hears a FILE or a microphone: leave one of them out")
    if arguments.format != "text" or arguments.output or arguments.word_timestamps or arguments.diarize:
        advice = "leave out --format, --output, --word-timestamps and --diarize"
        raise UnbraidError(f"--live writes text to standard output: {advice}; `> talk.txt` keeps it")
    if not arguments.vad:
        raise UnbraidError("--live needs the voice activity detector: leave out --no-vad")


async def live(arguments: argparse.Namespace, options: TranscriptionOptions, load: Load) -> int:
    """Tell what is said, a line for each utterance."""
    source = _source(arguments)
    transcriber = await load(arguments)
    from ...speech.live.lines import live_lines

    print(f"listening to {source.name}; Ctrl-C ends it", file=sys.stderr)
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _stopper(source))
    try:
        async with aclosing(live_lines(transcriber, options, source.sound())) as lines:
            async for text in lines:
                sys.stdout.write(text)
                sys.stdout.flush()
    finally:
        await transcriber.listener.close()
    return 0


def _stopper(source: SoundFile | Microphone) -> Callable[[], None]:
    def stop() -> None:
        source.stop()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    return stop


def _source(arguments: argparse.Namespace) -> SoundFile | Microphone:
    if not arguments.files:
        from ...speech.audio.microphone import Microphone

        return Microphone(arguments.microphone)
    files, problems = recordings(arguments.files)
    if problems:
        raise UnbraidError("; ".join(problems))
    return SoundFile(files)


class SoundFile:
    """Recordings in place of a microphone, one after the other. They are read as fast as they are heard."""

    def __init__(self, files: list[RecordingFile]) -> None:
        self.name = ", ".join(one.name for one in files)
        self._files = files
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def sound(self) -> AsyncGenerator[Samples, None]:
        from ...speech.audio.decode import AudioLimits, read

        for one in self._files:
            with read(one.source, limits=AudioLimits(None, None)) as blocks:
                while not self._stopped and (block := await asyncio.to_thread(next, blocks, None)) is not None:
                    yield block
