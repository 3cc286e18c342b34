"""`unbraid transcribe`: recordings to text.

    transcripts.py  recordings in, transcripts out, progress
    live.py         --live: what is said into a microphone

Speech is imported when the command is configured or run, never with this module: the other commands do without it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ... import UnbraidError
from .live import check_live, live
from .transcripts import (
    ENDINGS,
    ProgressLine,
    RecordingFile,
    TranscriptFiles,
    TranscriptPlace,
    TranscriptStream,
    lengths,
    recordings,
    transcript_place,
)

if TYPE_CHECKING:
    from ...speech.audio.decode import AudioBlocks
    from ...speech.options import TranscriptionOptions
    from ...speech.outputs import ResponseFormat
    from ...speech.transcriber import Transcriber

SUMMARY = "transcribe recordings"
EXAMPLES = """\
  unbraid transcribe talk.wav
  unbraid transcribe talk.mp3 --model whisper-tiny --format srt
  unbraid transcribe talk.mp3 -o talk.srt -o talk.txt --diarize
  unbraid transcribe *.wav recordings/ --output transcripts
  curl -s https://example.com/talk.mp3 | unbraid transcribe -
  unbraid transcribe --live
"""


def configure(command: argparse.ArgumentParser) -> None:
    from ...speech.loading import ListenerEngine
    from ...speech.onnx import Device
    from ...speech.whisper.files import DEFAULT_WHISPER

    command.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="flac, mp3, mp4, m4a, ogg, opus, wav, webm, …; a folder with such files; - for standard input",
    )
    command.add_argument(
        "--model",
        help=f"whisper-tiny, whisper-base, a folder, ORG/REPO, … (default: {DEFAULT_WHISPER}); with an engine "
        "elsewhere, what that engine calls its model",
    )
    command.add_argument(
        "--engine",
        choices=get_args(ListenerEngine),
        default="embedded",
        help="what runs it: this process, vLLM inside of it, or a server (default: embedded)",
    )
    command.add_argument("--url", action="append", default=[], help="a server that has it; may be given several times")
    command.add_argument("--api-key", metavar="KEY", help="the key for the server")
    command.add_argument("--language", metavar="NAME", help="a code or a name; detected if it is not given")
    command.add_argument("--languages", metavar="NAMES", help="those that it may be, separated by commas")
    command.add_argument("--translate", action="store_true", help="to English")
    command.add_argument("--prompt", default="", metavar="TEXT", help="names and spellings that may come up")
    command.add_argument(
        "--hotwords", default="", metavar="TEXT", help="words that are likely; they go before the prompt"
    )
    command.add_argument("--temperature", type=float, metavar="T", help="0 to 1; 0, then higher where that fails")
    command.add_argument("--beam-size", type=int, metavar="N", help="outputs followed at once (default: 5)")
    command.add_argument("--format", choices=tuple(ENDINGS), default="text", help="what is written (default: text)")
    command.add_argument("--diarize", action="store_true", help="say who speaks: A, B, … (81 MB are fetched, once)")
    command.add_argument("--word-timestamps", action="store_true", help="times of words, in verbose_json")
    command.add_argument(
        "--device",
        choices=get_args(Device),
        default="auto",
        help="where the embedded engine computes; auto is a GPU if ONNX Runtime can use one (onnxruntime-gpu)",
    )
    command.add_argument(
        "--vad",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode only what a voice activity detector takes for speech",
    )
    command.add_argument(
        "--full-window",
        action="store_true",
        help="let Whisper's encoder read thirty seconds of short chunks, too: twice the time, some words otherwise",
    )
    command.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="PATH",
        help="a file (talk.srt, .vtt, .txt, .json), or a folder with a file for each recording; several may be given",
    )
    command.add_argument(
        "--live",
        action="store_true",
        help="transcribe the microphone while you speak, until Ctrl-C; with a FILE, that as if it was spoken",
    )
    command.add_argument("--microphone", metavar="NAME", help="the number or a part of the name of the microphone")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ...speech.outputs import TIMED_FORMATS

    if arguments.live or arguments.microphone is not None:
        check_live(arguments)
        return asyncio.run(live(arguments, _options(arguments), _load))
    if not arguments.files:
        raise UnbraidError("FILE is missing: name a recording, a folder or -, or give --live for the microphone")
    places = [transcript_place(name, arguments.format) for name in arguments.output]
    formats = {place.format for place in places} or {arguments.format}
    arguments.diarize = arguments.diarize or "diarized_json" in formats
    _check(arguments, formats)
    files, problems = recordings(arguments.files)
    _check_places(places, files)
    options = _options(arguments, timestamps=bool(formats & set(TIMED_FORMATS)))
    output: TranscriptStream | TranscriptFiles = TranscriptFiles(places, options)
    if not places:
        output = TranscriptStream(arguments.format, options, several=len(files) + len(problems) > 1)
    for problem in problems:  # before a model is loaded
        print(f"unbraid: {problem}", file=sys.stderr)
    failed = asyncio.run(_all_and_close(files, options, output, arguments)) if files else 0
    return 2 if problems or failed else 0


def _options(arguments: argparse.Namespace, *, timestamps: bool = False) -> TranscriptionOptions:
    from ...speech.languages import given_language
    from ...speech.options import TranscriptionOptions

    return TranscriptionOptions(
        task="translate" if arguments.translate else "transcribe",
        language=given_language(arguments.language),
        languages=tuple(filter(None, (arguments.languages or "").split(","))),
        prompt=arguments.prompt,
        hotwords=arguments.hotwords,
        timestamps=timestamps,
        words=arguments.word_timestamps,
        speakers=arguments.diarize,
        temperature=arguments.temperature,
        beams=arguments.beam_size,
    )


def _check(arguments: argparse.Namespace, formats: set[ResponseFormat]) -> None:
    if arguments.temperature is not None and not 0.0 <= arguments.temperature <= 1.0:
        raise UnbraidError(f"--temperature must be from 0 to 1, not {arguments.temperature:g}")
    if arguments.word_timestamps and "verbose_json" not in formats:
        shown = ", ".join(sorted(formats))
        raise UnbraidError(f"--word-timestamps needs --format verbose_json: {shown} has no place for them")


def _check_places(places: list[TranscriptPlace], files: list[RecordingFile]) -> None:
    """No two transcripts may go to one file."""
    taken: dict[Path, str] = {}
    for place in places:
        for one in files:
            path = place.of(one)
            if path in taken:
                raise UnbraidError(f"{taken[path]} and {one.name} would both be written to {path}")
            taken[path] = one.name


async def _load(arguments: argparse.Namespace) -> Transcriber:
    from ...speech.loading import ListenerSettings, load_transcriber

    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # vLLM's log is not part of the transcript
    return await load_transcriber(
        ListenerSettings(
            model=arguments.model,
            engine=arguments.engine,
            urls=tuple(arguments.url),
            api_key=arguments.api_key,
            device=arguments.device,
            vad=arguments.vad,
            full_window=arguments.full_window,
            speakers=arguments.diarize,
        )
    )


async def _all_and_close(
    files: list[RecordingFile],
    options: TranscriptionOptions,
    output: TranscriptStream | TranscriptFiles,
    arguments: argparse.Namespace,
) -> int:
    """How many could not be transcribed. Closes the model also after Ctrl-C: a process that exits while the model
    computes in its thread crashes."""
    transcriber = await _load(arguments)
    try:
        transcriber.check(options)
        return await _all(transcriber, options, output, files)
    finally:
        await transcriber.listener.close()


async def _all(
    transcriber: Transcriber,
    options: TranscriptionOptions,
    output: TranscriptStream | TranscriptFiles,
    files: list[RecordingFile],
) -> int:
    """Each recording by itself: a broken one does not stop the others."""
    from ...speech.audio.decode import AudioLimits, read

    failed = 0
    progress = ProgressLine(await asyncio.to_thread(lengths, files) if len(files) > 1 else None)
    for number, recording in enumerate(files):
        shown = Path(recording.name).name
        shown = f"({number + 1}/{len(files)}) {shown}" if len(files) > 1 else shown
        try:
            with read(recording.source, limits=AudioLimits(None, None)) as blocks:
                progress.begin(number, shown, partial(getattr, blocks, "total"))
                output.begin(recording)
                warnings = await _one(transcriber, options, output, blocks, progress)
        except (UnbraidError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            output.broken_off()
            print(f"unbraid: {recording.name}: {error}", file=sys.stderr)
            failed += 1
            continue
        for warning in warnings:
            print(f"unbraid: {recording.name}: {warning}", file=sys.stderr)
    return failed


async def _one(
    transcriber: Transcriber,
    options: TranscriptionOptions,
    output: TranscriptStream | TranscriptFiles,
    blocks: AudioBlocks,
    progress: ProgressLine,
) -> tuple[str, ...]:
    """Transcribe a recording. Returns the warnings."""
    from ...speech.transcript import Delta, Detected, Segment, Transcript, TranscriptProgress

    progress.at(0.0)
    try:
        async with aclosing(transcriber.run(blocks, options)) as events:
            async for event in events:
                if isinstance(event, Detected):
                    progress.language = event.language
                elif isinstance(event, Delta):
                    progress.clear()
                    output.delta(event)
                elif isinstance(event, Segment):
                    progress.clear()
                    output.segment(event)
                elif isinstance(event, TranscriptProgress):
                    progress.clear()
                    output.rest()
                    progress.at(event.seconds)
                elif isinstance(event, Transcript):
                    progress.clear()
                    output.end(event)
                    return event.warnings
    finally:
        progress.clear()
    raise AssertionError("a transcription ends with a Transcript")
