"""From a JSON schema to its normal form (see `forms`): one type each, no `allOf`, no siblings of `$ref`.

Converters of JSON Schema disagree about combinations of keywords, and grammars know none. So combinations are resolved
here, once, and what is printed of a schema is plain. A form is never tighter than the schema; everything in which it is
looser is noted. The schema has been through `repair`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ..errors import InvalidSchema, Place
from ..metering import spend, working_on
from . import patterns
from .checks import MOST_REPEATS
from .forms import (
    UNRESTRICTED,
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
    bounds,
    constant,
    numbers,
    objects,
    strings,
)
from .intersection import Intersection
from .keywords import SHOWN, TYPES, Schema, resolve, same, types_of
from .regular import ANY, Node, Repeat, Verbatim, choice, limit_length, matches

# Keywords that no grammar can enforce, and the types that they are about.
_NOT_ENFORCED = {
    "not": TYPES,
    "if": TYPES,
    "dependentRequired": ("object",),
    "dependentSchemas": ("object",),
    "dependencies": ("object",),
    "unevaluatedProperties": ("object",),
    "unevaluatedItems": ("array",),
    "contains": ("array",),
    "uniqueItems": ("array",),
    "$dynamicRef": TYPES,
}
_SAYS_NOTHING = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True, "not": False}


class Normalizer:
    """Makes the normal form of one schema, and of what it refers to. What a form does not say is told to `note`."""

    def __init__(self, root: Schema, where: str, note: Note) -> None:
        self._root, self._where, self._note = root, where, note
        self._targets: dict[str, Form | None] = {}  # None while it is being made
        self._intersection = Intersection(self.target, note)
        self._intersect, self._admits = self._intersection.intersect, self._intersection.admits

    def root(self) -> Form:
        return self.form(self._root, self._where)

    def target(self, pointer: str) -> Form | None:
        """What `pointer` leads to; None if that is just being made, or too deep down."""
        if pointer not in self._targets:
            if self._intersection.too_deep:
                return None
            self._targets[pointer] = None
            try:
                place, schema = resolve(self._root, pointer)
            except LookupError as problem:
                raise InvalidSchema(Place(text=self._where), f": {problem.args[0]}") from None
            self._targets[pointer] = self.form(schema, self._where + place)
        return self._targets[pointer]

    def form(self, schema: Schema, where: str) -> Form:
        if isinstance(schema, bool):
            return schema
        working_on(where)
        spend()
        result = self._own(schema, where)
        if "$ref" in schema:
            result = self._intersect(result, Ref(schema["$ref"]), where)
        for index, part in enumerate(schema.get("allOf", ())):
            result = self._intersect(result, self.form(part, f"{where}.allOf[{index}]"), where)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                options = [self.form(part, f"{where}.{key}[{index}]") for index, part in enumerate(schema[key])]
                if key == "oneOf" and not self._intersection.all_disjoint(options):
                    self._note(where, "`oneOf` is taken as `anyOf`: its alternatives may overlap")
                result = self._intersect(result, any_of(options), where)
        return result

    def _own(self, schema: Mapping[str, Any], where: str) -> Form:
        """What the schema says itself, without `$ref`, `allOf`, `anyOf` and `oneOf`."""
        types = types_of(schema)
        for key, concerned in _NOT_ENFORCED.items():
            if key in schema and schema[key] is not _SAYS_NOTHING.get(key) and any(kind in types for kind in concerned):
                self._note(where, f"`{key}` is not enforced")
        forms = [self._typed(kind, schema, where) for kind in types]
        if (
            len(types) == 6
            and "number" in types
            and all(form == UNRESTRICTED[kind] for kind, form in zip(types, forms, strict=True))
        ):
            result: Form = True
        else:
            result = any_of(forms)
        values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
        if values is None:
            return result
        if "enum" in schema and "const" in schema:
            values = [value for value in values if same(value, schema["const"])]
        return any_of(constant(value, where) for value in values if self._admits(result, value))

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
                return NullOrBoolean(where, kind)

    def _strings(self, schema: Mapping[str, Any], where: str) -> Form:
        nodes: list[Node] = []
        if "pattern" in schema and (node := self._pattern(schema["pattern"], f"{where}.pattern")) is not None:
            nodes.append(node)
        if "format" in schema:
            if schema["format"] in patterns.FORMATS:
                nodes.append(patterns.parse(f"^(?:{patterns.FORMATS[schema['format']]})$"))
            else:
                self._note(where, f"`format` {schema['format']!r} is not enforced: it is not one of those known here")
        restricting = tuple(node for node in nodes if node != Repeat(ANY))
        return strings(Strings(where, *self._counts(schema, "Length", where), restricting))

    def _counts(self, schema: Mapping[str, Any], what: str, where: str) -> tuple[int, int | None]:
        """`min…` and `max…`, as far as they are not too large for a grammar; the first has been checked."""
        most = schema.get(f"max{what}")
        if most is not None and most > MOST_REPEATS:
            self._note(where, f"`max{what}` is not enforced: it is above {MOST_REPEATS}")
            most = None
        return int(schema.get(f"min{what}", 0)), None if most is None else int(most)

    def _pattern(self, pattern: str, where: str) -> Node | None:
        try:
            return patterns.parse(pattern)
        except (patterns.UnsupportedPattern, patterns.BadPattern) as problem:
            self._note(where, f"{pattern!r:.60} is not enforced: {problem}")
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
            name: self.form(inner, f"{where}.properties.{name:.{SHOWN}}")
            for name, inner in schema.get("properties", {}).items()
        }
        others = self.form(schema.get("additionalProperties", True), f"{where}.additionalProperties")
        matching: list[tuple[Node, Form]] = []
        for pattern, inner in schema.get("patternProperties", {}).items():
            place = f"{where}.patternProperties.{pattern:.{SHOWN}}"
            node, form = self._pattern(pattern, place), self.form(inner, place)
            if node is None:
                others = any_of([others, form])
            else:
                matching.append((node, form))
        for name in schema.get("required", ()):
            if name not in properties and not any(matches(node, name) for node, _ in matching):
                properties[name] = others
            properties.setdefault(name, True)
        for name in properties:
            for node, form in matching:
                if matches(node, name):
                    properties[name] = self._intersect(properties[name], form, where)
        if "propertyNames" in schema:
            names = self._intersect(
                UNRESTRICTED["string"], self.form(schema["propertyNames"], f"{where}.propertyNames"), where
            )
            properties = {name: form if self._admits(names, name) else False for name, form in properties.items()}
            node = _as_pattern(names)
            if names is False:
                others, matching = False, []
            elif node is not None and not matching:
                matching, others = [(node, others)] if others is not False else [], False
            elif names != UNRESTRICTED["string"] and (matching or others is not False):
                self._note(where, "`propertyNames` is enforced only for the names in `properties`")
        required = tuple(dict.fromkeys(schema.get("required", ())))
        counts = self._counts(schema, "Properties", where)
        return objects(Objects(where, properties, required, tuple(matching), others, *counts))


def _as_pattern(form: Form) -> Node | None:
    """The strings that satisfy `form`, where one pattern says it."""
    match form:
        case Values(values):
            return choice(*map(Verbatim, values))
        case Strings(_, 0, None, ()):
            return None
        case Strings(_, least, most, ()):
            return Repeat(ANY, least, most)
        case Strings(_, least, most, (node,)):
            return limit_length(node, least, most)
        case _:
            return None
