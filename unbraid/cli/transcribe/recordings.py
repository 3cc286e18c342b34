"""Which recordings a command line means: files, pipes, `-` for standard input, and folders with all that is in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ... import UnbraidError

STDIN = "-"
ENDINGS = (
    *("aac", "flac", "m4a", "mka", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "mpga", "oga", "ogg", "opus", "ts"),
    *("wav", "weba", "webm"),
)
"""What the names of recordings in a folder end with."""


@dataclass(frozen=True)
class Recording:
    """One recording."""

    name: str
    """What it is called in messages, and in what is written about several."""
    source: str | BinaryIO
    """The path, or the pipe."""
    stem: Path
    """Where its transcript goes in the folder for transcripts, without an ending."""


def recordings(given: Iterable[str]) -> tuple[list[Recording], list[str]]:
    """The recordings that are there, in order, and what is to be said about the others. No recording comes twice from a
    folder and by itself; one that is named twice does."""
    found: list[Recording] = []
    problems: list[str] = []
    for name in given:
        path = Path(name)
        if name == STDIN:
            if sys.stdin is None or sys.stdin.isatty():
                raise UnbraidError("- is a recording from standard input: pipe one in (… | unbraid transcribe -)")
            if any(one.name == STDIN for one in found):
                raise UnbraidError("- was given twice: standard input is one recording")
            found.append(Recording(STDIN, sys.stdin.buffer, Path("stdin")))
        elif path.is_dir():
            inside = _inside(path)
            found += inside
            if not inside:
                problems.append(f"{name}: there are no recordings in this folder ({', '.join(ENDINGS)})")
        elif not path.exists():
            problems.append(f"{name}: there is no such file: check its path")
        else:
            found.append(Recording(name, name, Path(path.stem)))
    return found, problems


def _inside(folder: Path) -> list[Recording]:
    """The recordings in a folder and the folders in it, in the order of their names. Hidden ones are left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        within = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in within.parts)
        if not hidden and path.suffix[1:].lower() in ENDINGS and path.is_file():
            found.append(Recording(str(path), str(path), within.with_suffix("")))
    return found
