"""Costs of filters and tests, estimated before they run.

Every filter of Jinja is wrapped: it spends a step, its value is weighed unless the filter never writes it out, and the
few filters that can make much from little have a check of their own. A filter that is new in Jinja gets the general
treatment, and `tests/templates/test_jinja_contract.py` fails until someone has looked at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from ..errors import TemplateTooMuch
from ..symbolic_text import Symbol, symbol_in
from .budget import Budget, current
from .cost_checks import check_numbers, check_percent, check_replace, check_search, expect, joinable, spend
from .marked_search import needle

_NO_TEXT_MADE = frozenset(
    {
        "abs",
        "attr",
        "batch",
        "count",
        "d",
        "default",
        "first",
        "float",
        "int",
        "items",
        "last",
        "length",
        "list",
        "map",
        "max",
        "min",
        "random",
        "reject",
        "rejectattr",
        "reverse",
        "round",
        "safe",
        "select",
        "selectattr",
        "slice",
        "sort",
        "unique",
    }
)
"""Filters that do not write their value out: it need not be weighed."""
_FOLLOWED = frozenset(
    {"capitalize", "count", "d", "default", "length", "lower", "replace", "string", "tojson", "trim", "upper"}
)
"""Filters that use of a text only what symbols follow (`symbolic_text`)."""
_PASSED_ON = frozenset({"d", "default", "replace"})
"""Filters whose options may be symbols."""
UNUSED_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr")
"""Filters that are taken out: no chat template needs them, and their cost is hard to bound."""
_BY_ATTRIBUTE = frozenset({"groupby", "rejectattr", "selectattr", "sort", "unique"})
_MOST_DIGITS = 1_000
_LONGEST_PATH = 16
_path_steps = re.compile(r"[.,]").findall


def checked_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A test that costs a step: filters such as `select` ask it of every item."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step()
        if name == "in" and len(args) > 1:
            check_search(args[1], budget)
            if isinstance(args[0], Symbol) and isinstance(args[1], str):
                args[0].record.look("is in")
        if name == "iterable" and isinstance(args[0], Symbol):
            return True
        return function(*args, **kwargs)

    return checked


def checked_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is checked before it runs, and whose result is paid for."""
    first = 0 if getattr(function, "jinja_pass_arg", None) is None else 1

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step()
        args = tuple(_check_filter(name, list(args), first, kwargs, budget))
        _note(name, args[first], (*args[first + 1 :], *kwargs.values()))
        if isinstance(args[first], Symbol) and name in ("length", "count"):
            return args[first].length
        return spend(function(*args, **kwargs), budget)

    return checked


def _note(name: str, value: Any, options: Sequence[Any]) -> None:
    """Note what a filter does with symbols that nothing follows from for other texts."""
    if isinstance(value, Symbol) and name not in _FOLLOWED:
        value.record.look(name)
    if name not in _PASSED_ON:
        for option in options:
            if (symbol := symbol_in(option)) is not None:
                symbol.record.look(name)


def _check_filter(name: str, args: list[Any], first: int, kwargs: Mapping[str, Any], budget: Budget) -> list[Any]:
    value, options = args[first], (*args[first + 1 :], *kwargs.values())
    check_numbers(options, budget)
    if any(len(_path_steps(path)) > _LONGEST_PATH for path in _paths(name, args[first + 1 :], kwargs)):
        raise TemplateTooMuch("it looks for an attribute of an attribute, and so on, of all that a list holds")
    if name == "join":
        separator = next((option for option in options if isinstance(option, str)), "")
        args[first] = joinable(separator, value, budget)
    elif name not in _NO_TEXT_MADE:
        budget.weigh(value)
    if name == "replace":
        if len(args) > first + 1:
            args[first + 1] = needle(args[first + 1], str(value))
        old, new = (*args[first + 1 :], *(kwargs[key] for key in ("old", "new") if key in kwargs), None, None)[:2]
        check_replace(str.__str__(str(value)), old, new, budget)
    elif name == "indent":
        width = max((_width(option) for option in options), default=4)
        expect(len(str(value)) + (str(value).count("\n") + 1) * width, budget)
    elif name == "format":
        check_percent(str(value), (*options, dict(kwargs)) if kwargs else tuple(options), budget)
    elif name == "round" and any(isinstance(option, int) and option > _MOST_DIGITS for option in options):
        raise TemplateTooMuch(f"it rounds to more than {_MOST_DIGITS:,} digits")
    elif name == "sum" and any(isinstance(option, list | tuple) for option in options):
        raise TemplateTooMuch("it adds up lists with the filter `sum`: use `+`")
    return args


def _paths(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """The attribute paths that a filter follows in each item."""
    given = [kwargs.get("attribute"), *(args if name in _BY_ATTRIBUTE else ())]
    return (each for each in given if isinstance(each, str))


def _width(option: Any) -> int:
    if isinstance(option, str):
        return len(option)
    return option if isinstance(option, int) else 0
