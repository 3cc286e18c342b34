"""The cache of downloads. Entries are atomic: whole or absent, and made by one process at a time.

`keep` makes a new entry under a temporary name beside its place and renames it when it is complete. A file lock keeps
two processes from doing the work twice; where there are no such locks (Windows) the rename alone keeps entries whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import ModelError

_CHUNK = 1 << 20


def cache_folder() -> Path:
    """The cache's folder: UNBRAID_CACHE, or `unbraid` in the user's cache folder."""
    named = os.environ.get("UNBRAID_CACHE")
    if named:
        return Path(named).expanduser()
    return user_cache() / "unbraid"


def user_cache() -> Path:
    """Where programs of this system keep what they can fetch again."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"


def keep(place: Path, make: Callable[[Path], None]) -> Path:
    """The file or folder `place`. If it is missing, `make` is called with a temporary path, and what it made is moved
    to `place` when it returns."""
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"the cache folder {place.parent} cannot be made: {error}; set UNBRAID_CACHE to another"
        ) from error
    with _locked(place.with_name(place.name + ".lock")):
        if place.exists():  # another process was faster
            return place
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as folder:
            path = Path(folder) / place.name
            try:
                make(path)
            except OSError as error:
                raise ModelError(f"{place} cannot be written: {error}") from error
            _move(path, place)
    return place


def _move(path: Path, place: Path) -> None:
    try:
        os.replace(path, place)
    except OSError:
        if not place.exists():  # without locks, another process may have been faster
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time. The system releases the lock if the process dies."""
    with path.open("a") as file:
        _lock(file)
        yield


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        return  # the rename keeps entries whole: two processes only do the work twice
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def join(parts: list[Path], into: Path) -> None:
    """Concatenate files into one."""
    with into.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, _CHUNK)
