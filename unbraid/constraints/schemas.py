"""JSON schemas as the converters take them: checked, and rewritten so that none makes the language smaller.

Each converter has its own idea of JSON schema. One takes a missing `additionalProperties` for `false`, another ignores
everything beside `$ref`, a third reads six decimals and no more. So a schema is brought to a plain form (see
schema_algebra.py) and written again with those keywords alone that the converter gets right. What it has no words for
is left out, so that every valid value stays possible, and is listed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

from . import schema_patterns as patterns
from .schema_algebra import (
    Algebra,
    AnyOf,
    Arrays,
    Form,
    Number,
    Numbers,
    Objects,
    Plain,
    Ref,
    Strings,
    Values,
    any_of,
)
from .schema_checks import InvalidSchema, Schema, check, children

__all__ = ["Dialect", "InvalidSchema", "Loosened", "Schema", "check", "fit", "locate"]

Dialect = Literal["llguidance", "llama.cpp", "xgrammar", "outlines"]


@dataclass(frozen=True, slots=True)
class Loosened:
    """Something that a dialect cannot express."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Converter:
    """What a converter gets right. tests/test_schemas.py tries all of it with the real ones."""

    anything: Schema | None  # every JSON value; None: not a regular language
    json_text: bool = True  # patterns are matched against the JSON text of a string, not against the string
    lengths: bool = False  # minLength and maxLength, also of strings with escapes
    lengths_and_patterns: bool = False  # both at once, and several patterns
    most_repeats: int = 100_000  # the largest count that it takes
    largest_integer: int = 0  # bounds of integers, up to this; 0: none
    half_bounded: bool = True  # integers that are bounded on one side only
    decimals: bool = False  # bounds of numbers, however many digits follow
    multiples: Literal["all", "small", "none"] = "none"
    matching: Literal["all", "closed", "none"] = "none"  # patternProperties; closed: if no others are allowed
    property_counts: Literal["all", "some", "none"] = "none"
    forbidden_names: bool = False  # `"name": false`
    escaped_names: bool = True  # that a name with a quote in it is no other property
    open_tuples: bool = False  # prefixItems that may be followed by others, or be cut short
    required_first: bool = False  # it moves what is required to the front
    raw_names: bool = False  # it takes property names for JSON text


_CONVERTERS: dict[Dialect, _Converter] = {
    "llguidance": _Converter(
        anything={},
        json_text=False,
        lengths=True,
        lengths_and_patterns=True,
        largest_integer=2**53,  # it reads bounds as floats
        decimals=True,
        multiples="all",
        matching="all",
        property_counts="some",
        forbidden_names=True,
        open_tuples=True,
    ),
    "llama.cpp": _Converter(
        # Booleans for schemas crash it, and `{}` has meant any object to it.
        anything={"type": ["object", "array", "string", "number", "boolean", "null"]},
        lengths=True,
        most_repeats=1_999,
        largest_integer=2**63 - 2,
        half_bounded=False,  # it gets these wrong (205 or more: 25 passes), and limits them to 16 digits
        required_first=True,
    ),
    "xgrammar": _Converter(
        anything={},
        largest_integer=2**63 - 2,
        multiples="small",
        matching="closed",
        property_counts="all",
        escaped_names=False,
        open_tuples=True,
    ),
    "outlines": _Converter(anything=None, raw_names=True),
}
_MOST_TUPLES = 20
_MOST_REGEX = 20_000  # parts of it, once all is written out: more make no regex that anyone can compile


def fit(schema: Schema, dialect: Dialect, where: str) -> tuple[Schema, list[Loosened]]:
    """The schema as `dialect`'s converter takes it: never tighter than `schema`, and everything that is looser is
    listed. The schema has passed `check`."""
    return _Fitter(schema, _CONVERTERS[dialect], where).run()


