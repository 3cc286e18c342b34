"""Jinja's environment for chat templates: as Hugging Face sets it up, and everything paid for from the budget.

Only imported where a template is compiled, since this is the module that needs Jinja. One environment serves all
templates and threads: what differs from one rendering to the next is the `Budget`, which is in a context variable.

The public names of Jinja's sandbox that are overridden here (`call`, `call_binop`, `concat`, `is_safe_attribute`) and
the names that templates may use are checked by `tests/templates/test_jinja_contract.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_environment

from ..control_tokens import END, MARK
from ..errors import TemplateRefused, TemplateTooMuch, clip
from ..symbolic_text import FOLLOWED, Symbol, called, symbol_in
from ..traced_text import TracedMessage, TracedText, joined, origin_in, plain
from .budget import current, now
from .cost_checks import (
    CHANGES,
    UNUSED_FILTERS,
    OwnList,
    check_call,
    check_operator,
    check_search,
    checked_filter,
    checked_test,
    contains,
    equals,
    own,
    spend,
)
from .syntax_tree import (
    BUILT,
    CONTAINS,
    ENTER,
    EQUALS,
    GENERATION,
    ITEM,
    JOINED,
    LEAVE,
    TICK,
    enter,
    generation,
    is_tracing,
    item,
    leave,
)

_MOST_ATTRIBUTES = 10_000
"""So many answers are kept: templates can make up names."""


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox that a template runs in."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._safe: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja decides this by the type and the name alone."""
        key = type(obj), attr
        safe = self._safe.get(key)
        if safe is None:
            changes_own = isinstance(obj, OwnList) and attr in CHANGES
            safe = changes_own or super().is_safe_attribute(obj, attr, value)
            if len(self._safe) < _MOST_ATTRIBUTES:
                self._safe[key] = safe
        return safe

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current()
        check_operator(operator, left, right, budget)
        if operator == "%" and (symbol := symbol_in(right)) is not None:
            symbol.record.look(operator)
        return own(spend(super().call_binop(context, operator, left, right), budget))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        budget = current()
        budget.step()
        if type(__obj) is Macro:  # Jinja comes to the same, after many questions about what else it could be
            kwargs.pop("_block_vars", None)
            kwargs.pop("_loop_vars", None)
            return __obj(__context.eval_ctx, *args, **kwargs)
        arguments = check_call(__obj, args, kwargs, budget)
        if is_tracing():
            __obj = _traced_method(_followed(__obj, (*args, *kwargs.values())))
        return spend(super().call(__context, __obj, *arguments, **kwargs), budget)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`. Nearly all that templates ask for is a key of an object, or a method of a text: Jinja's
        answer, without the questions that lead to it."""
        kind = type(obj)
        if (kind is dict or kind is TracedMessage) and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind is str and attribute in _OF_TEXTS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def concat(self, texts: Iterable[str]) -> str:
        """Jinja joins the output of macros and of `{% set %}` blocks with this."""
        return current().collect(texts)


_OF_DICTS = frozenset(dir(TracedMessage))
_OF_TEXTS = frozenset(name for name in dir(str) if not name.startswith(("_", "format")))
"""What a text has that is no way out of the sandbox."""


@cache
def environment() -> Environment:
    jinja = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
        finalize=_output,
        optimized=False,
        cache_size=0,
    )
    jinja.filters.update(tojson=_json, join=_join)
    for name in UNUSED_FILTERS:
        del jinja.filters[name]
    for name, function in jinja.filters.items():
        jinja.filters[name] = checked_filter(name, function)
    jinja.filters.update({TICK: _tick, BUILT: _built, JOINED: _joined, CONTAINS: _contains, EQUALS: equals})
    jinja.filters.update({ENTER: enter, ITEM: item, LEAVE: leave, GENERATION: generation})
    tests: dict[str, Any] = jinja.tests
    for name, test in tests.items():
        tests[name] = checked_test(name, test)
    del jinja.globals["lipsum"]
    jinja.globals.update(raise_exception=_refuse, strftime_now=_now, dict=_dict, namespace=_Namespace)
    return jinja


# Hooks: what `syntax_tree` puts into a template


def _tick(value: Any) -> Any:
    current().step()
    return value


def _built(value: Any) -> Any:
    return own(spend(value, current()))


def _joined(values: Iterable[Any]) -> str:
    budget = current()
    texts = []
    for value in values:
        budget.weigh(value)
        texts.append(str(value))
    return joined("", texts)


def _traced_method(function: Any) -> Any:
    """A method of a text of the template's own that carries on where its arguments come from."""
    text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    return getattr(plain(text), name) if type(text) is str and name in ("join", "replace") else function


def _followed(function: Any, args: Sequence[Any]) -> Any:
    """The function, made to follow symbols among its arguments; or it is noted that nothing follows them."""
    symbol = next((symbol_found for each in args if (symbol_found := symbol_in(each)) is not None), None)
    text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if symbol is None or isinstance(text, dict | OwnList | Symbol) or function is _Namespace or function is _dict:
        return function
    if isinstance(text, str) and name in FOLLOWED and any(each is symbol for each in args):
        return partial(called, name, text)
    if not isinstance(text, str) or name != "join":
        symbol.record.look(name)
    return function


def _contains(item: Any, container: Any) -> bool:
    check_search(container, current())
    return contains(item, container)


def _output(value: Any) -> Any:
    """What `{{ value }}` writes is paid for before it becomes text."""
    current().weigh(value)
    return value


# What templates may use


class _Generation(Extension):
    """`{% generation %}` marks the assistant's part for training. It writes nothing, and is known to what is traced."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope([_point(True, line), *body, _point(False, line)], lineno=line)


def _point(begins: bool, line: int) -> nodes.Node:
    point = nodes.Filter(nodes.Const(begins, lineno=line), GENERATION, [], [], None, None, lineno=line)
    return nodes.Output([point], lineno=line)


_LONGEST_DATE = 1_000


def _refuse(message: object) -> NoReturn:
    raise TemplateRefused(clip(str(message).replace(MARK, "").replace(END, "")))


def _now(format: str) -> str:
    if len(format) > _LONGEST_DATE:  # it may ask for numbers of any width
        raise TemplateTooMuch(f"it asks for a date in more than {_LONGEST_DATE:,} characters")
    return now().strftime(format)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


class _Namespace(Namespace):
    """`namespace()`, without names of Python's own. Its text does not show what it holds: that may be nested
    endlessly."""

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
    if is_tracing() and (symbol := symbol_in(value)) is not None:
        write = partial(_json, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        return symbol.written_by(write, value)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None and separators is None:
        text = encoder.encode(value)
    else:  # separators and indentation may be longer than the values
        text = current().collect(encoder.iterencode(value))
    text = _escaped_marks(lambda match: match[1] + chr(int(match[2], 16)), text) if ensure_ascii else text
    origin = origin_in(value) if is_tracing() else None
    return text if origin is None else TracedText.of(text, origin)


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    """Jinja's `join`, which carries on where texts come from."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return joined(str(d), map(str, value))
