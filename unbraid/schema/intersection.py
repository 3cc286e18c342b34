"""Intersection of schemas in normal form: what `allOf`, and keywords beside `$ref` or `anyOf`, come to.

Intersecting alternatives multiplies them, and references may be recursive, so the work is bounded: where a bound is
reached, the result is the first of the two forms alone, and what is lost is noted. The result is never too small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations, takewhile
from typing import Any

from ..metering import spend, working_on
from .forms import (
    AnyOf,
    Arrays,
    Form,
    Note,
    NullOrBoolean,
    Numbers,
    Objects,
    Ref,
    Strings,
    Values,
    any_of,
    arrays,
    common_multiple,
    fewer,
    item_form,
    numbers,
    objects,
    strings,
    upper_limit,
)
from .keywords import same, types_of_value
from .regular import Node, matches

_MOST_WORK = 5_000
_MOST_DEPTH = 40
_MOST_OPTIONS = 500


class Intersection:
    """Intersects the forms of one schema. `target` gives the form that a reference leads to, or None if that is just
    being made."""

    def __init__(self, target: Callable[[str], Form | None], note: Note) -> None:
        self._target, self._note = target, note
        self._work = self._depth = 0
        self._merging: set[tuple[str, object]] = set()

    @property
    def too_deep(self) -> bool:
        return self._depth > _MOST_DEPTH

    def intersect(self, one: Form, other: Form, where: str) -> Form:
        """What satisfies the two. Where that cannot be said, the first alone, which is noted."""
        if one is True or other is False:
            return other
        if other is True or one is False or one == other:
            return one
        working_on(where)
        spend()
        self._work += 1
        self._depth += 1
        try:
            if self._work > _MOST_WORK or self._depth > _MOST_DEPTH:
                self._note(where, "only some of what it combines is enforced: together it is too large")
                return one
            return self._intersect(one, other, where)
        finally:
            self._depth -= 1

    def _intersect(self, one: Form, other: Form, where: str) -> Form:
        for this, that in ((one, other), (other, one)):
            if isinstance(this, Ref):
                target = self._target(this.pointer)
                key = this.pointer, that.pointer if isinstance(that, Ref) else id(that)
                if target is None or key in self._merging:
                    self._note(where, f"what stands beside `$ref` {this.pointer!r} is not enforced: it is recursive")
                    return this
                self._merging.add(key)
                try:
                    return self.intersect(target, that, where) if this is one else self.intersect(that, target, where)
                finally:
                    self._merging.discard(key)
        if isinstance(one, Values):
            return any_of(Values((value,)) for value in one.values if self.admits(other, value))
        if isinstance(other, Values):
            return self._intersect(other, one, where)
        if isinstance(one, AnyOf) or isinstance(other, AnyOf):
            ones = one.options if isinstance(one, AnyOf) else (one,)
            others = other.options if isinstance(other, AnyOf) else (other,)
            if len(ones) * len(others) > _MOST_OPTIONS:
                self._note(where, "only some of its alternatives are combined: together they are too many")
                return one
            return any_of(self.intersect(left, right, where) for left in ones for right in others)
        match one, other:
            case NullOrBoolean(), NullOrBoolean():
                return one if one.kind == other.kind else False
            case Numbers(), Numbers():
                low, open_low = max((one.low, one.open_low), (other.low, other.open_low))
                high, closed = min((one.high, not one.open_high), (other.high, not other.open_high))
                steps = [step for step in (one.multiple, other.multiple) if step is not None]
                multiple = None if not steps else steps[0] if len(steps) == 1 else common_multiple(*steps)
                whole = one.whole or other.whole
                return numbers(Numbers(one.where, whole, low, high, open_low, not closed, multiple))
            case Strings(), Strings():
                patterns = tuple(dict.fromkeys(one.patterns + other.patterns))
                least, most = max(one.least, other.least), fewer(one.most, other.most)
                return strings(Strings(one.where, least, most, patterns))
            case Arrays(), Arrays():
                length = max(len(one.prefix), len(other.prefix))
                prefix = tuple(
                    self.intersect(item_form(one, index), item_form(other, index), where) for index in range(length)
                )
                items = self.intersect(one.items, other.items, where)
                least, most = max(one.least, other.least), fewer(one.most, other.most)
                return arrays(Arrays(_both(one.where, other.where), prefix, items, least, most))
            case Objects(), Objects():
                return self._intersect_objects(one, other, where)
            case _:
                return False

    def _intersect_objects(self, one: Objects, other: Objects, where: str) -> Form:
        names = dict.fromkeys([*one.properties, *other.properties])
        properties = {
            name: self.intersect(self._value(one, name, where), self._value(other, name, where), where)
            for name in names
        }
        matching: list[tuple[Node, Form]] = []
        if one.matching and other.matching:
            self._note(where, "only some of its `patternProperties` are enforced: they come from several schemas")
        source, beside = (one, other) if one.matching else (other, one)
        for node, form in source.matching:
            matching.append((node, self.intersect(form, True if beside.matching else beside.others, where)))
        rest = True if one.matching and other.matching else beside.others
        others = self.intersect(source.others, rest, where)
        required = tuple(dict.fromkeys(one.required + other.required))
        least, most = max(one.least, other.least), fewer(one.most, other.most)
        return objects(
            Objects(_both(one.where, other.where), properties, required, tuple(matching), others, least, most)
        )

    def _value(self, form: Objects, name: str, where: str) -> Form:
        if name in form.properties:
            return form.properties[name]
        forms = [inner for node, inner in form.matching if matches(node, name)]
        value = forms[0] if forms else form.others
        for inner in forms[1:]:
            value = self.intersect(value, inner, where)
        return value

    def admits(self, form: Form | None, value: Any) -> bool:
        """Whether the value may satisfy the form; True where that is not known."""
        spend()
        match form:
            case bool():
                return form
            case None:
                return True
            case Ref(pointer):
                return self.admits(self._target(pointer), value)
            case AnyOf(options):
                return any(self.admits(option, value) for option in options)
            case Values(values):
                return any(same(value, constant) for constant in values)
            case NullOrBoolean(_, kind):
                return kind in types_of_value(value)
            case Numbers():
                if "number" not in types_of_value(value) or (form.whole and "integer" not in types_of_value(value)):
                    return False
                exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
                low = exact > form.low if form.open_low else exact >= form.low
                high = exact < form.high if form.open_high else exact <= form.high
                return low and high and (form.multiple is None or (exact / form.multiple).denominator == 1)
            case Strings():
                fits = isinstance(value, str) and form.least <= len(value) <= upper_limit(form.most)
                return fits and all(matches(node, value) for node in form.patterns)
            case Arrays():
                fits = isinstance(value, list) and form.least <= len(value) <= upper_limit(form.most)
                return fits and all(self.admits(item_form(form, index), item) for index, item in enumerate(value))
            case Objects():
                if not isinstance(value, Mapping) or not form.least <= len(value) <= upper_limit(form.most):
                    return False
                return all(name in value for name in form.required) and all(
                    self.admits(self._value(form, name, form.where), inner) for name, inner in value.items()
                )

    def all_disjoint(self, options: list[Form]) -> bool:
        return len(options) <= 100 and all(self._disjoint(one, other, 8) for one, other in combinations(options, 2))

    def _disjoint(self, one: Form | None, other: Form | None, depth: int) -> bool:
        """Whether no value satisfies both, as far as is easily seen."""
        spend()
        if one is False or other is False:
            return True
        if depth == 0 or one is True or other is True or one is None or other is None:
            return False
        for this, that in ((one, other), (other, one)):
            match this:
                case Ref(pointer):
                    return self._disjoint(self._target(pointer), that, depth - 1)
                case AnyOf(options):
                    return len(options) <= 20 and all(self._disjoint(option, that, depth - 1) for option in options)
                case Values(values):
                    return not any(self.admits(that, value) for value in values)
        if isinstance(one, Objects) and isinstance(other, Objects):
            return any(
                self._disjoint(self._value(one, name, ""), self._value(other, name, ""), depth - 1)
                for name in one.required
                if name in other.required
            )
        if isinstance(one, NullOrBoolean) and isinstance(other, NullOrBoolean):
            return one.kind != other.kind
        if isinstance(one, Numbers) and isinstance(other, Numbers):
            return one.high < other.low or other.high < one.low
        return type(one) is not type(other)


def _both(one: str, other: str) -> str:
    """The place that two places are in."""
    if not one or not other:
        return one or other
    steps = zip(*(re.split(r"(?=[.\[])", place) for place in (one, other)), strict=False)
    same = "".join(step for step, _ in takewhile(lambda pair: pair[0] == pair[1], steps))
    return same.removesuffix(".allOf").removesuffix(".anyOf")
