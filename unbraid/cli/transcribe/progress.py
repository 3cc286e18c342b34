"""The line on a terminal that says how far a transcription is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from ...models.progress import StatusLine, drawn_bar


class ProgressLine:
    """A line on stderr, rewritten each time, and gone at the end. Nothing if stderr is not a terminal.

    name: what is shown before it.
    total: gives the length of the recording in seconds, or None while it is not known.
    """

    def __init__(
        self, name: str, total: Callable[[], float | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.language: str | None = None
        self._name = name
        self._total = total
        self._clock = clock
        self._begun = clock()
        self._line = StatusLine()

    def at(self, seconds: float) -> None:
        """That much of the recording is done."""
        self._line.show(self.line(seconds))

    def line(self, seconds: float) -> str:
        """What is shown."""
        language = f" [{self.language}]" if self.language else ""
        total = self._total()
        if not total:
            return f"{self._name}{language} {_clock(seconds)}"
        share = min(1.0, seconds / total)
        left = (self._clock() - self._begun) * (1 - share) / share if share else None
        shown = f"{self._name}{language} {_clock(seconds)} of {_clock(total)} {drawn_bar(share)} {share:.0%}"
        return shown if left is None else f"{shown}, {_clock(left)} left"

    def clear(self) -> None:
        """Take the line away: something else is to be written."""
        self._line.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


def _clock(seconds: float) -> str:
    whole = int(seconds)
    minutes = f"{whole // 60 % 60:02}" if whole >= 3600 else f"{whole // 60}"
    return f"{whole // 3600}:{minutes}:{whole % 60:02}" if whole >= 3600 else f"{minutes}:{whole % 60:02}"
