"""The folder where models are kept, and how things get there: whole or not at all, and by one process at a time."""

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
    """Where models are kept: UNBRAID_CACHE, or `unbraid` in the user's cache folder."""
    named = os.environ.get("UNBRAID_CACHE")
    if named:
        return Path(named).expanduser()
    return _user_cache() / "unbraid"


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"


def keep(place: Path, make: Callable[[Path], None]) -> Path:
    """The file or folder `place`. If it is not there, `make` makes it under the name that it is given, and only what
    is whole is moved to `place`."""
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
            made = Path(folder) / place.name
            try:
                make(made)
            except OSError as error:
                raise ModelError(f"{place} cannot be written: {error}") from error
            _move(made, place)
    return place


def _move(made: Path, place: Path) -> None:
    try:
        os.replace(made, place)
    except OSError:
        if not place.exists():  # where there are no locks, another process may have been faster all the same
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time, where the system has such locks; they end with the process."""
    with path.open("a") as file:
        _lock(file)
        yield


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        return  # what is moved is whole anyway: two processes only do the work twice
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def join(parts: list[Path], into: Path) -> None:
    """One file from several, one after the other."""
    with into.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, _CHUNK)
