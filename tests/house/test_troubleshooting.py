"""Every diagnostic and every error code has its row in docs/troubleshooting.md: what it means, and what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unbraid import diagnostics

from ..support.places import ROOT

ROW = re.compile(r"^\| `(\w+)` \| [^|]{8,} \| [^|]{3,} \|$", re.MULTILINE)
KINDS = {value for name, value in vars(diagnostics).items() if name.isupper() and isinstance(value, str)}


def listed() -> list[str]:
    return ROW.findall((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"))


def codes_in(tree: ast.AST) -> Iterator[str]:
    """The codes that errors are made with: `code="…"`, and values that are assigned to `code`."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        elif isinstance(node, ast.Assign):
            names = [name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)]
            values = [node.value] if "code" in names else []
        for value in values:
            for constant in ast.walk(value):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield constant.value


def codes() -> set[str]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "unbraid" / "server").rglob("*.py"))
    return {code for tree in trees for code in codes_in(tree)}


def test_every_diagnostic_is_there() -> None:
    assert not KINDS - set(listed())


def test_every_error_code_is_there() -> None:
    there = codes()
    assert {"engine_busy", "invalid_api_key", "context_length_exceeded"} <= there
    assert not there - set(listed())


def test_nothing_else_is_there() -> None:
    rows = listed()
    assert len(rows) == len(set(rows))
    assert not set(rows) - KINDS - codes()
