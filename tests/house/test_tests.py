"""The tests themselves: each asserts something whenever it runs, and two commands run all of them but the slow ones.

What a test may use is checked while it runs (`tests/support/system.py`), and so is what it leaves to chance
(`tests/support/embedded_model.py`).
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.places import ROOT
from ..support.system import Running, system_only

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def every_test() -> Iterator[tuple[Path, FUNCTION]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTION) and node.name.startswith("test_"):
                yield path, node


def of_its_own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, FUNCTION | ast.Lambda):
            yield from of_its_own(child)


def may_be_hollow(test: FUNCTION) -> bool:
    """Whether it can return before it asserts anything. Without an assertion of its own, it must not return at all:
    what it calls asserts."""
    first = min((node.lineno for node in ast.walk(test) if isinstance(node, ast.Assert)), default=None)
    returns = (node.lineno for node in of_its_own(test) if isinstance(node, ast.Return))
    return any(first is None or line < first for line in returns)


def test_no_test_returns_before_it_asserts() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{test.lineno}: {test.name}: parametrise only what applies"
        for path, test in every_test()
        if may_be_hollow(test)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("body", "hollow"),
    [
        ("if x: return\nassert x", True),
        ("if x: return\ncheck(x)", True),
        ("assert x\nif x: return\nassert y", False),
        ("def inner(): return 3\nassert inner()", False),
        ("check(x)", False),
    ],
)
def test_what_is_hollow(body: str, hollow: bool) -> None:
    [test] = ast.parse("def test_it(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())).body
    assert isinstance(test, ast.FunctionDef)
    assert may_be_hollow(test) is hollow


def test_what_is_for_the_system_is_refused_elsewhere(request: pytest.FixtureRequest) -> None:
    assert Running.test is request.node
    with pytest.raises(pytest.fail.Exception, match="uses a browser: mark it"):
        system_only("a browser")


@pytest.mark.system
def test_what_is_for_the_system_is_allowed_here(request: pytest.FixtureRequest) -> None:
    assert Running.test is request.node
    system_only("a browser")


def test_the_two_commands_run_every_test_but_the_slow_ones() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert "-m 'not slow and not system'" in options["addopts"]
    assert "-m 'system and not slow'" in (ROOT / "Makefile").read_text(encoding="utf-8")
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert run.split("\n")[-3:] == ["make test || make test-failed", "make test-system || make test-failed", ""]
