"""Run trainers with unbraid inside: python -m tests.rollouts.trainers FOLDER [NAME …]

FOLDER keeps the environments. The names are those of requirements/trainers.txt; all of them where none is given. A
package that cannot be installed is said, and is no failure of unbraid's; the exit status is 1 only where a test fails,
and 2 where nothing could be tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from contextlib import nullcontext
from pathlib import Path

from ...support.places import ROOT
from ...support.real_tokenizers import QWEN3_CONFIG, qwen3_huggingface
from .sampling import endpoint

REQUIREMENTS = ROOT / "requirements" / "trainers.txt"
LIMIT = 1_800
SAMPLED = ("prime",)
"""Those that are given an endpoint, with a small model behind it."""


def environments() -> dict[str, list[str]]:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    return {name: packages.split() for name, _, packages in (line.partition(":") for line in lines)}


def python_with(folder: Path, packages: list[str]) -> Path | str:
    """The Python of an environment with these packages, or why there is none."""
    python, made = folder / "bin" / "python", folder / ".made"
    if made.exists() and made.read_text() == " ".join(packages):
        return python
    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, "jinja2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    made.write_text(" ".join(packages))
    return python


def main(folder: Path, names: list[str]) -> int:
    outcomes = []
    with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as small:
        qwen3_huggingface().save(str(Path(model) / "tokenizer.json"))
        shutil.copy(QWEN3_CONFIG, Path(model) / "tokenizer_config.json")
        for name, packages in environments().items():
            if names and name not in names:
                continue
            python = python_with(folder / name, packages)
            with endpoint(Path(small)) if name in SAMPLED else nullcontext("") as url:
                arguments = [model, small, url] if url else [model]
                outcomes.append(tried(name, python, packages, arguments))
    return 1 if "failed" in outcomes else 0 if "passed" in outcomes else 2


def tried(name: str, python: Path | str, packages: list[str], arguments: list[str]) -> str:
    if isinstance(python, str):
        print(f"{name}: NOT TRIED, as {' '.join(packages)} cannot be installed here: {python}")
        return "not tried"
    script = Path(__file__).with_name(f"{name}.py")
    done = subprocess.run(
        [str(python), str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    passed = done.returncode == 0
    print(f"{name}: {'passed' if passed else 'FAILED'}")
    print(done.stdout if passed else done.stdout + done.stderr)
    return "passed" if passed else "failed"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
