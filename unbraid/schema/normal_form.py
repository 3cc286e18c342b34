"""JSON schemas in a plain form, in which they can be intersected: one type each, no `allOf`, no siblings of `$ref`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from ..constraints.language import ANY, Node, Repeat, Schema, Text, choice
from . import patterns
from .checks import MOST_REPEATS, TYPES, InvalidSchema, bounds, resolve, same, type_of

# Intersections of alternatives multiply. What is beyond these limits is left out, and said to be.
_MOST_WORK = 5_000
_MOST_DEPTH = 40
_MOST_OPTIONS = 500

Number = Fraction | float  # an exact value, or an infinity
Note = Callable[[str, str], None]  # takes where something is, and what is not said of it


@dataclass(frozen=True, slots=True)
class Plain:
    """Null or boolean."""

    where: str = field(compare=False)
    kind: str


@dataclass(frozen=True, slots=True)
class Numbers:
    where: str = field(compare=False)
    whole: bool
    low: Number
    high: Number
    open_low: bool
    open_high: bool
    multiple: Fraction | None


@dataclass(frozen=True, slots=True)
class Strings:
    where: str = field(compare=False)
    least: int
    most: int | None
    patterns: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Arrays:
    where: str = field(compare=False)
    prefix: tuple[Form, ...]
    items: Form
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Objects:
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
    pointer: str


@dataclass(frozen=True, slots=True)
class AnyOf:
    options: tuple[Form, ...]


Matching = tuple[tuple[Node, "Form"], ...]
Form = bool | Plain | Numbers | Strings | Arrays | Objects | Values | Ref | AnyOf

# What no grammar says. The types are those that a keyword is about.
_NEVER = {
    "not": TYPES,
    "if": TYPES,
    "dependentRequired": ("object",),
    "dependentSchemas": ("object",),
    "dependencies": ("object",),
    "unevaluatedProperties": ("object",),
    "unevaluatedItems": ("array",),
    "contains": ("array",),
    "uniqueItems": ("array",),
}
_HARMLESS = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True, "not": False}


def any_of(options: Iterable[Form]) -> Form:
    kept: list[Form] = []
    values: dict[str, Any] = {}
    at = -1
    for option in options:
        for inner in option.options if isinstance(option, AnyOf) else (option,):
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
    if isinstance(value, float) and value == int(value) and abs(value) < 2**53:
        value = int(value)  # -0.0 and 1.0 are spelled in different ways; 0 and 1 are not
    return Values((value,))


class Algebra:
    """The plain forms of one schema and of what it refers to."""

    def __init__(self, root: Schema, where: str, note: Note) -> None:
        self._root, self._where, self.note = root, where, note
        self._targets: dict[str, Form | None] = {}  # None while it is being made
        self._work = self._depth = 0
        self._merging: set[tuple[str, object]] = set()

    def root(self) -> Form:
        return self.form(self._root, self._where)

    def target(self, pointer: str) -> Form | None:
        """What `pointer` leads to; None if that is just being made, or too deep down."""
        if pointer not in self._targets:
            if self._depth > _MOST_DEPTH:
                return None
            self._targets[pointer] = None
            try:
                place, schema = resolve(self._root, pointer)
            except LookupError as problem:
                raise InvalidSchema(f"{self._where}: {problem.args[0]}") from None
            self._targets[pointer] = self.form(schema, self._where + place)
        return self._targets[pointer]

    def form(self, schema: Schema, where: str) -> Form:
        if isinstance(schema, bool):
            return schema
        result = self._own(schema, where)
        if "$ref" in schema:
            result = self.intersect(result, Ref(schema["$ref"]), where)
        for index, part in enumerate(schema.get("allOf", ())):
            result = self.intersect(result, self.form(part, f"{where}.allOf[{index}]"), where)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                options = [self.form(part, f"{where}.{key}[{index}]") for index, part in enumerate(schema[key])]
                if key == "oneOf" and not self._all_apart(options):
                    self.note(where, "`oneOf` is taken as `anyOf`: its alternatives may overlap")
                result = self.intersect(result, any_of(options), where)
        return result

    def _own(self, schema: Mapping[str, Any], where: str) -> Form:
        """What the schema says itself, without `$ref`, `allOf`, `anyOf` and `oneOf`."""
        named = schema.get("type", list(TYPES))
        types = dict.fromkeys(named if isinstance(named, list) else [named])
        if schema.get("nullable") is True:
            types["null"] = None
        if "number" in types:
            types.pop("integer", None)
        for key, concerned in _NEVER.items():
            if key in schema and schema[key] is not _HARMLESS.get(key) and any(kind in types for kind in concerned):
                self.note(where, f"`{key}` is not enforced")
        made = [self._typed(kind, schema, where) for kind in types]
        if (
            len(types) == 6
            and "number" in types
            and all(form == FREE[kind] for kind, form in zip(types, made, strict=True))
        ):
            result: Form = True
        else:
            result = any_of(made)
        values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
        if values is None:
            return result
        if "enum" in schema and "const" in schema:
            values = [value for value in values if same(value, schema["const"])]
        return any_of(constant(value, where) for value in values if self.admits(result, value))

    def _typed(self, kind: str, schema: Mapping[str, Any], where: str) -> Form:
        match kind:
            case "string":
                return self._strings(schema, where)
            case "integer" | "number":
                step = schema.get("multipleOf")
                multiple = None if step is None else Fraction(str(step))
                return numbers(Numbers(where, kind == "integer", *bounds(schema), multiple))
            case "array":
                return self._arrays(schema, where)
            case "object":
                return self._objects(schema, where)
            case _:
                return Plain(where, kind)

    def _strings(self, schema: Mapping[str, Any], where: str) -> Form:
        found: list[Node] = []
        if "pattern" in schema and (node := self._pattern(schema["pattern"], f"{where}.pattern")) is not None:
            found.append(node)
        if "format" in schema:
            if schema["format"] in patterns.FORMATS:
                found.append(patterns.parse(f"^(?:{patterns.FORMATS[schema['format']]})$"))
            else:
                self.note(where, f"`format` {schema['format']!r} is not enforced: it is not one of those known here")
        said = tuple(node for node in found if node != Repeat(ANY))
        return strings(Strings(where, *self._counts(schema, "Length", where), said))

    def _counts(self, schema: Mapping[str, Any], what: str, where: str) -> tuple[int, int | None]:
        """`min…` and `max…`, as far as they are not too large for a grammar; the first has been checked."""
        most = schema.get(f"max{what}")
        if most is not None and most > MOST_REPEATS:
            self.note(where, f"`max{what}` is not enforced: it is above {MOST_REPEATS}")
            most = None
        return int(schema.get(f"min{what}", 0)), None if most is None else int(most)

    def _pattern(self, pattern: str, where: str) -> Node | None:
        try:
            return patterns.parse(pattern)
        except (patterns.UnsupportedPattern, patterns.BadPattern) as problem:
            self.note(where, f"{pattern!r:.60} is not enforced: {problem}")
            return None

    def _arrays(self, schema: Mapping[str, Any], where: str) -> Form:
        prefix, rest, at = schema.get("prefixItems", []), schema.get("items", True), "prefixItems"
        if isinstance(rest, list):  # before draft 2020
            prefix, rest, at = rest, schema.get("additionalItems", True), "items"
        forms = tuple(self.form(inner, f"{where}.{at}[{index}]") for index, inner in enumerate(prefix))
        items = self.form(rest, f"{where}.items")
        return arrays(Arrays(where, forms, items, *self._counts(schema, "Items", where)))

    def _objects(self, schema: Mapping[str, Any], where: str) -> Form:
        properties = {
            name: self.form(inner, f"{where}.properties.{name}") for name, inner in schema.get("properties", {}).items()
        }
        others = self.form(schema.get("additionalProperties", True), f"{where}.additionalProperties")
        matching: list[tuple[Node, Form]] = []
        for pattern, inner in schema.get("patternProperties", {}).items():
            place = f"{where}.patternProperties.{pattern}"
            node, form = self._pattern(pattern, place), self.form(inner, place)
            if node is None:
                others = any_of([others, form])
            else:
                matching.append((node, form))
        for name in schema.get("required", ()):
            if name not in properties and not any(patterns.matches(node, name) for node, _ in matching):
                properties[name] = others
            properties.setdefault(name, True)
        for name in properties:
            for node, form in matching:
                if patterns.matches(node, name):
                    properties[name] = self.intersect(properties[name], form, where)
        if "propertyNames" in schema:
            names = self.intersect(FREE["string"], self.form(schema["propertyNames"], f"{where}.propertyNames"), where)
            properties = {name: form if self.admits(names, name) else False for name, form in properties.items()}
            node = _as_pattern(names)
            if names is False:
                others, matching = False, []
            elif node is not None and not matching:
                matching, others = [(node, others)] if others is not False else [], False
            elif names != FREE["string"] and (matching or others is not False):
                self.note(where, "`propertyNames` is enforced only for the names in `properties`")
        required = tuple(dict.fromkeys(schema.get("required", ())))
        counts = self._counts(schema, "Properties", where)
        return objects(Objects(where, properties, required, tuple(matching), others, *counts))

    def intersect(self, one: Form, other: Form, where: str) -> Form:
        """What satisfies the two. Where that cannot be said, the first alone, which is noted."""
        if one is True or other is False:
            return other
        if other is True or one is False or one == other:
            return one
        self._work += 1
        self._depth += 1
        try:
            if self._work > _MOST_WORK or self._depth > _MOST_DEPTH:
                self.note(where, "only some of what it combines is enforced: together it is too large")
                return one
            return self._intersect(one, other, where)
        finally:
            self._depth -= 1

    def _intersect(self, one: Form, other: Form, where: str) -> Form:
        for this, that in ((one, other), (other, one)):
            if isinstance(this, Ref):
                target = self.target(this.pointer)
                key = this.pointer, that.pointer if isinstance(that, Ref) else id(that)
                if target is None or key in self._merging:
                    self.note(where, f"what stands beside `$ref` {this.pointer!r} is not enforced: it is recursive")
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
                self.note(where, "only some of its alternatives are combined: together they are too many")
                return one
            return any_of(self.intersect(left, right, where) for left in ones for right in others)
        match one, other:
            case Plain(), Plain():
                return one if one.kind == other.kind else False
            case Numbers(), Numbers():
                low, open_low = max((one.low, one.open_low), (other.low, other.open_low))
                high, closed = min((one.high, not one.open_high), (other.high, not other.open_high))
                steps = [step for step in (one.multiple, other.multiple) if step is not None]
                multiple = None if not steps else steps[0] if len(steps) == 1 else _common(*steps)
                whole = one.whole or other.whole
                return numbers(Numbers(one.where, whole, low, high, open_low, not closed, multiple))
            case Strings(), Strings():
                found = tuple(dict.fromkeys(one.patterns + other.patterns))
                least, most = max(one.least, other.least), _fewer(one.most, other.most)
                return strings(Strings(one.where, least, most, found))
            case Arrays(), Arrays():
                length = max(len(one.prefix), len(other.prefix))
                prefix = tuple(self.intersect(_item(one, index), _item(other, index), where) for index in range(length))
                items = self.intersect(one.items, other.items, where)
                least, most = max(one.least, other.least), _fewer(one.most, other.most)
                return arrays(Arrays(one.where, prefix, items, least, most))
            case Objects(), Objects():
                return self._both_objects(one, other, where)
            case _:
                return False

    def _both_objects(self, one: Objects, other: Objects, where: str) -> Form:
        names = dict.fromkeys([*one.properties, *other.properties])
        properties = {
            name: self.intersect(self._value(one, name, where), self._value(other, name, where), where)
            for name in names
        }
        matching: list[tuple[Node, Form]] = []
        if one.matching and other.matching:
            self.note(where, "only some of its `patternProperties` are enforced: they come from several schemas")
        source, beside = (one, other) if one.matching else (other, one)
        for node, form in source.matching:
            matching.append((node, self.intersect(form, True if beside.matching else beside.others, where)))
        rest = True if one.matching and other.matching else beside.others
        others = self.intersect(source.others, rest, where)
        required = tuple(dict.fromkeys(one.required + other.required))
        least, most = max(one.least, other.least), _fewer(one.most, other.most)
        return objects(Objects(one.where, properties, required, tuple(matching), others, least, most))

    def _value(self, form: Objects, name: str, where: str) -> Form:
        if name in form.properties:
            return form.properties[name]
        found = [inner for node, inner in form.matching if patterns.matches(node, name)]
        value = found[0] if found else form.others
        for inner in found[1:]:
            value = self.intersect(value, inner, where)
        return value

    def admits(self, form: Form | None, value: Any) -> bool:
        """Whether the value may satisfy the form; True where that is not known."""
        match form:
            case bool():
                return form
            case None:
                return True
            case Ref(pointer):
                return self.admits(self.target(pointer), value)
            case AnyOf(options):
                return any(self.admits(option, value) for option in options)
            case Values(values):
                return any(same(value, known) for known in values)
            case Plain(_, kind):
                return kind in type_of(value)
            case Numbers():
                if "number" not in type_of(value) or (form.whole and "integer" not in type_of(value)):
                    return False
                exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
                low = exact > form.low if form.open_low else exact >= form.low
                high = exact < form.high if form.open_high else exact <= form.high
                return low and high and (form.multiple is None or (exact / form.multiple).denominator == 1)
            case Strings():
                fits = isinstance(value, str) and form.least <= len(value) <= _top(form.most)
                return fits and all(patterns.matches(node, value) for node in form.patterns)
            case Arrays():
                fits = isinstance(value, list) and form.least <= len(value) <= _top(form.most)
                return fits and all(self.admits(_item(form, index), item) for index, item in enumerate(value))
            case Objects():
                if not isinstance(value, Mapping) or not form.least <= len(value) <= _top(form.most):
                    return False
                return all(name in value for name in form.required) and all(
                    self.admits(self._value(form, name, form.where), inner) for name, inner in value.items()
                )

    def _all_apart(self, options: list[Form]) -> bool:
        return len(options) <= 100 and all(self._apart(one, other, 8) for one, other in combinations(options, 2))

    def _apart(self, one: Form | None, other: Form | None, depth: int) -> bool:
        """Whether it is plain that no value satisfies both."""
        if one is False or other is False:
            return True
        if depth == 0 or one is True or other is True or one is None or other is None:
            return False
        for this, that in ((one, other), (other, one)):
            match this:
                case Ref(pointer):
                    return self._apart(self.target(pointer), that, depth - 1)
                case AnyOf(options):
                    return len(options) <= 20 and all(self._apart(option, that, depth - 1) for option in options)
                case Values(values):
                    return not any(self.admits(that, value) for value in values)
        if isinstance(one, Objects) and isinstance(other, Objects):
            return any(
                self._apart(self._value(one, name, ""), self._value(other, name, ""), depth - 1)
                for name in one.required
                if name in other.required
            )
        if isinstance(one, Plain) and isinstance(other, Plain):
            return one.kind != other.kind
        if isinstance(one, Numbers) and isinstance(other, Numbers):
            return one.high < other.low or other.high < one.low
        return type(one) is not type(other)


# Each of these makes a form plain, and False of what nothing satisfies.


def numbers(form: Numbers) -> Form:
    low, high, multiple = form.low, form.high, form.multiple
    if form.whole:
        if isinstance(low, Fraction):
            low = Fraction(math.floor(low) + 1 if form.open_low else math.ceil(low))
        if isinstance(high, Fraction):
            high = Fraction(math.ceil(high) - 1 if form.open_high else math.floor(high))
        multiple = None if multiple is None else _common(multiple, Fraction(1))
        multiple = None if multiple == 1 else multiple
        form = Numbers(form.where, True, low, high, False, False, multiple)
    return False if low > high or (low == high and (form.open_low or form.open_high)) else form


def strings(form: Strings) -> Form:
    return False if form.least > _top(form.most) else form


def arrays(form: Arrays) -> Form:
    never = [index for index, inner in enumerate(form.prefix) if inner is False]
    most = _fewer(form.most, never[0] if never else len(form.prefix) if form.items is False else None)
    if most is not None and most <= len(form.prefix):
        form = replace(form, prefix=form.prefix[:most], items=False, most=most)
    return False if form.least > _top(most) else form


def objects(form: Objects) -> Form:
    never = any(form.properties[name] is False for name in form.required)
    return False if never or max(form.least, len(form.required)) > _top(form.most) else form


def _item(form: Arrays, index: int) -> Form:
    return form.prefix[index] if index < len(form.prefix) else form.items


def one_pattern(form: Strings, note: Note) -> Node:
    """The strings as one pattern; what it does not say is noted."""
    if not form.patterns:
        return Repeat(ANY, form.least, form.most)
    if len(form.patterns) > 1:
        note(form.where, "only one of `pattern`, `format` and the patterns combined with it is enforced")
    held = patterns.within(form.patterns[0], form.least, form.most)
    if held is None:
        note(form.where, "`minLength` and `maxLength` are not enforced beside a pattern or format")
    return held or form.patterns[0]


def _as_pattern(form: Form) -> Node | None:
    """The strings that satisfy `form`, where one pattern says it."""
    match form:
        case Values(values):
            return choice(*map(Text, values))
        case Strings(_, 0, None, ()):
            return None
        case Strings(_, least, most, ()):
            return Repeat(ANY, least, most)
        case Strings(_, least, most, (node,)):
            return patterns.within(node, least, most)
        case _:
            return None


def _fewer(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _top(most: int | None) -> float:
    return math.inf if most is None else most


def _common(one: Fraction, other: Fraction) -> Fraction:
    """The smallest multiple of both."""
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


FREE: dict[str, Form] = {
    "null": Plain("", "null"),
    "boolean": Plain("", "boolean"),
    "number": Numbers("", False, -math.inf, math.inf, False, False, None),
    "integer": Numbers("", True, -math.inf, math.inf, False, False, None),
    "string": Strings("", 0, None, ()),
    "array": Arrays("", (), True, 0, None),
    "object": Objects("", {}, (), (), True, 0, None),
}
ANYTHING = [form for kind, form in FREE.items() if kind != "integer"]
