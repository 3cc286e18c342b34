"""The table of engines: everything that depends on an engine follows from its one entry."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from unbraid import UnbraidError
from unbraid.engines.server import Servers
from unbraid.engines.table import EMBEDDED, ENGINES, EngineKind, EngineTable, engine_of
from unbraid.server.settings import SETTINGS, Settings

ROOT = Path(__file__).parents[2]
NAMED: dict[str, Any] = {
    name: True if each.type is bool else ("http://localhost:1",) if each.is_list else "file"
    for name in ENGINES
    for each in SETTINGS
    if each.name == name
}


def test_every_entry_is_a_setting() -> None:
    assert [each.name for each in SETTINGS if each.engine is not None] == [each.name for each in fields(EngineTable)]
    assert NAMED.keys() == ENGINES.keys()


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_found_by_its_setting(name: str) -> None:
    settings = Settings(**{name: NAMED[name]})
    assert engine_of(settings) == (name, ENGINES[name])
    assert settings.each_model() == (settings,)


def test_without_a_name_it_is_the_embedded_one() -> None:
    assert engine_of(Settings()) == (None, EMBEDDED)


def test_two_engines_are_one_too_many() -> None:
    with pytest.raises(UnbraidError, match="--vllm and --tokens-only name different engines"):
        engine_of(Settings(vllm=("http://localhost:1",), tokens_only=True))


def test_the_syntax_of_grammars_must_be_said() -> None:
    with pytest.raises(TypeError, match="syntax"):
        EngineKind(load=EMBEDDED.load)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name, kind in ENGINES.items() if kind.place == "elsewhere"])
def test_engines_elsewhere_take_several_servers(name: str) -> None:
    make = ENGINES[name].servers
    assert make is not None
    engine = make()(["http://localhost:1", "http://localhost:2"])
    assert isinstance(engine, Servers)
    assert len(engine.replicas) == 2


def test_the_table_loads_no_engine() -> None:
    check = "import sys, unbraid.engines.table as table; print([name for name in sys.modules if 'engines.' in name])"
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert loaded.strip() == "['unbraid.engines.base', 'unbraid.engines.table']"


def test_every_engine_is_in_the_documentation() -> None:
    document = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    assert not [name for name in ENGINES if f"`--{name.replace('_', '-')}" not in document]
