"""The tests themselves: each asserts something whenever it runs, and two commands run all of them but the slow ones.

What a test may use is checked while it runs (`tests/support/system.py`), and so is what it leaves to chance
(`tests/support/embedded_model.py`).
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
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


def called(node: ast.AST) -> Iterator[str]:
    """The last names of what is called in it: `check` for `laws.check(…)`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            yield ast.unparse(each.func).rpartition(".")[2]


def asserts(node: ast.AST, helpers: Collection[str] = ()) -> bool:
    """Whether there is an assertion in it: its own, `pytest.raises`, or one of a helper that it calls."""
    own = any(isinstance(each, ast.Assert | ast.Raise) for each in ast.walk(node))
    return own or any(name in ("raises", "warns", "fail", *helpers) or "assert" in name for name in called(node))


@cache
def functions() -> Mapping[str, list[FUNCTION]]:
    """All functions of the tests, and the checks of the library that they call, by their names."""
    result: dict[str, list[FUNCTION]] = defaultdict(list)
    for path in (*(ROOT / "tests").rglob("*.py"), ROOT / "unbraid" / "stream_checks.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTION):
                result[node.name].append(node)
    return result


@cache
def asserting_helpers() -> frozenset[str]:
    """The functions of the tests that assert, themselves or by what they call."""
    calls = {name: {one for node in nodes for one in called(node)} for name, nodes in functions().items()}
    helpers = {name for name, nodes in functions().items() if any(map(asserts, nodes))}
    while more := {name for name, names in calls.items() if name not in helpers and names & helpers}:
        helpers |= more
    return frozenset(helpers)


def always_asserts(body: list[ast.stmt], helpers: Collection[str]) -> bool:
    """Whether something is asserted whatever the conditions are. A loop counts as one that runs."""
    for at, statement in enumerate(body):
        match statement:
            case ast.If():
                if isinstance(statement.body[-1], ast.Continue):
                    return not asserts(ast.Module(body[at:], []), helpers)
                if always_asserts(statement.body, helpers) and always_asserts(statement.orelse, helpers):
                    return True
            case ast.Match():
                if all(always_asserts(case.body, helpers) for case in statement.cases):
                    return True
            case ast.Try():
                ways = [[*statement.body, *statement.orelse], *(handler.body for handler in statement.handlers)]
                if all(always_asserts(way, helpers) for way in ways) or always_asserts(statement.finalbody, helpers):
                    return True
            case ast.For() | ast.AsyncFor() | ast.While():
                if always_asserts(statement.body, helpers):
                    return True
            case ast.With() | ast.AsyncWith():
                if always_asserts(statement.body, helpers) or any(asserts(item, helpers) for item in statement.items):
                    return True
            case _:
                if asserts(statement, helpers):
                    return True
    return False


def why_hollow(test: FUNCTION, helpers: Collection[str] = ()) -> str | None:
    """How a test can pass and assert nothing, where it can."""
    if not asserts(test, helpers):
        return "it asserts nothing"
    first = min((node.lineno for node in ast.walk(test) if isinstance(node, ast.Assert)), default=None)
    returns = (node.lineno for node in of_its_own(test) if isinstance(node, ast.Return))
    if any(first is None or line < first for line in returns):
        return "it returns before it asserts"
    return None if always_asserts(test.body, helpers) else "it asserts only under a condition"


def test_no_test_is_hollow() -> None:
    hollow = [
        f"{path.relative_to(ROOT).as_posix()}:{test.lineno}: {test.name}: {why}: parametrise only what applies"
        for path, test in every_test()
        if (why := why_hollow(test, asserting_helpers()))
    ]
    assert not hollow, "\n".join(hollow)


def test_every_helper_that_asserts_is_called() -> None:
    """Else it looks as if something were tested, and nothing is."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    unused = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}: {node.name}"
        for path, text in texts.items()
        for node in ast.parse(text).body
        if isinstance(node, FUNCTION) and asserts(node) and words[node.name] == 1
        if not node.name.startswith(("test_", "pytest_"))
    ]
    assert not unused, "\n".join(unused)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if x: return\nassert x", "it returns before it asserts"),
        ("if x: return\ncheck(x)", "it returns before it asserts"),
        ("assert x\nif x: return\nassert y", None),
        ("def inner(): return 3\nassert inner()", None),
        ("check(x)", None),
        ("helped(x)", "it asserts nothing"),
        ("if x: assert y", "it asserts only under a condition"),
        ("if x: assert y\nelse: check(x)", None),
        ("for x in y:\n  if x: check(x)", "it asserts only under a condition"),
        ("for x in y:\n  if x: continue\n  check(x)", "it asserts only under a condition"),
        ("for x in y: check(x)", None),
        ("with pytest.raises(KeyError): x()", None),
        ("if x:\n  with pytest.raises(KeyError): x()", "it asserts only under a condition"),
    ],
)
def test_what_is_hollow(body: str, why: str | None) -> None:
    [test] = ast.parse("def test_it(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())).body
    assert isinstance(test, ast.FunctionDef)
    assert why_hollow(test, {"check"}) == why


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
