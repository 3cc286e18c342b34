"""Which message a template is writing, told by its loops, while it is traced (`traced_text`).

Templates go through the messages in a loop. In a template that is compiled to be traced, each loop says so: hooks
around it and at the head of its body write empty texts with a point, where the loop's variable is a message, and where
the loop is over. So what a template writes around a message belongs to it, whatever it looks like. Loops may stand in
each other; the innermost one that has a message counts.

`{% for i in range(messages|length) %}{% set message = messages[i] %}` is told by the assignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from ..traced_text import TracedMessage, TracedText

ENTER, ITEM, LEAVE, GENERATION = ("unbraid " + name for name in ("enter", "item", "leave", "generation"))
"""Names of filters. The space keeps templates from using them."""

_open: ContextVar[list[int] | None] = ContextVar("unbraid_template_loops", default=None)
"""The message of each open loop, -1 for none. None where nothing is traced."""


@contextmanager
def tracing() -> Iterator[None]:
    """What is rendered inside is traced."""
    token = _open.set([])
    try:
        yield
    finally:
        _open.reset(token)


def is_tracing() -> bool:
    return _open.get() is not None


class LoopHooks(NodeTransformer):
    """Puts the hooks in."""

    def visit_For(self, node: nodes.For) -> Any:  # noqa: N802
        self.generic_visit(node)
        if node.recursive:
            return node
        line = node.lineno
        names = [name.name for name in node.target.find_all(nodes.Name)]
        if isinstance(node.target, nodes.Name):
            names = [node.target.name]
        body = [_say(ITEM, [nodes.Name(name, "load", lineno=line) for name in names], line)]
        for statement in node.body:
            body.append(statement)
            if isinstance(statement, nodes.Assign) and _picks(statement, names):
                assert isinstance(statement.target, nodes.Name)
                body.append(_say(ITEM, [nodes.Name(statement.target.name, "load", lineno=line)], line))
        vars(node)["body"] = body
        vars(node)["iter"] = nodes.Filter(node.iter, ENTER, [], [], None, None, lineno=line)
        return [node, _say(LEAVE, [], line)]


def _picks(statement: nodes.Assign, names: list[str]) -> bool:
    """Whether it is `{% set message = messages[i] %}`, with the loop's own `i`."""
    value = statement.node
    return (
        isinstance(statement.target, nodes.Name)
        and isinstance(value, nodes.Getitem)
        and isinstance(value.arg, nodes.Name)
        and value.arg.name in names
    )


def _say(filter: str, values: list[nodes.Expr], line: int) -> nodes.Node:
    value = nodes.List(values, lineno=line)
    return nodes.Output([nodes.Filter(value, filter, [], [], None, None, lineno=line)], lineno=line)


# The filters


def enter(items: Any) -> Any:
    loops = _open.get()
    if loops is not None:
        loops.append(-1)
    return items


def item(values: list[Any]) -> str:
    loops = _open.get()
    found = next((each._at for each in values if isinstance(each, TracedMessage)), None)
    if found is None or not loops:
        return ""
    loops[-1] = found
    return TracedText.point("message", found)


@pass_context  # so that Jinja does not compute it while it compiles
def leave(_: Context, __: Any) -> str:
    loops = _open.get()
    if not loops or loops.pop() < 0:
        return ""
    return TracedText.point("message", next((each for each in reversed(loops) if each >= 0), -1))


@pass_context
def generation(_: Context, begins: bool) -> str:
    return TracedText.point("generation", int(begins)) if is_tracing() else ""
