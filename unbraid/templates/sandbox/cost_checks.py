"""What an operation of a template would make, worked out before it is made: a string of a billion characters costs a
second and a gigabyte, and no clock can stop Python in the middle of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from string import Formatter
from typing import Any

from ..errors import TemplateTooMuch
from ..control_tokens import MARK, unmark
from .budget import Budget, current

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
"""Filters that do not write their value out."""
UNUSED_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr")
_MOST_BITS = 100_000
_MOST_DIGITS = 1_000
_LONGEST_PATH = 16
_FROM_THE_END = frozenset({"rfind", "rindex", "rpartition", "rsplit"})
"""Python compares all of what is looked for at every place."""
_CODECS = frozenset({"utf-8", "utf8", "ascii", "latin-1"})
_number = re.compile(r"\d+").findall
_path_marks = re.compile(r"[.,]").findall


def spend(made: Any, budget: Budget) -> Any:
    """Pay for what an operation made."""
    if isinstance(made, str | bytes):
        budget.step(len(made))
    elif isinstance(made, list | tuple | dict | set):
        budget.count(len(made))
        budget.weigh(made)
    return made


def expect(size: int, budget: Budget) -> None:
    """Refuse an operation that would make so much."""
    if size > budget.limits.output:
        budget.step(size)


# Operators


def check_operator(operator: str, left: Any, right: Any, budget: Budget) -> None:
    if operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and isinstance(value, str | bytes | list | tuple):
                expect(len(value) * max(times, 0), budget)
                if not isinstance(value, str | bytes):
                    budget.count(len(value) * max(times, 0))
        _check_bits(left, right, lambda a, b: a.bit_length() + b.bit_length())
    elif operator == "**":
        _check_bits(left, right, lambda a, b: a.bit_length() * max(b, 0))
    elif operator == "%" and isinstance(left, str | bytes):
        check_percent(str(left), right, budget)
    elif operator == "+" and isinstance(left, str | bytes | list | tuple) and hasattr(right, "__len__"):
        expect(len(left) + len(right), budget)


def _check_bits(left: Any, right: Any, bits: Callable[[int, int], int]) -> None:
    if isinstance(left, int) and isinstance(right, int) and bits(left, right) > _MOST_BITS:
        raise TemplateTooMuch("it computes with too large a number")


def check_percent(pattern: str, values: Any, budget: Budget) -> None:
    values = values if isinstance(values, tuple) else (values,)
    budget.weigh(list(values))
    _check_fields(pattern, pattern.count("%"), values, budget)


def _check_fields(pattern: str, fields: int, values: Sequence[Any], budget: Budget) -> None:
    """What the fields of a pattern make: each the longest of the values, and whatever widths the pattern has."""
    check_numbers(values, budget)
    values = [each for value in values for each in (value.values() if isinstance(value, dict) else [value])]
    widths = sum(int(digits) if len(digits) < 10 else 1 << 60 for digits in _number(pattern))
    widths += pattern.count("*") * max((abs(each) for each in values if isinstance(each, int)), default=0)
    expect(widths + fields * max(map(_length, values), default=0), budget)


def check_numbers(values: Iterable[Any], budget: Budget) -> None:
    """No function needs a number that is larger than anything may be; those that take one make that much of it."""
    for value in values:
        if isinstance(value, int):
            expect(abs(value), budget)


# Calls


def check_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], budget: Budget) -> Sequence[Any]:
    """Look at a call before it is made; the arguments to make it with."""
    check_numbers((*args, *kwargs.values()), budget)
    function = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
    text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if not isinstance(text, str | bytes):
        return args
    if name == "translate":
        raise TemplateTooMuch("it calls str.translate, which is not for templates")
    if name in ("encode", "decode"):
        _check_codec((*args, *kwargs.values()))
    if name in ("format", "format_map"):
        _check_format(str(text), (*args, *kwargs.values()), budget)
    elif name == "join" and args:
        return (_joinable(text, args[0], budget), *args[1:])
    elif name == "expandtabs":
        tab = next((value for value in (*args, *kwargs.values()) if isinstance(value, int)), 8)
        tabs = text.count(b"\t") if isinstance(text, bytes) else text.count("\t")
        expect(len(text) + tabs * tab, budget)
    elif isinstance(text, str):
        args = [sought(value, text) for value in args]
        if name == "replace" and len(args) > 1:
            check_replace(text, args[0], args[1], budget)
        elif name in _FROM_THE_END and args and len(text) * _length(args[0]) > budget.limits.work:
            raise TemplateTooMuch("it looks for too long a text from the end of another")
    return args


def _check_codec(options: Iterable[Any]) -> None:
    """Some of Python's codecs (punycode) take a time that grows with the square of the text."""
    codec = next(iter(options), "utf-8")
    if not isinstance(codec, str) or codec.lower() not in _CODECS:
        raise TemplateTooMuch(f"it encodes as {str(codec)[:64]!r}, which is not for templates")


