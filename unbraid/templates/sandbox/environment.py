"""Jinja as Hugging Face sets it up for chat templates, with limits. Only imported where a template is rendered."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ..errors import TemplateRefused, TemplateTooMuch, clipped
from ..control_tokens import END, MARK, Controls
from .budget import current
from .cost_checks import UNUSED_FILTERS, check_call, check_operator, guarded_filter, guarded_test, sought, spend


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox that a template runs in: all that it does is paid for from the current budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current()
        check_operator(operator, left, right, budget)
        return spend(super().call_binop(context, operator, left, right), budget)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        budget = current()
        budget.step()
        if isinstance(__obj, Macro):
            return super().call(__context, __obj, *args, **kwargs)
        arguments = check_call(__obj, args, kwargs, budget)
        return spend(super().call(__context, __obj, *arguments, **kwargs), budget)

    # What the code calls that `_Code` writes

    def tick(self) -> None:
        current().step()

    def built(self, value: Any) -> Any:
        return spend(value, current())

    def joined(self, values: Iterable[Any]) -> str:
        budget = current()
        texts = []
        for value in values:
            budget.weigh(value)
            texts.append(str(value))
        return "".join(texts)

    def among(self, one: Any, others: Any) -> bool:
        """`in`; what is looked for stands left, or on the right in a list."""
        if isinstance(one, str):
            if isinstance(others, str):
                one = sought(one, others)
            elif isinstance(others, list | tuple):
                others = sought(others, one)
        return bool(one in others)

    def same(self, one: Any, other: Any) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            one, other = sought(one, other), sought(other, one)
        return bool(one == other)

    def concat(self, texts: Iterable[str]) -> str:
        return current().collected(texts)


class _Code(CodeGenerator):
    """Code that counts what it does: at the head of each block, and where values are built."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.built(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load":
            return super().visit_Tuple(node, frame)
        self.write("environment.built(")
        super().visit_Tuple(node, frame)
        return self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.joined((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        function = {"in": "among", "notin": "not among", "eq": "same", "ne": "not same"}.get(node.ops[0].op)
        if len(node.ops) > 1 or function is None:
            return super().visit_Compare(node, frame)
        negated, function = function.startswith("not "), function.removeprefix("not ")
        self.write(f"({'not ' if negated else ''}environment.{function}(")
        self.visit(node.expr, frame)
        self.write(", ")
        self.visit(node.ops[0].expr, frame)
        return self.write("))")


Environment.code_generator_class = _Code


class _Generation(Extension):
    """`{% generation %}` says which part is the assistant's, for training. It is rendered as if it were not there."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


# What templates may call

_LONGEST_DATE = 1_000


def _refuse(message: object) -> NoReturn:
    raise TemplateRefused(clipped(str(message).replace(MARK, "").replace(END, "")))


def _now(format: str) -> str:
    if len(format) > _LONGEST_DATE:  # it may ask for numbers of any width
        raise TemplateTooMuch(f"it asks for a date in more than {_LONGEST_DATE:,} characters")
    return datetime.datetime.now().strftime(format)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


class _Namespace(Namespace):
    """Without names of Python's own. As text it does not tell what it holds, which may be others without end."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot hold the name {name!r}")


_escaped_marks = re.compile(r"(?<!\\)((?:\\\\)*)\\u(dc0[012])").sub


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`tojson` as Hugging Face has it, without the escapes for HTML."""
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None and separators is None:
        text = encoder.encode(value)
    else:  # what stands between the values may be longer than all of them
        text = current().collected(encoder.iterencode(value))
    return _escaped_marks(lambda found: found[1] + chr(int(found[2], 16)), text) if ensure_ascii else text


def _written(value: Any) -> Any:
    """What `{{ value }}` writes is paid for before it becomes text."""
    current().weigh(value)
    return value


@cache
def environment() -> Environment:
    made = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
        finalize=_written,
        optimized=False,
        cache_size=0,
    )
    made.filters["tojson"] = _json
    for name in UNUSED_FILTERS:
        del made.filters[name]
    for name, function in made.filters.items():
        made.filters[name] = guarded_filter(name, function)
    tests: dict[str, Any] = made.tests
    for name, test in tests.items():
        tests[name] = guarded_test(test)
    del made.globals["lipsum"]
    made.globals.update(raise_exception=_refuse, strftime_now=_now, dict=_dict, namespace=_Namespace)
    return made


def marked_tree(source: str, controls: Controls) -> nodes.Template:
    """The template's tree, with the control tokens in its own text marked."""
    tree = environment().parse(source)
    for data in tree.find_all(nodes.TemplateData):
        data.data = controls.mark(data.data)
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            constant.value = controls.mark(constant.value)
    return tree
