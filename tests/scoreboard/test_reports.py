"""The reports for peers: each can be filed as it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scoreboard.reports import FOLDER, PEER_OF, pages, report, script_of

from ..support.places import ROOT

each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)


@each_page
def test_it_says_all_that_a_report_needs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.stem.partition("-")[0] in PEER_OF
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[:3] == ["Script", "What came", "What was expected"]
    assert re.search(r"\d+\.\d+.*Found by the \[scoreboard\].*`python -m scoreboard show [^`]+`", text)
    assert re.search(r"## What came\n\n```text\n\S+ \d+\.\d+.*\n.+\n", text), "no output, or none with a version"


@each_page
def test_its_script_needs_the_peer_alone(page: Path) -> None:
    script = script_of(page.read_text(encoding="utf-8"))
    ast.parse(script)
    assert "unbraid" not in script


def test_all_are_in_the_list_and_in_the_navigation() -> None:
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (FOLDER / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.stem for page in pages())
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"upstream/([\w-]+)\.md", navigation) == ["index", *listed]


def test_a_report_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("nothing") == 2
    assert "vllm-" in capsys.readouterr().err
