"""Where transcripts go: to one stream, as they are made, or into a file each.

Several transcripts in one stream are told apart. As text and subtitles each has a line `==> NAME <==` before it, as
`head` and `tail` do it, and an empty line before that. As JSON each is one line, with its name as `file` (JSON Lines).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .recordings import Recording

if TYPE_CHECKING:
    from ...speech.options import TranscriptionOptions
    from ...speech.outputs import ResponseFormat
    from ...speech.transcript import Delta, Segment, Transcript

ENDINGS = {"json": "json", "verbose_json": "json", "text": "txt", "srt": "srt", "vtt": "vtt"}


class Stream:
    """Standard output. Text is written as it comes, and on a terminal in lines, so that there is room for the progress
    below; subtitles cue by cue; JSON at the end.

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
        """What has come and is not written yet."""
        self._begun = False
        """Whether something of the present transcript is written."""
        self._cues = 0

    def begin(self, recording: Recording) -> None:
        self._name = recording.name
        self._text, self._begun, self._cues = "", False, 0

    def delta(self, event: Delta) -> None:
        """More text. White space is kept back until something follows it."""
        if self._format == "text":
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
        """A part of the recording is done: what a terminal has not seen of it is shown."""
        if self._lines and self._text.strip():
            self._head()
            self._put(self._text.strip() + "\n")
            self._text = ""

    def end(self, transcript: Transcript) -> None:
        from ...speech.outputs import render_transcript

        self.rest()
        self._head()
        if self._format == "text":
            if not self._lines or not transcript.text:
                self._put("\n")
        elif self._format in ("json", "verbose_json"):
            found = render_transcript(transcript, self._format, self._options)
            assert isinstance(found, dict)
            one = {"file": self._name, **found} if self._several else found
            self._put(json.dumps(one, ensure_ascii=False, indent=None if self._several else 2) + "\n")
        self._written += 1

    def broken_off(self) -> None:
        """The transcript does not go on: what comes next begins a line."""
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
        """What comes before a transcript, once."""
        if self._begun:
            return
        self._begun = True
        head = ""
        if self._several and self._format not in ("json", "verbose_json"):
            head = f"==> {self._name} <==\n"
            head = f"\n{head}" if self._written else head
        self._put(head + ("WEBVTT\n\n" if self._format == "vtt" else ""))

    def _put(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


class Folder:
    """A folder, with a file for each transcript. Each is written when it is whole."""

    def __init__(self, folder: Path, format: ResponseFormat, options: TranscriptionOptions) -> None:
        self._folder = folder
        self._format = format
        self._options = options
        self._recording: Recording | None = None

    def place(self, recording: Recording) -> Path:
        """Where the transcript of a recording goes."""
        return self._folder / recording.stem.with_name(f"{recording.stem.name}.{ENDINGS[self._format]}")

    def begin(self, recording: Recording) -> None:
        self._recording = recording

    def delta(self, event: Delta) -> None: ...

    def segment(self, event: Segment) -> None: ...

    def rest(self) -> None: ...

    def end(self, transcript: Transcript) -> None:
        from ...speech.outputs import render_transcript

        assert self._recording is not None
        found = render_transcript(transcript, self._format, self._options)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2) + "\n"
        place = self.place(self._recording)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def broken_off(self) -> None: ...
