"""Costs of operators, calls, filters and tests, estimated before they run.

`'a' * 10**9` takes a second and a gigabyte, and no clock can stop Python in the middle of it. So each check computes an
upper bound for the size of the result, and refuses the operation if the budget does not allow it. What is cheap to make
is paid for afterwards, by its real size (`spend`).

Every filter of Jinja is wrapped: it spends a step, its value is weighed unless the filter never writes it out, and the
few filters that can make much from little have a check of their own. A filter that is new in Jinja gets the general
treatment, and `tests/templates/test_jinja_contract.py` fails until someone has looked at it.

Comparisons see past the marks of control tokens. A template's own `'</think>'` is marked, a message's is not. Where a
template looks for its text in a message (`in`, `==`, `split`, `replace`), it means the characters. So a needle loses
its marks, unless the haystack has marks too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized, ValuesView
from contextlib import suppress
from functools import wraps
from string import Formatter
from typing import Any

from ..control_tokens import MARK, unmark
from ..errors import TemplateTooMuch
from ..symbolic_text import Symbol, called, symbol_in
from .budget import Budget, current

_MOST_BITS = 100_000
_FROM_THE_END = frozenset({"rfind", "rindex", "rpartition", "rsplit"})
"""Searches in which Python compares the whole needle at every place: their cost is a product of two lengths."""
_CODECS = frozenset({"utf-8", "utf8", "ascii", "latin-1"})
_TEXT = (str, bytes)
_ITEMS = (list, tuple, dict, set)
_number = re.compile(r"\d+").findall
UNUSED_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr")
"""Filters that are taken out: no chat template needs them, and their cost is hard to bound."""
_NO_TEXT_MADE = frozenset(
    {
        *("abs", "attr", "batch", "count", "d", "default", "first", "float", "int", "items", "last", "length"),
        *("list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "round", "safe", "select"),
        *("selectattr", "slice", "sort", "unique"),
    }
)
"""Filters that do not write their value out: it need not be weighed."""
_FOLLOWED = frozenset(
    {"capitalize", "count", "d", "default", "length", "lower", "replace", "string", "tojson", "trim", "upper"}
)
"""Filters that use of a text only what symbols follow (`symbolic_text`)."""
_PASSED_ON = frozenset({"d", "default", "replace"})
"""Filters whose options may be symbols."""
_BY_ATTRIBUTE = frozenset({"groupby", "rejectattr", "selectattr", "sort", "unique"})
_MOST_DIGITS = 1_000
_LONGEST_PATH = 16
_path_steps = re.compile(r"[.,]").findall


def spend(value: Any, budget: Budget) -> Any:
    """Pay for what an operation made, and return it."""
    if isinstance(value, _TEXT):
        budget.step(len(value))
    elif isinstance(value, _ITEMS):
        budget.count(len(value))
        budget.weigh(value)
    return value


def expect(size: int, budget: Budget) -> None:
    """Refuse an operation that would make more than a value may have."""
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
    """The most that the fields of a format string make: each the longest of the values, plus all widths in the
    pattern."""
    check_numbers(values, budget)
    values = [each for value in values for each in (value.values() if isinstance(value, dict) else [value])]
    widths = sum(int(digits) if len(digits) < 10 else 1 << 60 for digits in _number(pattern))
    widths += pattern.count("*") * max((abs(each) for each in values if isinstance(each, int)), default=0)
    expect(widths + fields * max(map(length, values), default=0), budget)


def check_numbers(values: Iterable[Any], budget: Budget) -> None:
    """Refuse numbers larger than any value may be: functions that take a number often make that many characters."""
    for value in values:
        if isinstance(value, int):
            expect(abs(value), budget)


def check_search(container: Any, budget: Budget) -> None:
    """`in` compares with each item of a list, which is slow in Python. In a text and in a dict it is fast."""
    if isinstance(container, list | tuple | ValuesView):
        budget.step(len(container))


# Calls


def check_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], budget: Budget) -> Sequence[Any]:
    """Check a call before it is made. Returns the arguments to make it with."""
    check_numbers((*args, *kwargs.values()), budget)
    function = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
    text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(text, OwnList) and name in CHANGES:
        _check_change(text, (*args, *kwargs.values()), budget)
    if not isinstance(text, _TEXT):
        return args
    if name == "translate":
        raise TemplateTooMuch("it calls str.translate, which is not for templates")
    if name in ("encode", "decode"):
        _check_codec((*args, *kwargs.values()))
    if name in ("format", "format_map"):
        _check_format(str(text), (*args, *kwargs.values()), budget)
    elif name == "join" and args:
        return (joinable(text, args[0], budget), *args[1:])
    elif name == "expandtabs":
        tab = next((value for value in (*args, *kwargs.values()) if isinstance(value, int)), 8)
        tabs = text.count(b"\t") if isinstance(text, bytes) else str.count(text, "\t")
        expect(len(text) + tabs * tab, budget)
    elif isinstance(text, str):
        args = [needle(value, text) for value in args]
        if name == "replace" and len(args) > 1:
            check_replace(str.__str__(text), args[0], args[1], budget)
        elif name in _FROM_THE_END and args and len(text) * length(args[0]) > budget.limits.work:
            raise TemplateTooMuch("it looks for too long a text from the end of another")
    return args


class OwnList(list[Any]):
    """A list that the template has made itself (`[]`, `a + b`, `a | list`). It may change that and no other; in Jinja's
    own sandbox it may change none. Kimi K2's template keeps the ids of calls in one."""

    __slots__ = ()


CHANGES = frozenset({"append", "extend", "insert", "pop"})
"""What a template may do to its own lists."""


def own(value: Any) -> Any:
    """A list that has just been made, as the template's own."""
    return OwnList(value) if type(value) is list else value


def _check_change(changed: OwnList, values: Sequence[Any], budget: Budget) -> None:
    """Pay for a change, and refuse to put a list into itself: what holds itself has no text."""
    budget.weigh(list(values))
    more = sum(len(value) if isinstance(value, Sized) and not isinstance(value, _TEXT) else 1 for value in values)
    if len(changed) + more > budget.limits.items:
        raise TemplateTooMuch(f"it makes a list of more than {budget.limits.items:,} items")
    seen: set[int] = set()
    inside = list(values)
    while inside:
        one = inside.pop()
        if one is changed:
            raise TemplateTooMuch("it puts a list into itself")
        if isinstance(one, _ITEMS) and id(one) not in seen:
            seen.add(id(one))
            inside += [*one, *one.values()] if isinstance(one, dict) else one


def _check_codec(options: Iterable[Any]) -> None:
    """Some of Python's codecs (punycode) take quadratic time."""
    codec = next(iter(options), "utf-8")
    if not isinstance(codec, str) or codec.lower() not in _CODECS:
        raise TemplateTooMuch(f"it encodes as {str(codec)[:64]!r}, which is not for templates")


def _check_format(pattern: str, values: Sequence[Any], budget: Budget) -> None:
    budget.weigh(list(values))
    nested = False
    with suppress(ValueError):  # `format` says itself what is wrong with a pattern
        nested = any("{" in (spec or "") for _, _, spec, _ in Formatter().parse(pattern))
    if nested:
        raise TemplateTooMuch("it lets one value say how wide another is written")
    _check_fields(pattern, pattern.count("{"), values, budget)


def length(value: Any) -> int:
    """The length of a value's text."""
    return len(value) if isinstance(value, str | bytes) else len(str(value))


def joinable(separator: str | bytes, values: Any, budget: Budget) -> Any:
    """The values as a list, if their joined text is not too long."""
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


def needle(value: Any, haystack: str) -> Any:
    """What to look for in `haystack`: `value`, or each item of it, without marks that the haystack cannot have."""
    if isinstance(value, str):
        return unmark(value) if MARK in value and MARK not in haystack else value
    if isinstance(value, tuple | list):
        return type(value)(needle(each, haystack) for each in value)
    return value


def contains(item: Any, container: Any) -> bool:
    """`item in container`."""
    if isinstance(item, str):
        if isinstance(container, str):
            item = needle(item, container)
            if isinstance(item, Symbol):
                return bool(called("__contains__", container, item))
        elif isinstance(container, list | tuple):
            container = needle(container, item)
    return bool(item in container)


def equals(left: Any, right: Any) -> bool:
    """`left == right`."""
    if isinstance(left, str) and isinstance(right, str):
        left, right = needle(left, right), needle(right, left)
    return bool(left == right)


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
        result = spend(function(*args, **kwargs), budget)
        return own(result) if name == "list" else result

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
    options = [kwargs.get("attribute"), *(args if name in _BY_ATTRIBUTE else ())]
    return (each for each in options if isinstance(each, str))


def _width(option: Any) -> int:
    if isinstance(option, str):
        return len(option)
    return option if isinstance(option, int) else 0
