"""The files of `unbraid transcribe`: which recordings a command line means, where transcripts go, and the progress.

Transcripts go to one stream, as they are made, or into a file each. In one stream several are told apart. As text and
subtitles, each has a line `==> NAME <==` before it, like `head` and `tail`. As JSON, each is one line, with its name as
`file` (JSON Lines).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ... import UnbraidError
from ...models.progress import StatusLine, drawn_bar
from ..options import STDIN

if TYPE_CHECKING:
    from ...speech.options import TranscriptionOptions
    from ...speech.outputs import ResponseFormat
    from ...speech.transcript import Delta, Segment, Transcript

RECORDING_ENDINGS = (
    *("aac", "flac", "m4a", "mka", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "mpga", "oga", "ogg", "opus", "ts"),
    *("wav", "weba", "webm"),
)
"""The endings of recordings in a folder."""
ENDINGS = {"json": "json", "verbose_json": "json", "diarized_json": "json", "text": "txt", "srt": "srt", "vtt": "vtt"}
"""The ending of a transcript, by its format."""


@dataclass(frozen=True)
class RecordingFile:
    """One recording."""

    name: str
    """Its name in messages, and in front of its transcript if there are several."""
    source: str | BinaryIO
    """The path, or the pipe."""
    stem: Path
    """The place of its transcript in the folder for transcripts, without an ending."""


def recordings(names: Iterable[str]) -> tuple[list[RecordingFile], list[str]]:
    """The recordings in files, folders, pipes and standard input (`-`), in order, and a message for each name that has
    none."""
    files: list[RecordingFile] = []
    problems: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN:
            if sys.stdin is None or sys.stdin.isatty():
                raise UnbraidError("- is a recording from standard input: pipe one in (… | unbraid transcribe -)")
            if any(one.name == STDIN for one in files):
                raise UnbraidError("- was given twice: standard input is one recording")
            files.append(RecordingFile(STDIN, sys.stdin.buffer, Path("stdin")))
        elif path.is_dir():
            inside = _inside(path)
            files += inside
            if not inside:
                problems.append(f"{name}: there are no recordings in this folder ({', '.join(RECORDING_ENDINGS)})")
        elif not path.exists():
            problems.append(f"{name}: there is no such file: check its path")
        else:
            files.append(RecordingFile(name, name, Path(path.stem)))
    return files, problems


def _inside(folder: Path) -> list[RecordingFile]:
    """The recordings in a folder and its folders, by name. Hidden ones are left out."""
    files = []
    for path in sorted(folder.rglob("*")):
        within = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in within.parts)
        if not hidden and path.suffix[1:].lower() in RECORDING_ENDINGS and path.is_file():
            files.append(RecordingFile(str(path), str(path), within.with_suffix("")))
    return files


def lengths(files: Sequence[RecordingFile]) -> list[float] | None:
    """The length of each recording in seconds: 0 for one that cannot be read (it fails when its turn comes), None if
    the length is unknown, as for a pipe."""
    from ...speech.audio.decode import length

    seconds: list[float] = []
    for one in files:
        try:
            duration = length(one.source) if isinstance(one.source, str) and Path(one.source).is_file() else None
        except (UnbraidError, OSError):
            duration = 0.0
        if duration is None:
            return None
        seconds.append(duration)
    return seconds


class TranscriptStream:
    """Standard output. Text is written as it comes, or in lines on a terminal, so that there is room for the progress
    below. Subtitles are written cue by cue, JSON at the end.

    several: whether there is more than one recording.
    """

    def __init__(self, format: ResponseFormat, options: TranscriptionOptions, *, several: bool) -> None:
        self._format = format
        self._options = options
        self._several = several
        self._lines = sys.stdout.isatty()
        self._written = 0
        self._name = ""
        self._text = ""
        """Text that has come and is not written yet."""
        self._begun = False
        """Whether a part of the present transcript is written."""
        self._cues = 0

    def begin(self, recording: RecordingFile) -> None:
        self._name = recording.name
        self._text, self._begun, self._cues = "", False, 0

    def delta(self, event: Delta) -> None:
        """Add text. Whitespace is held back until something follows it."""
        if self._format == "text" and not self._options.speakers:
            self._text += event.text
            if not self._lines:
                self._write_text()

    def segment(self, event: Segment) -> None:
        from ...speech.outputs import cue

        if self._format in ("srt", "vtt"):
            self._head()
            self._cues += 1
            self._put(("\n" if self._cues > 1 else "") + cue(event, self._cues, self._format))

    def rest(self) -> None:
        """Show the rest of a part of the recording on a terminal: the part is done."""
        if self._lines and self._text.strip():
            self._head()
            self._put(self._text.strip() + "\n")
            self._text = ""

    def end(self, transcript: Transcript) -> None:
        from ...speech.outputs import as_text, render_transcript

        self.rest()
        self._head()
        if self._options.speakers:  # who speaks is known now
            for segment in transcript.segments:
                self.segment(segment)
        if self._format == "text" and self._options.speakers:
            self._put(as_text(transcript))
        elif self._format == "text":
            if not self._lines or not transcript.text:
                self._put("\n")
        elif ENDINGS[self._format] == "json":
            rendered = render_transcript(transcript, self._format, self._options)
            assert isinstance(rendered, dict)
            one = {"file": self._name, **rendered} if self._several else rendered
            self._put(json.dumps(one, ensure_ascii=False, indent=None if self._several else 2) + "\n")
        self._written += 1

    def broken_off(self) -> None:
        """End a transcript that failed: the next one begins a line."""
        self.rest()
        if self._begun:
            self._put("" if self._lines or self._format != "text" else "\n")
            self._written += 1

    def _write_text(self) -> None:
        text = self._text if self._begun else self._text.lstrip()
        kept = text.rstrip()
        if kept:
            self._head()
            self._put(kept)
            self._text = text[len(kept) :]

    def _head(self) -> None:
        """Write the head of a transcript, once."""
        if self._begun:
            return
        self._begun = True
        head = ""
        if self._several and ENDINGS[self._format] != "json":
            head = f"==> {self._name} <==\n"
            head = f"\n{head}" if self._written else head
        self._put(head + ("WEBVTT\n\n" if self._format == "vtt" else ""))

    def _put(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


@dataclass(frozen=True)
class TranscriptPlace:
    """Where a transcript is written: a file, or a folder with a file for each recording."""

    path: Path
    format: ResponseFormat
    is_folder: bool

    def of(self, recording: RecordingFile) -> Path:
        """The file for a recording's transcript."""
        if not self.is_folder:
            return self.path
        return self.path / recording.stem.with_name(f"{recording.stem.name}.{ENDINGS[self.format]}")


