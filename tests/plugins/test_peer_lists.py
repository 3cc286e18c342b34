"""The lists of `make test-peers`: why a test of an engine differs, and which of its tests are run."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from unbraid.plugins.common import SETTINGS

from ..support.places import ROOT

KINDS = ("private", "better", "choice")
BASIS = re.compile(r"[Ll]aws? \d|docs/|template|vendor")
MOST_CHOICES = 15
"""Tests that differ by choice. It may only fall."""


@pytest.fixture(scope="module")
def run() -> Any:
    """`tests/peers/run.py`, which is a script."""
    spec = importlib.util.spec_from_file_location("peers_run", ROOT / "tests" / "peers" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def differences() -> list[dict[str, Any]]:
    table = tomllib.loads((ROOT / "tests" / "peer_differences.toml").read_text(encoding="utf-8"))
    return [entry for suite in table.values() for entry in suite]


def test_each_difference_has_a_kind() -> None:
    entries = differences()
    assert {entry["kind"] for entry in entries} == set(KINDS)
    assert [
        entry["reason"] for entry in entries if entry["kind"] == "better" and not BASIS.search(entry["reason"])
    ] == []


def test_few_differ_by_choice() -> None:
    assert sum(len(entry["tests"]) for entry in differences() if entry["kind"] == "choice") <= MOST_CHOICES


def test_each_choice_can_be_made_otherwise() -> None:
    """`make test-peers` runs its tests with the setting."""
    names = {choice.name: choice for choice in SETTINGS}
    for entry in differences():
        assert (entry["kind"] == "choice") == ("setting" in entry), entry["reason"]
        name, _, word = entry.get("setting", "").partition("=")
        assert not name or word in names[name].words


def test_what_is_not_run_has_a_reason(run: Any) -> None:
    for suite in run.SUITES.values():
        assert all(suite.not_run.values())
        assert not set(suite.not_run) & set(suite.folders)


def test_a_test_that_nobody_named_is_found(run: Any, tmp_path: Path) -> None:
    suite = run.SUITES["vllm"]
    for path, text in (
        ("tests/tool_parsers/test_new.py", "from vllm.tool_parsers import ToolParser"),
        ("tests/v1/structured_output/test_more.py", "import vllm.reasoning"),
        ("tests/v1/test_other.py", "import vllm.sampling_params"),
        ("tests/v1/test_parsers.py", "from vllm.reasoning import ReasoningParserManager"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert run.unnamed(suite, tmp_path) == ["tests/v1/test_parsers.py"]


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_all_tests_of_the_peers_are_named(run: Any, name: str) -> None:
    sources = sorted((ROOT / ".peers").glob(f"{name}*/test*"))
    if not sources:
        pytest.skip("the engines' tests are not here: make test-peers")
    assert run.unnamed(run.SUITES[name], sources[0].parent) == []
