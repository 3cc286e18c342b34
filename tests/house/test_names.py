"""One word, one thing: a class name means one thing in all of `unbraid`, and a local name says what it holds."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from .modules import Module, modules

SAYS_NOTHING = frozenset({"found", "given", "asked", "known", "written", "made", "told"})
"""Names that say that something was found, given or written, and not what. `matches`, `request`, `schema` do."""


def class_names(module: Module) -> Iterator[tuple[str, int]]:
    """The public classes of a module, those inside others and inside functions as well. A second definition of the same
    class in the same module (`if TYPE_CHECKING: … else: …`) counts once."""
    lines = {node.name: node.lineno for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
    return ((name, line) for name, line in lines.items() if not name.startswith("_"))


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules().values():
        for name, line in class_names(module):
            places[name].append(f"{module.file}:{line}")
    twice = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not twice, "\n".join(["", *twice])


def local_names(module: Module) -> Iterator[tuple[str, int]]:
    """Parameters, and names that are assigned in functions."""
    for function in ast.walk(module.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.arg):
                    yield node.arg, node.lineno
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id, node.lineno


def test_a_local_name_says_the_thing() -> None:
    wrong = {
        f"{module.file}:{line}: {name}"
        for module in modules().values()
        for name, line in local_names(module)
        if name in SAYS_NOTHING
    }
    assert not wrong, "\n".join(["name the thing:", *sorted(wrong)])