def transcript_place(name: str, format: ResponseFormat) -> TranscriptPlace:
    """The place that `--output` names. The ending of a file says its format: `talk.srt`. A folder may have a dot in its
    name where it is there already, or ends with a slash."""
    path = Path(name)
    formats: dict[str, ResponseFormat] = {"txt": "text", "srt": "srt", "vtt": "vtt", "json": "verbose_json"}
    named = formats.get(path.suffix[1:].lower())
    if named is None and path.suffix and not path.is_dir() and not name.endswith(("/", os.sep)):
        endings = ", ".join(f".{ending}" for ending in formats)
        raise UnbraidError(f"--output {name}: a transcript ends with {endings}, and a folder with /")
    if named is None or path.is_dir():
        return TranscriptPlace(path, format, is_folder=True)
    return TranscriptPlace(path, format if ENDINGS[format] == ENDINGS[named] else named, is_folder=False)


class TranscriptFiles:
    """Files for transcripts, one or several for each. They are written when the transcript is complete."""

    def __init__(self, places: Sequence[TranscriptPlace], options: TranscriptionOptions) -> None:
        self._places = places
        self._options = options
        self._recording: RecordingFile | None = None

    def begin(self, recording: RecordingFile) -> None:
        self._recording = recording

    def delta(self, event: Delta) -> None: ...

    def segment(self, event: Segment) -> None: ...

    def rest(self) -> None: ...

    def end(self, transcript: Transcript) -> None:
        from ...speech.outputs import render_transcript

        assert self._recording is not None
        for each in self._places:
            rendered = render_transcript(transcript, each.format, self._options)
            text = rendered if isinstance(rendered, str) else json.dumps(rendered, ensure_ascii=False, indent=2) + "\n"
            path = each.of(self._recording)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def broken_off(self) -> None: ...


class ProgressLine:
    """A line on stderr with the share that is done and the time left. It is rewritten each time, and removed at the
    end. Nothing is shown if stderr is no terminal.

    lengths: those of all recordings in seconds. With them there is one bar for all; None where one is not known, and
        each recording has its own.
    """

    def __init__(self, lengths: Sequence[float] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.language: str | None = None
        self._lengths = lengths
        self._clock = clock
        self._begun = clock()
        self._before = 0.0
        self._line = StatusLine()

    def begin(self, number: int, name: str, total: Callable[[], float | None]) -> None:
        """The next recording.

        number: how many were before it.
        name: the text before the bar.
        total: gives the length of the recording in seconds, or None while it is unknown.
        """
        self.language = None
        self._name, self._total = name, total
        if self._lengths is None:
            self._begun = self._clock()
        else:
            whole = sum(self._lengths)
            self._before, self._total = sum(self._lengths[:number]), lambda: whole

    def at(self, seconds: float) -> None:
        """Show that so many seconds of the recording are done."""
        self._line.show(self.line(seconds))

    def line(self, seconds: float) -> str:
        """The text of the line."""
        seconds += self._before
        language = f" [{self.language}]" if self.language else ""
        total = self._total()
        if not total:
            return f"{self._name}{language} {_clock(seconds)}"
        share = min(1.0, seconds / total)
        left = (self._clock() - self._begun) * (1 - share) / share if share else None
        shown = f"{self._name}{language} {_clock(seconds)} of {_clock(total)} {drawn_bar(share)} {share:.0%}"
        return shown if left is None else f"{shown}, {_clock(left)} left"

    def clear(self) -> None:
        """Remove the line, to make room for other output."""
        self._line.end()


def _clock(seconds: float) -> str:
    whole = int(seconds)
    minutes = f"{whole // 60 % 60:02}" if whole >= 3600 else f"{whole // 60}"
    return f"{whole // 3600}:{minutes}:{whole % 60:02}" if whole >= 3600 else f"{minutes}:{whole % 60:02}"
