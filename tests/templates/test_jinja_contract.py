"""What the sandbox relies on in Jinja beyond its documentation. A failure here names what a new version changed.

Jinja is pinned below the next minor version (`pyproject.toml`). To raise the bound, run this file with the new version,
look at each failure, and change the sandbox or the table. A new node, filter or test needs a decision: can a template
do much work with little of it?
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
import pytest
from jinja2 import defaults, nodes
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from unbraid.templates.sandbox.environment import environment

BLOCKS = {
    "AssignBlock": ("target", "filter", "body"),
    "Block": ("name", "body", "scoped", "required"),
    "CallBlock": ("call", "args", "defaults", "body"),
    "FilterBlock": ("body", "filter"),
    "For": ("target", "iter", "body", "else_", "test", "recursive"),
    "If": ("test", "body", "elif_", "else_"),
    "Macro": ("name", "args", "defaults", "body"),
    "OverlayScope": ("context", "body"),
    "Scope": ("body",),
    "ScopedEvalContextModifier": ("options", "body"),
    "Template": ("body",),
    "With": ("targets", "values", "body"),
}
"""Statements with statements inside. `syntax_tree` puts a tick into `body` and `else_`; `elif_` holds more of `If`."""
STATEMENTS = {
    "Assign": ("target", "node"),
    "Break": (),
    "Continue": (),
    "EvalContextModifier": ("options",),
    "ExprStmt": ("node",),
    "Extends": ("template",),
    "FromImport": ("template", "names", "with_context"),
    "Import": ("template", "target", "with_context"),
    "Include": ("template", "with_context", "ignore_missing"),
    "Output": ("nodes",),
}
HOOKED = {
    "Compare": ("expr", "ops"),
    "Concat": ("nodes",),
    "Const": ("value",),
    "Dict": ("items",),
    "Filter": ("node", "name", "args", "kwargs", "dyn_args", "dyn_kwargs"),
    "List": ("items",),
    "Not": ("node",),
    "Operand": ("op", "expr"),
    "TemplateData": ("data",),
    "Tuple": ("items", "ctx"),
}
"""Expressions that `syntax_tree` changes or makes."""
EXPRESSIONS = {
    *("Add", "And", "BinExpr", "Call", "CondExpr", "ContextReference", "DerivedContextReference", "Div"),
    *("EnvironmentAttribute", "ExtensionAttribute", "FloorDiv", "Getattr", "Getitem", "ImportedName", "InternalName"),
    *("Literal", "MarkSafe", "MarkSafeIfAutoescape", "Mod", "Mul", "NSRef", "Name", "Neg", "Or", "Pos", "Pow"),
    *("Slice", "Sub", "Test", "UnaryExpr", "_FilterTestCommon"),
}
"""All others. Operators and calls are intercepted by the environment; what is left makes nothing."""
FILTERS = {
    *("abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e", "escape"),
    *("filesizeformat", "first", "float", "forceescape", "format", "groupby", "indent", "int", "items", "join", "last"),
    *("length", "list", "lower", "map", "max", "min", "pprint", "random", "reject", "rejectattr", "replace", "reverse"),
    *(
        "round",
        "safe",
        "select",
        "selectattr",
        "slice",
        "sort",
        "string",
        "striptags",
        "sum",
        "title",
        "tojson",
        "trim",
    ),
    *("truncate", "unique", "upper", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
}
TESTS = {
    *("!=", "<", "<=", "==", ">", ">=", "boolean", "callable", "defined", "divisibleby", "eq", "equalto", "escaped"),
    *("even", "false", "filter", "float", "ge", "greaterthan", "gt", "in", "integer", "iterable", "le", "lessthan"),
    *("lower", "lt", "mapping", "ne", "none", "number", "odd", "sameas", "sequence", "string", "test", "true"),
    *("undefined", "upper"),
}
GLOBALS = {"cycler", "dict", "joiner", "lipsum", "namespace", "range"}


def changed(what: str, now: Any, known: Any) -> str:
    """The message: which entries are new, which are gone, and where to look."""
    new, gone = sorted(set(now) - set(known)), sorted(set(known) - set(now))
    other = [name for name in known if name in now and isinstance(known, dict) and now[name] != known[name]]
    return f"Jinja {jinja2.__version__} changed its {what}: new {new}, gone {gone}, other fields {other}"


def kinds_of(base: type[nodes.Node]) -> Iterator[type[nodes.Node]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def fields_of(*kinds: type[nodes.Node]) -> dict[str, tuple[str, ...]]:
    return {kind.__name__: kind.fields for kind in kinds}


def test_statements_are_those_that_the_sandbox_knows() -> None:
    now = fields_of(*kinds_of(nodes.Stmt), nodes.Template)
    assert now == BLOCKS | STATEMENTS, changed("statements", now, BLOCKS | STATEMENTS)


def test_expressions_are_those_that_the_sandbox_knows() -> None:
    kinds = fields_of(*kinds_of(nodes.Expr), nodes.Operand)
    assert set(kinds) == EXPRESSIONS | set(HOOKED), changed("expressions", kinds, EXPRESSIONS | set(HOOKED))
    hooked = {name: kinds[name] for name in HOOKED}
    assert hooked == HOOKED, changed("expressions", hooked, HOOKED)


@pytest.mark.parametrize(
    ("what", "now", "known"),
    [
        ("filters", vars(defaults)["DEFAULT_FILTERS"], FILTERS),
        ("tests", vars(defaults)["DEFAULT_TESTS"], TESTS),
        ("globals", vars(defaults)["DEFAULT_NAMESPACE"], GLOBALS),
    ],
)
def test_what_templates_can_name_is_what_the_sandbox_knows(what: str, now: dict[str, Any], known: set[str]) -> None:
    assert set(now) == known, changed(what, now, known)


SIGNATURES: list[tuple[Callable[..., Any], list[str]]] = [
    (SandboxedEnvironment.call_binop, ["self", "context", "operator", "left", "right"]),
    (SandboxedEnvironment.call, ["__self", "__context", "__obj", "args", "kwargs"]),
    (jinja2.Environment.parse, ["self", "source", "name", "filename"]),
    (jinja2.Environment.from_string, ["self", "source", "globals", "template_class"]),
    (jinja2.Template.new_context, ["self", "vars", "shared", "locals"]),
    (jinja2.Template.get_corresponding_lineno, ["self", "lineno"]),
    (nodes.Node.set_environment, ["self", "environment"]),
    (NodeTransformer.generic_visit, ["self", "node", "args", "kwargs"]),
    (Namespace.__setitem__, ["self", "name", "value"]),
]


@pytest.mark.parametrize(("function", "parameters"), SIGNATURES, ids=lambda value: getattr(value, "__qualname__", ""))
def test_what_is_called_and_overridden_has_the_same_parameters(
    function: Callable[..., Any], parameters: list[str]
) -> None:
    now = [name.removeprefix("_SandboxedEnvironment") for name in inspect.signature(function).parameters]
    assert now == parameters, f"Jinja {jinja2.__version__} changed the parameters of {function.__qualname__}: {now}"


class Recorder(ImmutableSandboxedEnvironment):
    """An environment that notes which of the overridden methods Jinja calls."""

    intercepted_binops = frozenset({"+"})

    def __init__(self) -> None:
        super().__init__(finalize=self._finalize, optimized=False)
        self.seen: list[str] = []

    def _finalize(self, value: Any) -> Any:
        self.seen.append("finalize")
        return value

    def call_binop(self, *args: Any) -> Any:
        self.seen.append("call_binop")
        return super().call_binop(*args)

    def call(__self, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.seen.append("call macro" if isinstance(args[1], Macro) else "call")
        return super().call(*args, **kwargs)

    def concat(self, texts: Any) -> str:
        self.seen.append("concat")
        return "".join(texts)


@pytest.mark.parametrize(
    ("source", "hook"),
    [
        ("{{ value }}", "finalize"),
        ("{% if value + value %}{% endif %}", "call_binop"),
        ("{% if value.upper() %}{% endif %}", "call"),
        ("{% macro m() %}{% endmacro %}{% if m() %}{% endif %}", "call macro"),
        ("{% macro m() %}{{ value }}{% endmacro %}{% if m() %}{% endif %}", "concat"),
        ("{% set text %}{{ value }}{% endset %}", "concat"),
    ],
)
def test_jinja_goes_through_what_is_overridden(source: str, hook: str) -> None:
    recorder = Recorder()
    template = recorder.from_string(source)
    recorder.seen.clear()
    list(template.root_render_func(template.new_context({"value": "a"})))
    assert hook in recorder.seen, f"Jinja {jinja2.__version__} no longer goes through {hook} for {source!r}"


def test_the_frames_of_a_template_are_known_by_their_globals() -> None:
    """For the line of an error."""
    template = environment().from_string("{{ 1 }}")
    known = template.root_render_func.__globals__.get("__jinja_template__")
    assert known is template, f"Jinja {jinja2.__version__} does not say in __jinja_template__ which template runs"


def test_a_template_is_a_generator_whose_frame_knows_its_line() -> None:
    """For the line that wrote a text."""
    template = environment().from_string("{{ x }}\n{% if x %}\n{{ x }}{% endif %}")
    pieces: Any = template.root_render_func(template.new_context({"x": 1}))
    lines = [template.get_corresponding_lineno(pieces.gi_frame.f_lineno) for _ in pieces]
    assert (lines[0], lines[-1]) == (1, 3), f"Jinja {jinja2.__version__} does not say which line writes"


def test_no_template_can_name_a_hook() -> None:
    hooks = set(environment().filters) - FILTERS
    assert len(hooks) == 9
    for name in hooks:
        with pytest.raises(jinja2.TemplateSyntaxError):
            environment().parse("{{ 1 | " + name + " }}")


def test_a_change_is_named() -> None:
    message = changed("filters", {"abs": 1, "shuffle": 1}, {"abs", "attr"})
    assert message == f"Jinja {jinja2.__version__} changed its filters: new ['shuffle'], gone ['attr'], other fields []"
