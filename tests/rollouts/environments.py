"""Environments of their own for the packages that ours is compared with, made once and kept in the tests' cache."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ..support.real_tokenizers import cache_folder
from ..support.system import for_system_tests


@for_system_tests("an environment with other packages")
@cache
def python_with(*requirements: str, alone: str = "") -> Path:
    """The Python of an environment with these packages.

    alone: a package that is installed without what it asks for.
    """
    name = (alone or requirements[0]) + f"-{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_folder() / name
    python, made = folder / "bin" / "python", folder / ".made"
    if not made.exists():
        venv.create(folder, with_pip=True, clear=True)
        _install(python, *requirements)
        if alone:
            _install(python, "--no-deps", alone)
        made.touch()
    return python


def _install(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0 and "NewConnectionError" in done.stderr + done.stdout:
        pytest.skip(f"pip cannot reach its index: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr


def answers(python: Path, script: str, tokenizer: Any, jobs: list[dict[str, Any]], folder: Path) -> list[Any]:
    """What a script of this folder says to jobs, in another environment.

    tokenizer: a `tokenizers.Tokenizer`; the script is given it as a file in `folder`.
    """
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    command = [str(python), str(Path(__file__).with_name(script))]
    given = json.dumps({"tokenizer": str(path), "jobs": jobs})
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=900, check=False, env={})
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found
