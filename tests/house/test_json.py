"""JSON that others wrote may nest deeper than Python reads, which is no `ValueError`."""

from __future__ import annotations

import ast

from .modules import Module, modules


def reads_json(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load")


def careless(module: Module) -> list[str]:
    """Where JSON that is none is expected, and JSON that nests too deep is not."""
    return [
        f"{module.file}:{node.lineno}: catch RecursionError, too"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Try) and any(reads_json(inner) for part in node.body for inner in ast.walk(part))
        if "ValueError" in (caught := {name for handler in node.handlers for name in names(handler.type)})
        if "RecursionError" not in caught
    ]


def names(caught: ast.expr | None) -> set[str]:
    return set() if caught is None else {node.id for node in ast.walk(caught) if isinstance(node, ast.Name)}


def test_json_may_nest_too_deep() -> None:
    found = [place for module in modules().values() for place in careless(module)]
    assert not found, "\n".join(found)
