"""Progress of a download or other long work: one line on a terminal, rewritten until it ends.

`Progress` is what shows a download; `bar` does it on stderr. A download that fails leaves no line behind, so that the
error stands by itself. Where stderr is no terminal nothing is drawn: a log gets one line when the download begins.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

_log = logging.getLogger(__name__)

Report = Callable[[int], None]
"""Told how many bytes have come so far."""
Progress = Callable[[str, int | None], AbstractContextManager[Report]]
"""Made with the name of a download and its bytes in all, or None. It is a context, in which `Report` is told."""

_WIDTH = 30


class StatusLine:
    """One line of a terminal that is written again and again. Nothing on what is no terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self.on = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """In place of what was shown before."""
        if self.on:
            self._out.write(f"\r{text}\033[K")
            self._out.flush()
            self._shown = True

    def end(self, text: str | None = None) -> None:
        """Leave this text behind, or nothing. Where nothing was shown, nothing is."""
        if self._shown:
            self._out.write("\r\033[K" if text is None else f"\r{text}\033[K\n")
            self._out.flush()
            self._shown = False


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Report]:
    """A progress bar on stderr."""
    line = StatusLine()
    if not line.on:
        _log.info("downloading %s%s", what, "" if total is None else f" ({total / 1e6:.0f} MB)")
    arrived = 0

    def report(done: int) -> None:
        nonlocal arrived
        # Tools copy what they have downloaded, and begin again where a connection broke.
        arrived = max(arrived, done if total is None else min(done, total))
        line.show(_drawn(what, arrived, total))

    try:
        yield report
    except BaseException:
        line.end()
        raise
    line.end(_drawn(what, arrived if total is None else total, total))


def shown(progress: Progress | None, what: str, total: int | None) -> AbstractContextManager[Report]:
    """What shows a download; None shows nothing."""
    return nullcontext(lambda done: None) if progress is None else progress(what, total)


def _drawn(what: str, done: int, total: int | None) -> str:
    if not total:
        return f"{what}: {done / 1e6:.0f} MB"
    return f"{what}: {drawn_bar(done / total)} {done / 1e6:.0f} of {total / 1e6:.0f} MB"


def drawn_bar(share: float) -> str:
    """A bar that is filled by a share from 0 to 1."""
    filled = int(_WIDTH * share)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"
