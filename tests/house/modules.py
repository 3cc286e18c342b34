"""The modules of `unbraid` and what they import, read with `ast` and never run.

Imports inside functions, under `TYPE_CHECKING` and by string (`import_module("unbraid.core.events")`) count like any
other: each makes one module depend on another, whether or not it is loaded at that moment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..support.places import ROOT

HOME = "unbraid"


@dataclass(frozen=True)
class Import:
    """One import of one module of `unbraid` by another."""

    source: str
    target: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.source} imports {self.target}"


@dataclass(frozen=True)
class Module:
    """A module: its dotted name, where it stands, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def file(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def package(self) -> str:
        """The package that a relative import of one dot starts from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@cache
def modules() -> Mapping[str, Module]:
    """Every module of `unbraid`, by its dotted name."""
    found = {}
    for path in sorted((ROOT / HOME).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Every import of a module of `unbraid` by another, once for each line it stands in."""
    found = (
        Import(module.name, target, module.file, line)
        for module in modules().values()
        for target, line in _targets(module)
        if target != module.name
    )
    return tuple(dict.fromkeys(found))


def top_level(module: str) -> str:
    """The package that a module belongs to: `unbraid.core.events` is in `core`, `unbraid.errors` is `errors`."""
    return module.split(".")[1] if "." in module else "__init__"


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan's algorithm), largest first."""
    graph: dict[str, list[str]] = {}
    for source, target in edges:
        graph.setdefault(source, []).append(target)
        graph.setdefault(target, [])
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=lambda component: (-len(component), component))


def _targets(module: Module) -> Iterator[tuple[str, int]]:
    """The modules that a module imports, with the line. `from .core import events` imports `core.events`. A name that
    is no module counts as an import of its package."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == HOME:
                    yield _known(alias.name), node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            if base.split(".")[0] == HOME:
                for alias in node.names:
                    name = f"{base}.{alias.name}"
                    yield name if name in modules() else _known(base), node.lineno
        elif isinstance(node, ast.Call) and _imports_by_string(node):
            [argument, *_] = node.args
            if isinstance(argument, ast.Constant) and str(argument.value).split(".")[0] == HOME:
                yield _known(str(argument.value)), node.lineno


def unreadable_imports() -> list[str]:
    """Imports by a string that is worked out, and may be one of ours: what begins with the name of another package, or
    is handed in whole, is not."""
    return [
        f"{module.file}:{node.lineno}: {ast.unparse(node)}"
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and _imports_by_string(node)
        and isinstance(node.args[0], ast.JoinedStr | ast.BinOp)
    ]


def _imports_by_string(node: ast.Call) -> bool:
    return bool(node.args) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _known(name: str) -> str:
    """A module that is there; a misspelt import must not look like none."""
    if name not in modules():
        raise AssertionError(f"there is no module {name}")
    return name
