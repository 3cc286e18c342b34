"""A template's syntax tree, prepared for the sandbox: control tokens marked, and hooks where work is done.

Jinja's sandbox intercepts operators and calls. It does not intercept the turns of a loop, literals, `~`, `in` and `==`.
These are rewritten here into filters of ours, which the environment has under names that no template can spell:

    {% for … %} … {% endfor %}    each turn begins with a tick: one step of the budget
    [a, b], {a: b}, (a, b)        …|built: what was built is paid for
    a ~ b                         (a, b)|joined
    a in b, a == b                a|contains(b), a|equals(b): marks do not count

In a template that is compiled to be traced (`traced_text`), loops also tell which message is being written. Hooks
around a loop and at the head of its body write empty texts with a point: where the loop's variable is a message, and
where the loop is over. So what a template writes around a message belongs to that message, whatever it looks like. Of
nested loops, the innermost one that has a message counts. In `{% for i in range(messages|length) %}{% set message =
messages[i] %}` the assignment tells it.

Only Jinja's documented syntax tree is used (`jinja2.nodes`), not its code generator. What this relies on is checked by
`tests/templates/test_jinja_contract.py`; a new kind of node must be looked at there before it is let in.
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

from ..control_tokens import ControlTokens
from ..traced_text import TracedMessage, TracedText

TICK, BUILT, JOINED, CONTAINS, EQUALS = (
    "unbraid " + name for name in ("tick", "built", "joined", "contains", "equals")
)
"""Names of filters. The space keeps templates from using them."""
ENTER, ITEM, LEAVE, GENERATION = ("unbraid " + name for name in ("enter", "item", "leave", "generation"))
"""Names of filters. The space keeps templates from using them."""
_COMPARISONS = {"in": (CONTAINS, False), "notin": (CONTAINS, True), "eq": (EQUALS, False), "ne": (EQUALS, True)}
"""Operators of Jinja: the filter that takes their place, and whether its answer is negated."""


def prepared_tree(tree: nodes.Template, controls: ControlTokens, traced: bool = False) -> nodes.Template:
    """The tree of a parsed template, changed in place. `traced`: with hooks that tell which message is written."""
    assert tree.environment is not None
    _mark(tree, controls)
    _Hooks().visit(tree)
    if traced:
        LoopHooks().visit(tree)
    tree.set_environment(tree.environment)  # new nodes do not know it yet
    return tree


def _mark(tree: nodes.Template, controls: ControlTokens) -> None:
    for data in tree.find_all(nodes.TemplateData):
        data.data = controls.mark(data.data)
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            constant.value = controls.mark(constant.value)


class _Hooks(NodeTransformer):
    """Puts the hooks in, from the leaves up."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        node = super().generic_visit(node, *args, **kwargs)
        # An empty body still runs once a turn. An empty `else_` means that there is none.
        if "body" in node.fields:
            vars(node)["body"] = _ticking(vars(node)["body"], node.lineno)
        if "else_" in node.fields and vars(node)["else_"]:
            vars(node)["else_"] = _ticking(vars(node)["else_"], node.lineno)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.test, nodes.Expr):  # `for … if test`: a skipped item counts too
            vars(node)["test"] = _filter(node.test, TICK)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._built(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._built(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._built(node) if node.ctx == "load" else self.generic_visit(node)

    def _built(self, node: nodes.Literal) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, BUILT)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), JOINED)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        filter, negated = _COMPARISONS.get(node.ops[0].op, ("", False))
        if len(node.ops) > 1 or not filter:
            return node
        compared = _filter(node.expr, filter, node.ops[0].expr)
        return nodes.Not(compared, lineno=node.lineno) if negated else compared


def _filter(value: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _ticking(block: list[nodes.Node], line: int) -> list[nodes.Node]:
    """A block of statements with a tick at its head."""
    line = block[0].lineno if block else line
    return [nodes.ExprStmt(_filter(nodes.Const(None, lineno=line), TICK), lineno=line), *block]


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
    number = next((each._at for each in values if isinstance(each, TracedMessage)), None)
    if number is None or not loops:
        return ""
    loops[-1] = number
    return TracedText.point("message", number)


@pass_context  # so that Jinja does not compute it while it compiles
def leave(_: Context, __: Any) -> str:
    loops = _open.get()
    if not loops or loops.pop() < 0:
        return ""
    return TracedText.point("message", next((each for each in reversed(loops) if each >= 0), -1))


@pass_context
def generation(_: Context, begins: bool) -> str:
    return TracedText.point("generation", int(begins)) if is_tracing() else ""
