"""Out of band: audio codes in speech, and the language and times in a transcript.

Such pieces go out when they come, and the text around them goes on as if they were not there. A model may write one
text token to four audio tokens: then `</think>` and even single characters have audio in their middle. Only inside a
JSON string is a code data.

Text before a code may still be held back when the code goes out. `Machine.gaps` has the place of the code, so that the
spans of the text are right when it follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from .. import diagnostics
from ..events import Diagnostic, Event, Language, Markup, SpeechAudio, Timestamp
from .machine import Machine


class Silence(Enum):
    """The type of `SILENCE`."""

    SILENCE = "silence"


SILENCE: Final = Silence.SILENCE
"""Out of band, and means nothing: padding, and what stands around codes."""
Code = int | str | float | Silence
"""What stands out of band: an audio code, a language, a time, or SILENCE."""


class CodeSearch:
    """Finds codes where there is only text: `<audio_17>`, `<|de|>`.

    codes: codes by their text. With a `pattern`, all that it matches looks like one of them.
    numbered: the spelling of further codes, with `{}` for their number, and how many there are. There may be 65,536: so
        they are not listed.
    """

    __slots__ = ("_codes", "_count", "_digits", "_partial", "_prefixes", "_starts", "_window", "everywhere", "find")

    def __init__(
        self, codes: Mapping[str, Code], everywhere: bool, *, numbered: tuple[str, int] | None = None, pattern: str = ""
    ) -> None:
        self._codes = codes
        self._prefixes = {text[:n] for text in codes for n in range(1, len(text))}
        self._starts = {text[0] for text in codes}
        self.everywhere = everywhere
        """Not only in speech."""
        nested = any(char in text[1:] for text in codes for char in self._starts) and numbered is None
        self._window = max(map(len, codes)) - 1 if nested else 0
        """How far back the beginning of a code may lie, if what one begins with may also stand inside of one."""
        # What is listed comes first: padding may be spelled as codes are.
        patterns = [pattern] if pattern else [re.escape(text) for text in sorted(codes, key=len, reverse=True)]
        spelling, self._count = numbered or ("", 0)
        self._digits = slice(0)
        self._partial = None
        if spelling:
            before, _, after = spelling.partition("{}")
            digits = f"(0|[1-9][0-9]{{0,{len(str(self._count)) - 1}}})"
            self._starts.add(before[0])
            self._prefixes |= {before[:n] for n in range(1, len(before) + 1)}
            rest = "|".join(re.escape(after[:n]) for n in range(len(after)))
            self._digits = slice(len(before), -len(after) or None)
            self._partial = re.compile(f"{re.escape(before)}{digits}(?:{rest})").fullmatch
            patterns.append(f"{re.escape(before)}{digits}{re.escape(after)}")
        self.find = re.compile("|".join(patterns)).search
        """The nearest text that looks like a code; `code` says whether it is one."""

    def code(self, text: str) -> Code | None:
        """The code that `text` is, which looks like one."""
        if text in self._codes or not self._count:
            return self._codes.get(text)
        number = int(text[self._digits])
        return number if number < self._count else None

    def unfinished(self, text: str, start: int) -> int:
        """Where a code begins that `text` ends inside of; the end of the text if there is none."""
        if self._window:
            begins = range(max(start, len(text) - self._window), len(text))
            return next((at for at in begins if text[at] in self._starts and text[at:] in self._prefixes), len(text))
        begin = max(text.rfind(char, start) for char in self._starts)
        return begin if begin >= 0 and self._may_become(text[begin:]) else len(text)

    def _may_become(self, text: str) -> bool:
        if text in self._prefixes:
            return True
        match = self._partial(text) if self._partial is not None else None
        return match is not None and int(match.group(1)) < self._count

    def admitted(self, machine: Machine) -> bool:
        """Whether a code can come where the machine stands now."""
        return (self.everywhere or "speech" in machine.strands) and not machine.stack[-1].in_string


def emit_code(machine: Machine, code: Code, text: str) -> None:
    """Send out a code. Text before it that is held back goes on after it."""
    gaps = machine.gaps
    held = len(machine.spell(machine.buffer[machine.position :]))
    start = machine.offset + held + sum(length for _, length in gaps)
    end = start + len(text)
    if not held and not gaps:
        machine.offset = end
    elif gaps and sum(gaps[-1]) == start:
        gaps[-1][1] += len(text)
    elif text:
        gaps.append([start, len(text)])
    if code is SILENCE:
        if machine.show_markup:
            machine.out.append(Markup(text, start, end))
    elif isinstance(code, str):
        machine.out.append(Language(code, start, end))
    elif isinstance(code, float):
        machine.out.append(Timestamp(code, start, end))
    else:
        if "speech" not in machine.strands:
            if not machine.stray_audio:
                machine.stray_audio = True
                machine.out.append(Diagnostic(diagnostics.STRAY_AUDIO, "audio outside speech", start, start))
            machine.sections = machine.sections or 1
        machine.out.append(SpeechAudio((code,), machine.sections - 1, start, end))


def join_audio(events: list[Event]) -> list[Event]:
    """One event for each run of codes."""
    joined: list[Event] = []
    run: list[SpeechAudio] = []

    def end_run() -> None:
        if run:
            codes = tuple(code for event in run for code in event.codes)
            joined.append(SpeechAudio(codes, run[0].section, run[0].start, run[-1].end))
            run.clear()

    for event in events:
        if not isinstance(event, SpeechAudio):
            end_run()
            joined.append(event)
            continue
        if run and (run[-1].section, run[-1].end) != (event.section, event.start):
            end_run()
        run.append(event)
    end_run()
    return joined
