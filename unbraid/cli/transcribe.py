"""`unbraid transcribe`: recordings to text."""

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
from ..speech.listeners import ListenerKind
from ..speech.whisper.files import DEFAULT_WHISPER

if TYPE_CHECKING:
    from ..speech.adapters import TranscriptionOptions
    from ..speech.outputs import Shape
    from ..speech.transcriber import Transcriber
    from ..speech.transcript import Transcript

SUMMARY = "transcribe recordings"
_ENDINGS = {"json": "json", "verbose_json": "json", "text": "txt", "srt": "srt", "vtt": "vtt"}
_BAR = 30


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", metavar="FILE", help="flac, mp3, mp4, m4a, ogg, opus, wav, webm, …")
    command.add_argument(
        "--model",
        help=f"whisper-tiny, whisper-base, a folder, ORG/REPO, … (default: {DEFAULT_WHISPER}); with an engine "
        "elsewhere, what that engine calls its model",
    )
    command.add_argument(
        "--engine",
        choices=get_args(ListenerKind),
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
    command.add_argument("--output", metavar="FOLDER", help="write a file for each recording there")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        from ..speech.adapters import TranscriptionOptions
        from ..speech.outputs import TIMED
    except ImportError as error:
        raise _missing(error) from error
    _check(arguments)
    wish = TranscriptionOptions(
        task="translate" if arguments.translate else "transcribe",
        language=arguments.language,
        languages=tuple(filter(None, (arguments.languages or "").split(","))),
        prompt=arguments.prompt,
        timestamps=arguments.format in TIMED,
        words=arguments.word_timestamps,
        temperature=arguments.temperature,
        beams=arguments.beam_size,
    )
    return asyncio.run(_all_and_close(wish, arguments))


def _missing(error: ImportError) -> UnbraidError:
    extra = "http" if error.name == "httpx" else "transcription"
    return UnbraidError(f"not installed ({error}): pip install 'unbraid[{extra}]'")


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
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # what vLLM logs is no part of a transcript
    try:
        from ..speech.loading import ChosenListener, load_chosen
        from ..speech.transcriber import Transcriber

        chosen = ChosenListener(
            model=arguments.model, engine=arguments.engine, urls=tuple(arguments.url), api_key=arguments.api_key
        )
        return Transcriber(await load_chosen(chosen))
    except ImportError as error:
        raise _missing(error) from error


async def _all_and_close(wish: TranscriptionOptions, arguments: argparse.Namespace) -> int:
    """Closed also after Ctrl-C: a process that ends while the model still computes in its thread is aborted."""
    transcriber = await _load(arguments)
    try:
        transcriber.check(wish)
        return await _all(transcriber, wish, arguments)
    finally:
        await transcriber.listener.close()


async def _all(transcriber: Transcriber, wish: TranscriptionOptions, arguments: argparse.Namespace) -> int:
    """Each file by itself: one that is broken does not keep the others from being transcribed."""
    failed = 0
    for name in arguments.files:
        try:
            transcript = await _one(transcriber, wish, name)
        except (UnbraidError, OSError) as error:
            print(f"unbraid: {name}: {error}", file=sys.stderr)
            failed += 1
            continue
        for warning in transcript.warnings:
            print(f"unbraid: {name}: {warning}", file=sys.stderr)
        written = _written(transcript, wish, arguments.format)
        if arguments.output is None:
            sys.stdout.write(written)
            sys.stdout.flush()
        else:
            target = _target(arguments, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(written, encoding="utf-8")
    return 2 if failed else 0


async def _one(transcriber: Transcriber, wish: TranscriptionOptions, name: str) -> Transcript:
    from ..speech.audio.decode import AudioLimits, read
    from ..speech.transcript import Detected, Progress, Transcript

    with read(name, limits=AudioLimits(None, None)) as blocks, _Shown(name) as shown:
        async with aclosing(transcriber.run(blocks, wish)) as events:
            async for event in events:
                if isinstance(event, Detected):
                    shown.language = event.language
                elif isinstance(event, Progress):
                    shown.at(event.seconds)
                elif isinstance(event, Transcript):
                    return event
    raise AssertionError("a transcript always comes")


class _Shown:
    """A line on the terminal that says how far it is. Not where there is none."""

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


def _written(transcript: Transcript, wish: TranscriptionOptions, shape: Shape) -> str:
    from ..speech.outputs import shaped

    found = shaped(transcript, shape, wish)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2) + "\n"
