"""Events on a terminal: each strand (content, reasoning, calls, speech) in its own colour or, without colours, under a
label.

Events are written at once. Control characters are shown as symbols, so that no model output acts on the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TextIO

from .. import (
    Content,
    Diagnostic,
    Event,
    Reasoning,
    SpeechAudio,
    SpeechText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)

ColorChoice = Literal["auto", "always", "never"]

# Styles: what follows "ESC [".
_PLAIN = ""
_REASONING = "2;3"
_NAME = "1;36"
_ARGUMENTS = "32"
_SPEECH = "35"
_NOTE = "2"
_WARNING = "33"

# A model may write control characters; shown as they are, they would act on the terminal.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {
    code: f"\\x{code:02x}" for code in range(0x7F, 0xA0)
}


class View:
    """Writes events as they come. Each stretch of one strand begins on a new line."""

    def __init__(self, out: TextIO, err: TextIO, *, color: ColorChoice = "auto") -> None:
        self._out, self._err = out, err
        self._out_color, self._err_color = _use_color(color, out), _use_color(color, err)
        self._shared = _same_place(out, err)
        self._at_line_start = True
        self._stretch = ("", 0)
        """The strand that is being written, and which call or speech section of it."""
        self._held = ("", 0, "")
        """Whitespace of another strand. Alone, it does not begin a stretch."""
        self._codes = 0
        """Audio codes in this stretch that are not shown yet."""
        self._name = ""

    def show(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Content):
                self._text("content", 0, event.text, _PLAIN)
            elif isinstance(event, Reasoning):
                self._text("reasoning", 0, event.text, _REASONING)
            elif isinstance(event, SpeechText):
                self._text("speech", event.section, event.text, _SPEECH)
            elif isinstance(event, SpeechAudio):
                self._begin("speech", event.section)
                self._codes += len(event.codes)
            elif isinstance(event, ToolCallStart):
                self._name = event.name
                self._begin("tool call", event.index)
            elif isinstance(event, ToolCallArguments):
                self._begin("tool call", event.index)
                self._write(event.fragment, _ARGUMENTS)
            elif isinstance(event, ToolCallEnd):
                if not event.complete:
                    self._begin("tool call", event.index)
                    self._write(" (incomplete)", _WARNING)
            elif isinstance(event, Diagnostic):
                self._warn(event)
        self._out.flush()

    def finish(self) -> None:
        self._end()
        self._out.flush()

    def _text(self, strand: str, number: int, text: str, style: str) -> None:
        if self._stretch != (strand, number):
            if self._held[:2] == (strand, number):
                text = self._held[2] + text
            if not text.strip():
                self._held = (strand, number, text)
                return
            self._begin(strand, number)
            text = text.lstrip("\n")
        self._write(text, style)

    def _begin(self, strand: str, number: int) -> None:
        if self._stretch == (strand, number):
            return
        self._end()
        self._stretch = (strand, number)
        self._held = ("", 0, "")
        if strand == "tool call":
            self._write("→ " if self._out_color else f"[tool call {number}] ", _NOTE)
            self._write(self._name, _NAME)
            self._write(" " if self._out_color else "\n", _PLAIN)
        elif not self._out_color:
            self._write(f"[speech {number}]\n" if strand == "speech" else f"[{strand}]\n", _PLAIN)

    def _end(self) -> None:
        self._end_line()
        if self._codes:
            self._write(f"♪ {self._codes} code{'s' * (self._codes != 1)}\n", _NOTE)
            self._codes = 0

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n", _PLAIN)

    def _warn(self, diagnostic: Diagnostic) -> None:
        line = f"{diagnostic.kind} at {diagnostic.start}:{diagnostic.end}: {diagnostic.message}".translate(_VISIBLE)
        self._out.flush()
        if self._shared and not self._at_line_start:
            # Through the other stream: `out` gets the same bytes as without a warning.
            self._err.write("\n")
            self._at_line_start = True
        self._err.write(_styled(line, _WARNING if self._err_color else _PLAIN) + "\n")
        self._err.flush()

    def _write(self, text: str, style: str) -> None:
        if text:
            self._out.write(_styled(text.translate(_VISIBLE), style if self._out_color else _PLAIN))
            self._at_line_start = text.endswith("\n")


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


def _same_place(out: TextIO, err: TextIO) -> bool:
    """Whether both write to one terminal, pipe or file."""
    try:
        return os.path.sameopenfile(out.fileno(), err.fileno())
    except (OSError, ValueError):  # no files behind them
        return out is err


def _use_color(choice: ColorChoice, stream: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
