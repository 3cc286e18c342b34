"""The layout of `unbraid`: imports run downwards, nothing goes in circles, folders and names stay readable.

A new arrow between two packages is a decision. Make it in `MAY_IMPORT`, where a reviewer sees it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable

import pytest

from ..support.places import ROOT
from .modules import HOME, cycles, imports, modules, top_level, unreadable_imports

ORDER = (
    ("errors", "version", "caching", "fairness", "patience"),
    ("metering",),
    ("schema",),
    ("core",),
    ("tokens", "formats"),
    ("parsing",),
    ("constraints",),
    ("format_checks", "stream_checks", "guessing"),
    ("format_cases",),
    ("models",),
    ("templates",),
    ("rollouts", "datasets"),
    ("engines",),
    ("speech",),
    ("plugins", "server"),
    ("ray", "verify"),
    ("cli",),
    ("__init__", "__main__"),
)
"""The packages, low to high. A module by itself (`errors.py`) is a package of its own here."""

MAY_IMPORT = {
    "errors": "",
    "version": "",
    "caching": "",
    "fairness": "",
    "patience": "",
    "metering": "errors",
    "schema": "errors metering",
    "core": "errors caching schema",
    "tokens": "caching core",
    "formats": "errors schema core",
    "parsing": "errors core tokens formats",
    "constraints": "errors caching metering schema core",
    "format_checks": "errors core parsing constraints",
    "stream_checks": "core parsing",
    "guessing": "errors core formats parsing",
    "format_cases": "version core parsing format_checks",
    "models": "errors tokens",
    "templates": "errors caching metering schema core tokens formats parsing models",
    "rollouts": "errors caching core formats parsing templates",
    "datasets": "errors version core formats parsing",
    "engines": "errors caching fairness patience schema core tokens constraints models templates",
    "speech": "errors fairness schema core tokens formats parsing constraints models templates engines",
    "plugins": "errors caching core tokens formats parsing constraints templates engines",
    "server": "errors caching fairness patience metering version schema core formats parsing constraints guessing "
    "format_cases models templates rollouts engines speech",
    "ray": "errors fairness patience version core parsing datasets templates engines speech server",
    "verify": "errors version core formats parsing rollouts",
    "cli": "stream_checks guessing format_cases formats constraints models templates datasets engines speech server "
    "ray verify",
    "__init__": "errors version core tokens formats parsing constraints format_checks guessing templates rollouts",
    "__main__": "cli",
}
"""Which package may import which."""

MOST_FILES = 14
"""How many modules a folder may have before it needs folders of its own."""

WORKED_OUT = {
    "unbraid/__init__.py": "public names load with their first use; `_HOME` is the table",
}
"""Where the name of an imported module is not written out, and why."""

LOADED_WITHOUT = (
    *("constraints", "templates", "rollouts", "datasets", "engines", "server", "speech", "models", "plugins", "ray"),
    "cli",
)
"""What `import unbraid` leaves for later."""


def arrows() -> set[tuple[str, str]]:
    """Which package imports which today."""
    found = {(top_level(one.source), top_level(one.target)) for one in imports() if one.target != HOME}
    return {(source, target) for source, target in found if source != target}


def allowed() -> set[tuple[str, str]]:
    return {(source, target) for source, targets in MAY_IMPORT.items() for target in targets.split()}


def listed(problems: Iterable[object]) -> str:
    return "\n".join(["", *map(str, problems)])


def test_a_package_imports_only_what_the_table_says() -> None:
    may = allowed()
    wrong = [
        f"{one.file}:{one.line}: {top_level(one.source)} -> {top_level(one.target)} ({one.target})"
        for one in imports()
        if one.target != HOME
        and top_level(one.source) != top_level(one.target)
        and (top_level(one.source), top_level(one.target)) not in may
    ]
    assert not wrong, listed(wrong)


def test_the_table_has_no_arrow_that_nothing_uses() -> None:
    unused = sorted(allowed() - arrows())
    assert not unused, listed(f"nothing in {source} imports {target}: take it out" for source, target in unused)


def test_the_table_points_downwards() -> None:
    level = {package: number for number, packages in enumerate(ORDER) for package in packages}
    assert sorted(level) == sorted(MAY_IMPORT), "the order and the table name different packages"
    upwards = [f"{source} -> {target}" for source, target in sorted(allowed()) if level[target] >= level[source]]
    assert not upwards, listed(upwards)


def test_the_table_names_every_package() -> None:
    there = {top_level(name) for name in modules()}
    assert there == set(MAY_IMPORT)


def test_no_module_imports_unbraid_itself() -> None:
    """`unbraid/__init__.py` collects what users call. Inside the package, import from where a name is defined. Only the
    command line uses the library as a user does."""
    wrong = [one for one in imports() if one.target == HOME and not one.source.startswith("unbraid.cli")]
    assert not wrong, listed(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = cycles({(one.source, one.target) for one in imports() if one.target != HOME})
    assert not found, listed(" <-> ".join(circle) for circle in found)


def test_imports_by_string_can_be_read() -> None:
    """`import_module("unbraid.…")` counts as an import. With a name that is worked out, nobody can follow it."""
    wrong = [place for place in unreadable_imports() if place.partition(":")[0] not in WORKED_OUT]
    assert not wrong, listed(wrong)


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    counts: dict[str, int] = defaultdict(int)
    for module in modules().values():
        counts[module.path.parent.relative_to(ROOT).as_posix()] += 1
    large = {folder: count for folder, count in counts.items() if count > MOST_FILES}
    assert not large, listed(f"{folder}: {count} modules" for folder, count in large.items())


def test_each_module_says_what_it_is_for() -> None:
    silent = [module.file for module in modules().values() if not ast.get_docstring(module.tree)]
    assert not silent, listed(silent)


def test_importing_unbraid_loads_the_parser_and_the_formats_only() -> None:
    """Constraints, templates and the normal form of schemas load when they are first used."""
    heavy = [f"{HOME}.{name}" for name in LOADED_WITHOUT] + [f"{HOME}.schema.normal_form"]
    assert set(heavy) <= set(modules()), "a module was renamed: name it here"
    loaded = modules_after("import unbraid")
    wrong = sorted(name for name in loaded if any(name == one or name.startswith(one + ".") for one in heavy))
    assert not wrong, listed(wrong)


def test_importing_unbraid_loads_no_other_package() -> None:
    foreign = {name.split(".")[0] for name in modules_after("import unbraid")} - sys.stdlib_module_names - {HOME}
    assert not foreign, listed(sorted(foreign))


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after `statement` that it had not before. (`-I -S`: without what `site` loads
    by itself.)"""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); {statement}; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({("a", "b"), ("b", "c")}, []),
        ({("a", "b"), ("b", "a"), ("b", "c")}, [["a", "b"]]),
        ({("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("e", "d")}, [["a", "b", "c"], ["d", "e"]]),
    ],
)
def test_circles_are_found(edges: set[tuple[str, str]], expected: list[list[str]]) -> None:
    assert cycles(edges) == expected