def sought(value: Any, text: str) -> Any:
    """What a template looks for in a text. Marks are for what it writes: in a text without any, it means the
    characters."""
    if isinstance(value, str):
        return unmark(value) if MARK in value and MARK not in text else value
    if isinstance(value, tuple | list):
        return type(value)(sought(each, text) for each in value)
    return value


def _check_format(pattern: str, values: Sequence[Any], budget: Budget) -> None:
    budget.weigh(list(values))
    nested = False
    with suppress(ValueError):  # `format` says itself what is wrong with a pattern
        nested = any("{" in (spec or "") for _, _, spec, _ in Formatter().parse(pattern))
    if nested:
        raise TemplateTooMuch("it lets one value say how wide another is written")
    _check_fields(pattern, pattern.count("{"), values, budget)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else len(str(value))


def _joinable(separator: str | bytes, values: Any, budget: Budget) -> Any:
    if not isinstance(values, Iterable):
        return values
    kept: list[Any] = []
    size = 0
    for value in values:
        kept.append(value)
        size += len(separator) + (len(value) if isinstance(value, str | bytes) else 1)
        expect(size, budget)
    budget.weigh(kept)
    return kept


def check_replace(text: str, old: Any, new: Any, budget: Budget) -> None:
    if isinstance(old, str) and isinstance(new, str):
        expect(len(text) + text.count(old) * len(new), budget)


# Tests and filters


def guarded_test(function: Callable[..., Any]) -> Callable[..., Any]:
    """A test that is paid for: filters (`select`) try it on all that a list holds."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        current().step()
        return function(*args, **kwargs)

    return guarded


def guarded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for what it does."""
    first = 0 if getattr(function, "jinja_pass_arg", None) is None else 1

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step()
        args = tuple(_check_filter(name, list(args), first, kwargs, budget))
        return spend(function(*args, **kwargs), budget)

    return guarded


def _check_filter(name: str, args: list[Any], first: int, kwargs: Mapping[str, Any], budget: Budget) -> list[Any]:
    value, options = args[first], (*args[first + 1 :], *kwargs.values())
    check_numbers(options, budget)
    if any(len(_path_marks(path)) > _LONGEST_PATH for path in _paths(name, args[first + 1 :], kwargs)):
        raise TemplateTooMuch("it looks for an attribute of an attribute, and so on, of all that a list holds")
    if name == "join":
        separator = next((option for option in options if isinstance(option, str)), "")
        args[first] = _joinable(separator, value, budget)
    elif name not in _NO_TEXT_MADE:
        budget.weigh(value)
    if name == "replace":
        if len(args) > first + 1:
            args[first + 1] = sought(args[first + 1], str(value))
        old, new = (*args[first + 1 :], *(kwargs[key] for key in ("old", "new") if key in kwargs), None, None)[:2]
        check_replace(str(value), old, new, budget)
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


_BY_ATTRIBUTE = frozenset({"groupby", "rejectattr", "selectattr", "sort", "unique"})


def _paths(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """The attributes that a filter looks for in each item."""
    given = [kwargs.get("attribute"), *(args if name in _BY_ATTRIBUTE else ())]
    return (each for each in given if isinstance(each, str))


def _width(option: Any) -> int:
    if isinstance(option, str):
        return len(option)
    return option if isinstance(option, int) else 0
