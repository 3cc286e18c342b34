"""The targets run, and the search finds what there is to find."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from ..support.examples import examples
from ..support.places import ROOT
from . import __main__ as command
from .search import by_chance, found, inputs
from .targets.every import TARGETS, target

TESTS_THEMSELVES = ("laws", "token-laws", "api")
"""Targets that only do what tests do anyway."""


@pytest.mark.filterwarnings("ignore::unbraid.SchemaWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_stands_inputs_by_chance(name: str) -> None:
    tried = 1 if name in TESTS_THEMSELVES else examples(4).max_examples
    for data in [b"", *islice(inputs(seed=1), tried)]:
        error = found(target(name), data)
        assert error is None, f"{data!r}: {error!r}"


def fragile(data: bytes) -> None:
    """It cannot stand a byte of 200 or more."""
    assert all(byte < 200 for byte in data)


def test_what_is_found_is_kept_and_can_be_seen_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = by_chance(fragile, 60.0, tmp_path)
    assert file is not None
    assert isinstance(found(fragile, file.read_bytes()), AssertionError)
    monkeypatch.setitem(TARGETS, "fragile", "")
    monkeypatch.setattr(command, "target", {"fragile": fragile}.get)
    with pytest.raises(AssertionError):
        command.main(["fragile", "--replay", str(file)])
    file.write_bytes(b"fine")
    assert command.main(["fragile", "--replay", str(file)]) == 0


def test_a_find_is_told_and_is_the_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, set[str]] = {"text": set(), "events": set()}

    def search(parts: list[str]) -> int:
        if "events" not in parts:
            return 0
        kept["events"].add(".fuzz/finds/events/crash-1")
        return 77

    monkeypatch.setattr(command, "run", search)
    monkeypatch.setattr(command, "finds_of", lambda name: set(kept[name]))
    assert command.fuzz(["text"], 1.0) == 0
    assert "nothing found" in capsys.readouterr().out
    assert command.fuzz(["text", "events"], 1.0) == 1
    said = capsys.readouterr().out
    assert "-m tests.fuzz events --replay .fuzz/finds/events/crash-1" in said
    assert "events failed" in said


def test_the_command_searches() -> None:
    asked = [sys.executable, "-m", "tests.fuzz", "events", "--seconds", "1"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 targets, 1 s each: nothing found" in done.stdout


def test_a_target_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["text", "nonsense"])
    assert "there is no target nonsense; there are text" in capsys.readouterr().err
