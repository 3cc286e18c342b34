"""The first program of each page runs for somebody who installed what the page says before it, and nothing else."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.places import ROOT
from .blocks import DOCUMENTS, Block, blocks
from .running import environment

pytestmark = pytest.mark.system

Installed = tuple[str, ...]
"""What pip was told to install."""


def first_program(document: Path) -> tuple[Installed, Block] | None:
    """The first Python block, and what the page installs before it; none if it needs a server, or an engine."""
    installs: list[str] = []
    for block in blocks(document):
        if block.language == "console":
            lines = [line for line in block.text.splitlines() if line.startswith("$ pip install ")]
            # Where a block has several, they are for readers to choose from: the first has least.
            installs += [
                word for line in lines[:1] for word in shlex.split(line, comments=True)[3:] if not word.startswith("-")
            ]
        elif block.language == "python":
            return None if block.needs else (tuple(installs), block)
    return None


PROGRAMS = {document.name: program for document in DOCUMENTS if (program := first_program(document)) is not None}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Installed], Path]:
    """A Python with these installed, beside unbraid itself."""
    made: dict[Installed, Path] = {}

    def make(installs: Installed) -> Path:
        if installs not in made:
            folder = tmp_path_factory.mktemp("fresh")
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            python = folder / "bin" / "python"
            places = [re.sub(r"^(\.|unbraid)(?=\[|$)", str(ROOT), word) for word in (installs or (".",))]
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *places], check=True, cwd=folder)
            made[installs] = python
        return made[installs]

    return make


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_program_runs(name: str, fresh: Callable[[Installed], Path], tmp_path: Path) -> None:
    installs, block = PROGRAMS[name]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    clean = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(fresh(installs)), "-c", block.text], cwd=tmp_path, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block}: after pip install {' '.join(installs) or '.'}: {done.stderr}"


def test_there_are_such_pages() -> None:
    assert len(PROGRAMS) > 5
