"""The cache of downloads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from unbraid.models import ModelError
from unbraid.models.cache import cache_folder, keep


def test_things_are_made_once_and_whole(tmp_path: Path) -> None:
    made: list[int] = []
    both = threading.Barrier(4)

    def make(path: Path) -> None:
        made.append(1)
        path.write_text("whole")

    def run() -> None:
        both.wait()
        assert keep(tmp_path / "deep" / "thing", make).read_text() == "whole"

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        path.write_text("half")
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        keep(tmp_path / "thing", make)
    assert {path.name for path in tmp_path.iterdir()} == {"thing.lock"}


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("UNBRAID_CACHE", raising=False)
    assert cache_folder() == tmp_path / "unbraid"
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x"
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "file" / "x"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot be made.*UNBRAID_CACHE"):
        keep(cache_folder() / "a", lambda path: None)
