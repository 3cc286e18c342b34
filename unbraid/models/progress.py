"""Progress of a download, measured by the size of its folder.

pip and npm do not report progress to another program, so a thread looks at how much has arrived.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a download, the bytes so far, and the bytes in all or None."""

_WIDTH = 30
_INTERVAL = 0.2


def bar(what: str, done: int, total: int | None) -> None:
    """A progress bar: one line on stderr, rewritten each time. Nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return
    size = f"{done / 1e6:.0f} MB"
    if total:
        filled = _WIDTH * min(done, total) // total
        size = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done / 1e6:.0f} of {total / 1e6:.0f} MB"
    sys.stderr.write(f"\r{what}: {size}\033[K" + ("\n" if total and done >= total else ""))
    sys.stderr.flush()


@contextmanager
def watched(folder: Path, what: str, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Report the size of `folder` while something is downloaded into it, and once when it is complete."""
    if progress is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_INTERVAL):
            progress(what, _size(folder), total)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    started = time.monotonic()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if time.monotonic() - started > _INTERVAL:
            whole = _size(folder)
            progress(what, whole, whole)


def _size(folder: Path) -> int:
    """The bytes in a folder that others write to: what is gone in the meantime has none."""
    total = 0
    for place, _, names in os.walk(folder):  # unlike `rglob`, it passes over folders that are gone
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total
