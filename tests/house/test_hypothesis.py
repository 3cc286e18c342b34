"""Property tests follow the profile: none has a number of examples of its own."""

from __future__ import annotations

import ast

from ..support.places import ROOT

MAY_SAY_HOW_MANY = ("tests/conftest.py", "tests/support/examples.py")


def test_no_test_has_a_number_of_examples_of_its_own() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}: write `@examples(scale)` (tests/support/examples.py)"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in MAY_SAY_HOW_MANY
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and any(keyword.arg == "max_examples" for keyword in node.keywords)
    ]
    assert not found, "\n".join(found)
