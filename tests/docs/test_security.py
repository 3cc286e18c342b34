"""SECURITY.md names the tests that show what it says. They are there."""

from __future__ import annotations

import ast
import re

from ..support.places import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_every_test_that_it_names_is_there() -> None:
    missing = [f"{file}::{name}" for file, name in NAMED if name not in defined_in(file)]
    assert not missing, "\n".join(missing)


def defined_in(file: str) -> set[str]:
    path = ROOT / file
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_line_of_its_tables_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| what", "| ---"))]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []
