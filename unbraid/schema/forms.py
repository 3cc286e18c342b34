"""The normal form of JSON schemas: values of one type each, references, and alternatives of these.

There is no `allOf` in a form, nothing beside a reference, and no keyword that says nothing about its type. `True` is
the form of everything. `False` is the form of nothing: make forms with the functions here (`numbers`, `strings`,
`arrays`, `objects`, `any_of`), which see where nothing satisfies them. `where` says where a form comes from; two forms
that say the same are equal, wherever they come from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeGuard

from ..metering import spend
from .keywords import is_number
from .regular import ANY, Node, Repeat, limit_length

Number = Fraction | float
"""An exact value, or an infinity."""


def is_finite(number: Number) -> TypeGuard[Fraction]:
    """Whether it is a value. (`math.isfinite` makes a float of it, which not all fit into.)"""
    return isinstance(number, Fraction)


Note = Callable[[str, str], None]
"""Takes the place of something that is not enforced, and what it is."""


@dataclass(frozen=True, slots=True)
class NullOrBoolean:
    """Null or boolean."""

    where: str = field(compare=False)
    kind: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers between two bounds, or integers."""

    where: str = field(compare=False)
    whole: bool
    low: Number
    high: Number
    open_low: bool
    open_high: bool
    multiple: Fraction | None


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings that match all of the patterns."""

    where: str = field(compare=False)
    least: int
    most: int | None
    patterns: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays: the forms of the first items, and of all others."""

    where: str = field(compare=False)
    prefix: tuple[Form, ...]
    items: Form
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects: the forms of the named properties, of those whose names match a pattern, and of all others."""

    where: str = field(compare=False)
    properties: Mapping[str, Form]  # everything that is required is among them
    required: tuple[str, ...]
    matching: Matching
    others: Form
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Values:
    """Strings, numbers, booleans or null, one by one."""

    values: tuple[Any, ...] = field(compare=False)
    text: str = ""  # what is compared: to Python, 1 is True

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", json.dumps(self.values))


@dataclass(frozen=True, slots=True)
class Ref:
    """What a reference leads to. It is made when it is needed, so that schemas may be recursive."""

    pointer: str


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Alternatives, which may overlap."""

    options: tuple[Form, ...]


Matching = tuple[tuple[Node, "Form"], ...]
Form = bool | NullOrBoolean | Numbers | Strings | Arrays | Objects | Values | Ref | AnyOf


def bounds(schema: Mapping[str, Any]) -> tuple[Number, Number, bool, bool]:
    """The lowest and the highest number that `minimum`, `maximum` and their exclusive forms admit, and whether each of
    them is excluded. The exclusive forms were booleans in draft 4."""
    lowest, lowest_open = _bound(schema, "minimum", "exclusiveMinimum", 1)
    highest, highest_open = _bound(schema, "maximum", "exclusiveMaximum", -1)
    return lowest, -highest, lowest_open, highest_open


def _bound(schema: Mapping[str, Any], plain: str, exclusive: str, sign: int) -> tuple[Number, bool]:
    """The stricter of two bounds, times `sign`, and whether it is excluded."""
    options = [(schema.get(plain), schema.get(exclusive) is True)]
    if is_number(schema.get(exclusive)):
        options.append((schema[exclusive], True))
    exact = [(sign * Fraction(str(value)), is_open) for value, is_open in options if value is not None]
    return max(exact, default=(-math.inf, False))


def any_of(options: Iterable[Form]) -> Form:
    kept: list[Form] = []
    values: dict[str, Any] = {}
    at = -1
    for option in options:
        for inner in option.options if isinstance(option, AnyOf) else (option,):
            spend(1 + min(len(kept), 50))
            if inner is True:
                return True
            if isinstance(inner, Values):
                at = len(kept) if at < 0 else at
                values.update((json.dumps(value), value) for value in inner.values)
            elif inner is not False and (len(kept) > 50 or inner not in kept):
                kept.append(inner)
    if values:
        kept.insert(at, Values(tuple(values.values())))
    return False if not kept else kept[0] if len(kept) == 1 else AnyOf(tuple(kept))


def constant(value: Any, where: str) -> Form:
    if isinstance(value, Mapping):
        properties = {name: constant(inner, where) for name, inner in value.items()}
        return Objects(where, properties, tuple(properties), (), False, 0, None)
    if isinstance(value, list):
        return Arrays(where, tuple(constant(inner, where) for inner in value), False, len(value), len(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # -0.0 and 1.0 are spelled in different ways; 0 and 1 are not
    return Values((value,))


# --- Forms that nothing satisfies are False ------------------------------------------------------------------------


def numbers(form: Numbers) -> Form:
    low, high, multiple = form.low, form.high, form.multiple
    if form.whole:
        if isinstance(low, Fraction):
            low = Fraction(math.floor(low) + 1 if form.open_low else math.ceil(low))
        if isinstance(high, Fraction):
            high = Fraction(math.ceil(high) - 1 if form.open_high else math.floor(high))
        multiple = None if multiple is None else common_multiple(multiple, Fraction(1))
        multiple = None if multiple == 1 else multiple
        form = Numbers(form.where, True, low, high, False, False, multiple)
    return False if low > high or (low == high and (form.open_low or form.open_high)) else form


def strings(form: Strings) -> Form:
    return False if form.least > upper_limit(form.most) else form


def arrays(form: Arrays) -> Form:
    never = [index for index, inner in enumerate(form.prefix) if inner is False]
    most = fewer(form.most, never[0] if never else len(form.prefix) if form.items is False else None)
    if most is not None and most <= len(form.prefix):
        form = replace(form, prefix=form.prefix[:most], items=False, most=most)
    return False if form.least > upper_limit(most) else form


def objects(form: Objects) -> Form:
    never = any(form.properties[name] is False for name in form.required)
    return False if never or max(form.least, len(form.required)) > upper_limit(form.most) else form


def item_form(form: Arrays, index: int) -> Form:
    return form.prefix[index] if index < len(form.prefix) else form.items


def one_pattern(form: Strings, note: Note) -> Node:
    """The strings as one pattern; what it does not say is noted."""
    if not form.patterns:
        return Repeat(ANY, form.least, form.most)
    if len(form.patterns) > 1:
        note(form.where, "only one of `pattern`, `format` and the patterns combined with it is enforced")
    held = limit_length(form.patterns[0], form.least, form.most)
    if held is None:
        note(form.where, "`minLength` and `maxLength` are not enforced beside a pattern or format")
    return held or form.patterns[0]


def fewer(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def upper_limit(most: int | None) -> float:
    return math.inf if most is None else most


def common_multiple(one: Fraction, other: Fraction) -> Fraction:
    """The smallest multiple of both."""
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


UNRESTRICTED: dict[str, Form] = {
    "null": NullOrBoolean("", "null"),
    "boolean": NullOrBoolean("", "boolean"),
    "number": Numbers("", False, -math.inf, math.inf, False, False, None),
    "integer": Numbers("", True, -math.inf, math.inf, False, False, None),
    "string": Strings("", 0, None, ()),
    "array": Arrays("", (), True, 0, None),
    "object": Objects("", {}, (), (), True, 0, None),
}
ANYTHING = [form for kind, form in UNRESTRICTED.items() if kind != "integer"]
