"""`make lint` and the pre-commit hooks run the same checks."""

from __future__ import annotations

import re
import subprocess

import yaml

from ..support.places import ROOT


def commands_of_make_lint() -> list[str]:
    """What the recipe of `lint` itself runs. (The setting up before it is left out: it is up to date, or not.)"""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("lint:"))
    recipe = []
    for line in lines[at + 1 :]:
        if not line.startswith("\t"):
            break
        recipe.append(line.strip().replace("$(BIN)", ".venv/bin"))
    return recipe


def test_the_hooks_run_what_make_lint_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == commands_of_make_lint()
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)


def test_make_lint_is_what_make_test_begins_with() -> None:
    done = subprocess.run(["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    ran = done.stdout.splitlines()
    assert [line for line in ran if line in commands_of_make_lint()] == commands_of_make_lint()


def test_the_makefile_names_files_that_are_there() -> None:
    found = re.findall(r"\b(?:tests|bench|scripts|requirements|examples)/[\w./-]+", (ROOT / "Makefile").read_text())
    missing = [path for path in found if "$" not in path and not (ROOT / path).exists()]
    assert not missing
