"""A template's syntax tree, prepared for the sandbox: control tokens marked, and hooks where work is done.

Jinja's sandbox intercepts operators and calls. It does not intercept the turns of a loop, literals, `~`, `in` and `==`.
These are rewritten here into filters of ours, which the environment has under names that no template can spell:

    {% for … %} … {% endfor %}    each turn begins with a tick: one step of the budget
    [a, b], {a: b}, (a, b)        …|built: what was built is paid for
    a ~ b                         (a, b)|joined
    a in b, a == b                a|contains(b), a|equals(b): marks do not count

Only Jinja's documented syntax tree is used (`jinja2.nodes`), not its code generator. What this relies on is checked by
`tests/templates/test_jinja_contract.py`; a new kind of node must be looked at there before it is let in.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from ..control_tokens import ControlTokens
from .loops import LoopHooks

TICK, BUILT, JOINED, CONTAINS, EQUALS = (
    "unbraid " + name for name in ("tick", "built", "joined", "contains", "equals")
)
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
