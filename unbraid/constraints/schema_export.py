"""JSON schemas written for the converters of llguidance and xgrammar, so that neither makes the language smaller.

Each converter has its own idea of JSON Schema. One matches a pattern against the string, the other against its JSON
text, and both get some keywords wrong. So a schema is brought to its normal form (`schema.normal_form`) and written
again with only those keywords that the converter gets right. What it cannot express is left out, so that every valid
value stays possible, and is listed. `tests/constraints/test_schemas.py` tries all of it with the real converters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

from ..errors import InvalidSchema, Place
from ..metering import spend, working_on
from ..schema.forms import (
    AnyOf,
    Arrays,
    Form,
    NullOrBoolean,
    Number,
    Numbers,
    Objects,
    Ref,
    Strings,
    Values,
    any_of,
    is_finite,
    one_pattern,
)
from ..schema.keywords import Schema, children
from ..schema.normal_form import Normalizer
from ..schema.regular import Node, disjoint, leaves, matches
from .language import Unenforced
from .printers.regex import regular
from .schema_grammar import json_text

_DECIMALS = 10**100
"""llguidance nests one pattern in another for each decimal of a bound, and not endlessly."""
Converter = Literal["llguidance", "xgrammar"]


def export(schema: Schema, converter: Converter, where: str) -> tuple[Schema, list[Unenforced]]:
    """The schema as `converter` takes it: never tighter than `schema`, and everything that is looser is listed. The
    schema has passed `check`."""
    return _Exporter(schema, converter, where).run()


class _Exporter:
    def __init__(self, schema: Schema, converter: Converter, where: str) -> None:
        self._unenforced: dict[Unenforced, None] = {}
        self._normalizer = Normalizer(schema, where, self._note)
        self._xgrammar, self._where = converter == "xgrammar", where
        self._names: dict[str, str] = {}  # pointer to the name of its definition
        self._order: list[str] = []

    def _note(self, where: str, what: str) -> None:
        self._unenforced[Unenforced(where, what)] = None

    def run(self) -> tuple[Schema, list[Unenforced]]:
        exported = self._write(self._normalizer.root())
        definitions: dict[str, Any] = {}
        for pointer in self._order:  # which grows
            definitions[self._names[pointer]] = self._write(self._target(pointer))
        if exported is False:
            raise InvalidSchema(Place(text=self._where), " contradicts itself: no value satisfies all of it")
        if definitions and isinstance(exported, Mapping):
            exported = {**exported, "$defs": definitions}
        return exported, list(self._unenforced)

    def _target(self, pointer: str) -> Form:
        target = self._normalizer.target(pointer)
        assert target is not None, "nothing is being made any more"
        return target

    def _write(self, form: Form) -> Schema:
        spend()
        match form:
            case False:
                return False
            case True:
                return {}
            case Ref(pointer):
                if isinstance(target := self._target(pointer), bool):
                    return self._write(target)
                if pointer not in self._names:
                    self._names[pointer] = f"d{len(self._names)}"
                    self._order.append(pointer)
                return {"$ref": f"#/$defs/{self._names[pointer]}"}
            case Values(values):
                return {"enum": list(values)}
            case AnyOf(options):
                exported = {json.dumps(option): option for option in map(self._write, options) if option is not False}
                return {"anyOf": list(exported.values())} if len(exported) > 1 else next(iter(exported.values()), False)
            case NullOrBoolean(_, kind):
                return {"type": kind}
            case Strings():
                return self._strings(form)
            case Numbers():
                return self._numbers(form)
            case Arrays():
                return self._arrays(form)
            case Objects():
                return self._objects(form)

    def _pattern(self, node: Node) -> str:
        if not self._xgrammar:
            return f"^{regular(node)}$"
        # It matches patterns against the JSON text. It lets no backslash match, not even one that is asked for, unless
        # the pattern holds some letter beyond ASCII; one that is repeated zero times is enough.
        body = regular(json_text(node))
        return f"^{body}(?:é){{0}}$" if "\\\\" in body and body.isascii() else f"^{body}$"

    def _strings(self, form: Strings) -> Schema:
        if not self._xgrammar:
            for leaf in (leaf for node in form.patterns for leaf in leaves(node)):
                if all(map(leaf.holds, map(chr, range(32)))) and not all(map(leaf.holds, '"\\')):
                    self._note(form.where, "a quote or backslash may stand where `pattern` has any control character")
            patterns = [{"type": "string", "pattern": self._pattern(node)} for node in form.patterns]
            sizes = _some(minLength=form.least or None, maxLength=form.most)
            if len(patterns) == 1:
                return {**patterns[0], **sizes}
            return {"type": "string", **sizes, **_some(allOf=patterns or None)}
        # It takes one pattern, and counts an escape as several characters.
        if not form.patterns and not form.least and form.most is None:
            return {"type": "string"}
        return {"type": "string", "pattern": self._pattern(one_pattern(form, self._note))}

    def _numbers(self, form: Numbers) -> Schema:
        low, high, multiple = form.low, form.high, form.multiple
        # llguidance reads bounds as floats; those that xgrammar has for other numbers limit their digits.
        limit = 2**53 if not self._xgrammar else 2**63 - 2 if form.whole else 0
        enforced = {
            key: is_finite(bound) and bool(limit) and -limit <= bound <= limit and (bound * _DECIMALS).denominator == 1
            for key, bound in (("minimum", low), ("maximum", high))
        }
        for key, bound in (("minimum", low), ("maximum", high)):
            if is_finite(bound) and not enforced[key]:
                why = (
                    f"it is beyond {limit}, or has too many digits" if limit else "bounds of numbers limit their digits"
                )
                self._note(form.where, f"`{key}` is not enforced: {why}")
        low = low if enforced["minimum"] else -math.inf
        high = high if enforced["maximum"] else math.inf
        if multiple is not None and not self._has_multiples(form.whole, multiple, low, high):
            self._note(form.where, "`multipleOf` is not enforced")
            multiple = None
        return {
            "type": "integer" if form.whole else "number",
            **_some(**{"exclusiveMinimum" if form.open_low else "minimum": _plain(low)}),
            **_some(**{"exclusiveMaximum" if form.open_high else "maximum": _plain(high)}),
            **_some(multipleOf=None if multiple is None else _plain(multiple)),
        }

    def _has_multiples(self, whole: bool, multiple: Fraction, low: Number, high: Number) -> bool:
        if not self._xgrammar:
            return (multiple * 10**6).denominator == 1 and multiple.numerator * 10**6 // multiple.denominator < 2**32
        bounded = is_finite(low), is_finite(high)
        narrow = high - low < 10_000 if all(bounded) else not any(bounded)
        return whole and multiple <= 1_024 and narrow

    def _arrays(self, form: Arrays) -> Schema:
        items = self._write(form.items)
        return {
            "type": "array",
            **_some(prefixItems=[self._write(inner) for inner in form.prefix] or None),
            "items": {"type": "null"} if items is False else items,
            **_some(minItems=form.least or None, maxItems=len(form.prefix) if items is False else form.most),
        }

    def _objects(self, form: Objects) -> Schema:
        where = form.where
        working_on(where or self._where)
        matching, others = self._matching(form)
        properties: dict[str, Schema] = {}
        for name, inner in form.properties.items():
            exported = self._write(inner)
            if exported is not False or (not self._xgrammar and others is not False):
                properties[name] = exported
            elif others is not False:
                self._note(f"{where}.properties.{name}", "is not forbidden, since other properties are allowed")
        if others is not False and self._xgrammar:
            # It does not see that a name with a quote in it is no other property.
            for name in properties:
                if json.dumps(name, ensure_ascii=False)[1:-1] != name:
                    self._note(f"{where}.properties.{name}", "may come again, with any value, as another property")
        exported = others if isinstance(others, bool) else self._write(others)
        return {
            "type": "object",
            **_some(properties=properties if properties or exported is False else None),
            **_some(required=list(form.required) or None),
            **_some(patternProperties=matching or None),
            "additionalProperties": exported,
            **self._property_counts(form, len(properties), bool(matching), others),
        }

    def _matching(self, form: Objects) -> tuple[dict[str, Schema], Form]:
        """`patternProperties` and the schema of all other properties."""
        apart = all(disjoint(one, other) for (one, _), (other, _) in combinations(form.matching, 2))
        # xgrammar knows them where no others are allowed.
        if form.matching and not (apart and (not self._xgrammar or form.others is False)):
            self._note(form.where, "which names `patternProperties` or `propertyNames` are about is not enforced")
            return {}, any_of([form.others, *(inner for _, inner in form.matching)])
        exported = {self._pattern(node): self._write(inner) for node, inner in form.matching}
        if self._xgrammar:
            for name in form.properties:
                if any(matches(node, name) for node, _ in form.matching):
                    self._note(f"{form.where}.properties.{name}", "may also be what `patternProperties` say")
            exported = {key: inner for key, inner in exported.items() if inner is not False}
        return exported, form.others

    def _property_counts(self, form: Objects, named: int, matching: bool, others: Form) -> dict[str, Any]:
        closed = others is False and not matching
        least = form.least if form.least > len(form.required) else 0
        most = None if form.most is None or (closed and form.most >= named) else form.most
        if not least and most is None:
            return {}
        more = max(least - len(form.required), 0), None if most is None else most - len(form.required)
        simple = named == len(form.required) or (closed and more in ((1, None), (0, 1), (1, 1)))
        if self._xgrammar or simple:
            return _some(minProperties=least or None, maxProperties=most)
        self._note(form.where, "`minProperties` and `maxProperties` are not enforced")
        return {}


def _some(**keywords: Any) -> dict[str, Any]:
    return {key: value for key, value in keywords.items() if value is not None}


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
