"""`unbraid transcribe`: recordings to text.

Speech is imported when the command is configured or run, never with this module: the other commands do without it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

from .. import UnbraidError

if TYPE_CHECKING:
    from ..speech.options import TranscriptionOptions
    from ..speech.outputs import ResponseFormat
    from ..speech.transcriber import Transcriber
    from ..speech.transcript import Transcript

SUMMARY = "transcribe recordings"
EXAMPLES = """\
  unbraid transcribe talk.wav
  unbraid transcribe talk.mp3 --model whisper-tiny --format srt
  unbraid transcribe *.wav --output transcripts
"""
_ENDINGS = {"json": "json", "verbose_json": "json", "text": "txt", "srt": "srt", "vtt": "vtt"}
_BAR = 30


def configure(command: argparse.ArgumentParser) -> None:
    from ..speech.loading import ListenerEngine
    from ..speech.onnx import Device
    from ..speech.whisper.files import DEFAULT_WHISPER

    command.add_argument("files", nargs="+", metavar="FILE", help="flac, mp3, mp4, m4a, ogg, opus, wav, webm, …")
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
    command.add_argument("--temperature", type=float, metavar="T", help="0 to 1; 0, then higher where that fails")
    command.add_argument("--beam-size", type=int, default=1, metavar="N", help="outputs followed at once (default: 1)")
    command.add_argument("--format", choices=tuple(_ENDINGS), default="text", help="what is written (default: text)")
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
    command.add_argument("--output", metavar="FOLDER", help="write a file for each recording there")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..speech.languages import given_language
    from ..speech.options import TranscriptionOptions
    from ..speech.outputs import TIMED_FORMATS

    _check(arguments)
    options = TranscriptionOptions(
        task="translate" if arguments.translate else "transcribe",
        language=given_language(arguments.language),
        languages=tuple(filter(None, (arguments.languages or "").split(","))),
        prompt=arguments.prompt,
        timestamps=arguments.format in TIMED_FORMATS,
        words=arguments.word_timestamps,
        temperature=arguments.temperature,
        beams=arguments.beam_size,
    )
    return asyncio.run(_all_and_close(options, arguments))


def _check(arguments: argparse.Namespace) -> None:
    if arguments.temperature is not None and not 0.0 <= arguments.temperature <= 1.0:
        raise UnbraidError(f"--temperature must be from 0 to 1, not {arguments.temperature:g}")
    if arguments.word_timestamps and arguments.format != "verbose_json":
        raise UnbraidError(f"--word-timestamps needs --format verbose_json: {arguments.format} has no place for them")
    if arguments.output is not None:
        written: dict[Path, str] = {}
        for name in arguments.files:
            other = written.setdefault(_target(arguments, name), name)
            if other is not name:
                raise UnbraidError(f"{other} and {name} would both be written to {_target(arguments, name)}")


def _target(arguments: argparse.Namespace, name: str) -> Path:
    return Path(arguments.output) / f"{Path(name).stem}.{_ENDINGS[arguments.format]}"


async def _load(arguments: argparse.Namespace) -> Transcriber:
    from ..speech.loading import ListenerSettings, load_transcriber

    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # vLLM's log is not part of the transcript
    return await load_transcriber(
        ListenerSettings(
            model=arguments.model,
            engine=arguments.engine,
            urls=tuple(arguments.url),
            api_key=arguments.api_key,
            device=arguments.device,
            vad=arguments.vad,
        )
    )


async def _all_and_close(options: TranscriptionOptions, arguments: argparse.Namespace) -> int:
    """Close the model also after Ctrl-C: a process that exits while the model computes in its thread crashes."""
    transcriber = await _load(arguments)
    try:
        transcriber.check(options)
        return await _all(transcriber, options, arguments)
    finally:
        await transcriber.listener.close()


async def _all(transcriber: Transcriber, options: TranscriptionOptions, arguments: argparse.Namespace) -> int:
    """Each file by itself: a broken one does not stop the others."""
    failed = 0
    for name in arguments.files:
        try:
            transcript = await _one(transcriber, options, name)
        except (UnbraidError, OSError) as error:
            print(f"unbraid: {name}: {error}", file=sys.stderr)
            failed += 1
            continue
        for warning in transcript.warnings:
            print(f"unbraid: {name}: {warning}", file=sys.stderr)
        written = _written(transcript, options, arguments.format)
        if arguments.output is None:
            sys.stdout.write(written)
            sys.stdout.flush()
        else:
            target = _target(arguments, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(written, encoding="utf-8")
    return 2 if failed else 0


async def _one(transcriber: Transcriber, options: TranscriptionOptions, name: str) -> Transcript:
    from ..speech.audio.decode import AudioLimits, read
    from ..speech.transcript import Detected, Progress, Transcript

    with read(name, limits=AudioLimits(None, None)) as blocks, _ProgressLine(name) as progress:
        async with aclosing(transcriber.run(blocks, options)) as events:
            async for event in events:
                if isinstance(event, Detected):
                    progress.language = event.language
                elif isinstance(event, Progress):
                    progress.at(event.seconds)
                elif isinstance(event, Transcript):
                    return event
    raise AssertionError("a transcription ends with a Transcript")


class _ProgressLine:
    """A line on stderr that shows the progress, if stderr is a terminal."""

    def __init__(self, name: str) -> None:
        self.language: str | None = None
        self._name = Path(name).name
        self._on = sys.stderr.isatty()

    def at(self, seconds: float) -> None:
        if self._on:
            language = f" [{self.language}]" if self.language else ""
            dots = "=" * (int(seconds / 30) % _BAR)
            sys.stderr.write(f"\r{self._name}{language} {int(seconds) // 60}:{int(seconds) % 60:02} {dots:<{_BAR}}")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")


def _written(transcript: Transcript, options: TranscriptionOptions, format: ResponseFormat) -> str:
    from ..speech.outputs import render_transcript

    rendered = render_transcript(transcript, format, options)
    return rendered if isinstance(rendered, str) else json.dumps(rendered, ensure_ascii=False, indent=2) + "\n"