class _Fitter:
    def __init__(self, schema: Schema, converter: _Converter, where: str) -> None:
        self._loosened: dict[Loosened, None] = {}
        self._algebra = Algebra(schema, where, self._note)
        self._converter, self._where = converter, where
        self._names: dict[str, str] = {}  # pointer to the name of its definition
        self._order: list[str] = []

    def _note(self, where: str, what: str) -> None:
        self._loosened[Loosened(where, what)] = None

    def run(self) -> tuple[Schema, list[Loosened]]:
        root = self._algebra.root()
        if self._converter.anything is None:
            self._check_regular(root)
        fitted = self._write(root)
        definitions: dict[str, Any] = {}
        for pointer in self._order:  # which grows
            definitions[self._names[pointer]] = self._write(self._target(pointer))
        if fitted is False:
            raise InvalidSchema(f"{self._where} contradicts itself: no value satisfies all of it")
        if definitions and isinstance(fitted, Mapping):
            fitted = {**fitted, "$defs": definitions}
        return fitted, list(self._loosened)

    def _target(self, pointer: str) -> Form:
        target = self._algebra.target(pointer)
        assert target is not None, "nothing is being made any more"
        return target

    def _check_regular(self, root: Form) -> None:
        sizes: dict[str, int | None] = {}

        def size(form: Form) -> int:
            if not isinstance(form, Ref):
                # Items are written twice (one, and the others after a comma), optional properties once for each.
                many = isinstance(form, Objects) and not form.required and len(form.properties)
                times = max(2 if isinstance(form, Arrays | Objects) else 1, many or 1)
                return min(1 + times * sum(map(size, _inner(form))), _MOST_REGEX + 1)
            if form.pointer not in sizes:
                sizes[form.pointer] = None
                sizes[form.pointer] = min(size(self._target(form.pointer)), _MOST_REGEX + 1)
            found = sizes[form.pointer]
            if found is None:
                raise InvalidSchema(f"{self._where} is no regular language: {form.pointer!r} refers to itself")
            return found

        if size(root) > _MOST_REGEX:
            raise InvalidSchema(f"{self._where} makes too large a regular expression; use a dialect with rules")

    def _write(self, form: Form) -> Schema:
        match form:
            case False:
                return False
            case True:
                if self._converter.anything is None:
                    raise InvalidSchema(
                        f"{self._where} admits any value somewhere, which is no regular language; give everything a "
                        "type, arrays `items`, and objects `additionalProperties: false`"
                    )
                return self._converter.anything
            case Ref(pointer):
                if isinstance(target := self._target(pointer), bool):
                    return self._write(target)
                if pointer not in self._names:
                    # llama.cpp takes `a_b` and `a-b` for the same, so definitions are numbered.
                    self._names[pointer] = f"d{len(self._names)}"
                    self._order.append(pointer)
                return {"$ref": f"#/$defs/{self._names[pointer]}"}
            case Values(values):
                return {"enum": list(values)}
            case AnyOf(options):
                written = {json.dumps(option): option for option in map(self._write, options) if option is not False}
                return {"anyOf": list(written.values())} if len(written) > 1 else next(iter(written.values()), False)
            case Plain(_, kind):
                return {"type": kind}
            case Strings():
                return self._strings(form)
            case Numbers():
                return self._numbers(form)
            case Arrays():
                return self._arrays(form)
            case Objects():
                return self._objects(form)

    def _strings(self, form: Strings) -> Schema:
        converter = self._converter
        least, most = self._counts(form.where, "Length", form.least, form.most)
        found = [node for node in form.patterns if patterns.repeats(node) <= converter.most_repeats]
        if len(found) < len(form.patterns):
            self._note(form.where, f"`pattern` is not enforced: it repeats more than {converter.most_repeats} times")
        if converter.lengths_and_patterns:
            written = [{"type": "string", "pattern": patterns.write(node, json_text=False)} for node in found]
            sizes = _some(minLength=least or None, maxLength=most)
            if len(written) == 1:
                return {**written[0], **sizes}
            return {"type": "string", **sizes, **_some(allOf=written or None)}
        if len(found) > 1:
            self._note(form.where, "only one of `pattern`, `format` and the patterns combined with it is enforced")
        if not found and (converter.lengths or (least == 0 and most is None and converter.anything is not None)):
            return {"type": "string", **_some(minLength=least or None, maxLength=most)}
        node = found[0] if found else patterns.Repeat(patterns.ANY, 0, None)
        held = patterns.within(node, least, most)
        if held is None:
            self._note(form.where, "`minLength` and `maxLength` are not enforced beside a pattern or format")
        return {"type": "string", "pattern": patterns.write(held or node, json_text=converter.json_text)}

    def _counts(self, where: str, what: str, least: int, most: int | None) -> tuple[int, int | None]:
        limit = self._converter.most_repeats
        if most is not None and most > limit:
            self._note(where, f"`max{what}` is not enforced: it is above {limit}")
            most = None
        if least > limit:
            self._note(where, f"`min{what}` is enforced only up to {limit}")
            least = limit
        return least, most

    def _numbers(self, form: Numbers) -> Schema:
        converter, low, high, multiple = self._converter, form.low, form.high, form.multiple
        limit = converter.largest_integer if form.whole else 2**53 if converter.decimals else 0
        found: list[tuple[str, Number]] = [("minimum", low), ("maximum", high)]
        for key, bound in found:
            if math.isfinite(bound) and not (limit and -limit <= bound <= limit):
                why = f"it is beyond {limit}" if limit else "bounds of numbers are not known, or limit their digits"
                self._note(form.where, f"`{key}` is not enforced: {why}")
        low = low if limit and -limit <= low <= limit else -math.inf
        high = high if limit and -limit <= high <= limit else math.inf
        if not converter.half_bounded and math.isfinite(low) != math.isfinite(high):
            low, high = max(low, Fraction(-limit)), min(high, Fraction(limit))
        if multiple is not None and not self._has_multiples(form, multiple, low, high):
            self._note(form.where, "`multipleOf` is not enforced")
            multiple = None
        return {
            "type": "integer" if form.whole else "number",
            **_some(**{"exclusiveMinimum" if form.open_low else "minimum": _plain(low)}),
            **_some(**{"exclusiveMaximum" if form.open_high else "maximum": _plain(high)}),
            **_some(multipleOf=None if multiple is None else _plain(multiple)),
        }

    def _has_multiples(self, form: Numbers, multiple: Fraction, low: Number, high: Number) -> bool:
        if self._converter.multiples == "all":
            return (multiple * 10**6).denominator == 1 and multiple.numerator * 10**6 // multiple.denominator < 2**32
        bounded = math.isfinite(low), math.isfinite(high)
        narrow = high - low < 10_000 if all(bounded) else not any(bounded)
        return self._converter.multiples == "small" and form.whole and multiple <= 1_024 and narrow

    def _arrays(self, form: Arrays) -> Schema:
        least, most = self._counts(form.where, "Items", form.least, form.most)
        prefix, items = form.prefix, form.items
        if prefix and not self._converter.open_tuples:
            if items is False and len(prefix) - least < _MOST_TUPLES:
                tuples = [self._tuple(prefix[:length]) for length in range(least, len(prefix) + 1)]
                return tuples[0] if len(tuples) == 1 else {"anyOf": tuples}
            self._note(form.where, "the order of `prefixItems` is not enforced")
            prefix, items = (), any_of([*prefix, items])
        written = self._write(items)
        return {
            "type": "array",
            **_some(prefixItems=[self._write(inner) for inner in prefix] or None),
            "items": {"type": "null"} if written is False else written,
            **_some(minItems=least or None, maxItems=len(prefix) if written is False else most),
        }

    def _tuple(self, prefix: tuple[Form, ...]) -> Schema:
        if not prefix:
            return {"type": "array", "items": {"type": "null"}, "maxItems": 0}
        return {"type": "array", "prefixItems": [self._write(inner) for inner in prefix]}

    def _objects(self, form: Objects) -> Schema:
        converter, where = self._converter, form.where
        matching, others = self._matching(form)
        properties: dict[str, Schema] = {}
        for name, inner in form.properties.items():
            written = self._write(inner)
            if written is not False or (converter.forbidden_names and others is not False):
                properties[name] = written
            elif others is not False:
                self._note(f"{where}.properties.{name}", "is not forbidden, since other properties are allowed")
        if others is not False and not converter.escaped_names:
            for name in properties:
                if _raw(name) != name:
                    self._note(f"{where}.properties.{name}", "may come again, with any value, as another property")
        if converter.required_first:
            properties = {name: properties[name] for name in [*form.required, *properties] if name in properties}
        counts = self._property_counts(form, len(properties), bool(matching), others)
        if converter.anything is None and others is not False and (properties or others is True):
            raise InvalidSchema(
                f"{where} admits any property, which is no regular language; set `additionalProperties` to false"
            )
        if converter.raw_names:
            properties = {_raw(name): inner for name, inner in properties.items()}
        required = [_raw(name) if converter.raw_names else name for name in form.required]
        written = others if isinstance(others, bool) else self._write(others)
        return {
            "type": "object",
            **_some(properties=properties if properties or written is False else None),
            **_some(required=required or None),
            **_some(patternProperties=matching or None),
            "additionalProperties": written,
            **counts,
        }

    def _matching(self, form: Objects) -> tuple[dict[str, Schema], Form]:
        """`patternProperties` and the schema of all other properties."""
        converter, others = self._converter, form.others
        apart = all(patterns.disjoint(one, other) for (one, _), (other, _) in combinations(form.matching, 2))
        known = converter.matching == "all" or (converter.matching == "closed" and others is False)
        if not form.matching or (known and apart):
            if converter.matching == "closed":
                for name in form.properties:
                    if any(patterns.matches(node, name) for node, _ in form.matching):
                        self._note(f"{form.where}.properties.{name}", "may also be what `patternProperties` say")
            written = {patterns.write(node, json_text=converter.json_text): self._write(inner)
                       for node, inner in form.matching}  # fmt: skip
            if converter.matching == "all" or False not in written.values():
                return written, others
            return {key: inner for key, inner in written.items() if inner is not False}, others
        self._note(form.where, "which names `patternProperties` or `propertyNames` are about is not enforced")
        return {}, any_of([others, *(inner for _, inner in form.matching)])

    def _property_counts(self, form: Objects, named: int, matching: bool, others: Form) -> dict[str, Any]:
        least, most = self._counts(form.where, "Properties", form.least, form.most)
        closed = others is False and not matching
        least = least if least > len(form.required) else 0
        most = None if most is None or (closed and most >= named) else most
        if not least and most is None:
            return {}
        more = max(least - len(form.required), 0), None if most is None else most - len(form.required)
        simple = named == len(form.required) or (closed and more in ((1, None), (0, 1), (1, 1)))
        if self._converter.property_counts == "all" or (self._converter.property_counts == "some" and simple):
            return _some(minProperties=least or None, maxProperties=most)
        self._note(form.where, "`minProperties` and `maxProperties` are not enforced")
        return {}


def _inner(form: Form) -> Iterator[Form]:
    match form:
        case AnyOf(options):
            yield from options
        case Arrays(_, prefix, items):
            yield from prefix
            yield items
        case Objects():
            yield from form.properties.values()
            yield from (inner for _, inner in form.matching)
            yield form.others


def _some(**keywords: Any) -> dict[str, Any]:
    return {key: value for key, value in keywords.items() if value is not None}


def _raw(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _plain(number: Number) -> int | float | None:
    if not isinstance(number, Fraction):
        return None
    return int(number) if number.denominator == 1 else float(number)


def locate(schema: Schema, fails: Callable[[Schema], bool], where: str) -> str:
    """The smallest place in `schema` that already fails alone (with the root's definitions), for error messages."""
    whole = schema if isinstance(schema, Mapping) else {}
    definitions = {key: whole[key] for key in ("$defs", "definitions") if key in whole}
    calls = 200
    node: Any = schema
    while isinstance(node, Mapping):
        for _, step, inner in children(node):
            if not isinstance(inner, Mapping):
                continue
            calls -= 1
            if calls < 0:
                return where
            if fails({**inner, **definitions}):
                where, node = f"{where}.{step}", inner
                break
        else:
            break
    return where
