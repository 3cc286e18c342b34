"""What the tests run from npm: installed once into the tests' cache, as a lock file says.

A folder with a `package.json` and a `package-lock.json` names the packages. Where npm is not installed or cannot reach
its registry, the test is skipped and says so.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from .real_tokenizers import cache_folder
from .system import system_only

_UNREACHABLE = re.compile(r"\b(ECONN\w+|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|E50\d)\b.*")
_LIMIT = 900
"""Seconds for an installation: some of these are programs of hundreds of megabytes."""


def npm_packages(named: Path) -> Path:
    """The packages that a folder names, installed, with copies of the folder's own files beside them."""
    system_only("packages of npm")
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{named.name} comes from npm, and {program} is not installed")
    lock = (named / "package-lock.json").read_bytes()
    folder = cache_folder() / f"{named.name}-{sha256(lock).hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # other processes may run tests that need the same
        for file in named.iterdir():
            shutil.copyfile(file, folder / file.name)
        if not (folder / "node_modules" / ".package-lock.json").exists():  # npm writes it at the end
            _install(named.name, folder)
    return folder


def _install(name: str, folder: Path) -> None:
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode != 0 and (failure := _UNREACHABLE.search(done.stderr)):
        pytest.skip(f"{name} cannot be installed, npm cannot reach its registry: {failure[0]}")
    assert done.returncode == 0, done.stderr
