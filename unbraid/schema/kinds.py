"""Which kinds of JSON value an argument may be, by the schema of a tool's parameters.

Formats without quotes need this to tell a string from a number, so the parser asks it for every such argument. Only
types, constants and how they are combined are looked at: what a schema says beyond that does not change how a value is
written. A kind is a type, with integers counted as numbers. Nothing here raises; a schema that contradicts itself, or
refers to nothing, admits all kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..metering import spend
from .keywords import resolve, types_of

STRING = "string"
ANY_KIND = frozenset({STRING, "number", "boolean", "null", "array", "object"})
"""All kinds; also what is assumed where the schema says nothing."""
_BY_TYPE = {kind: frozenset({kind}) for kind in ANY_KIND} | {"integer": frozenset({"number"})}
_SAY_MORE = frozenset({"nullable", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"})
"""What else than its type a schema may say of the kinds."""
ITEMS = "\x00items"
"""What stands for a key where an array's items are meant."""


def kinds_of(parameters: Mapping[str, Any], key: str) -> frozenset[str]:
    """The kinds that the argument `key` may have, by the schema of all the tool's parameters."""
    schema = parameters.get("properties", {}).get(key, parameters.get("additionalProperties", True))
    if type(schema) is dict and _SAY_MORE.isdisjoint(schema) and type(schema.get("type")) is str:  # nearly always
        spend()
        return _BY_TYPE.get(schema["type"], ANY_KIND)
    return kinds_among(parameters, [schema])


def kinds_among(parameters: Mapping[str, Any], schemas: Sequence[object]) -> frozenset[str]:
    """The kinds that one of these schemas admits; all, where there is none."""
    kinds = _Kinds(parameters)
    try:
        return frozenset[str]().union(*map(kinds.of, schemas)) or ANY_KIND
    except RecursionError:  # a long chain of references
        return ANY_KIND


def schemas_inside(parameters: Mapping[str, Any], schemas: Sequence[object], key: str) -> list[object]:
    """What these schemas say about a member; empty where they say nothing."""
    members: dict[int, object] = {}
    for schema in _Kinds(parameters).all_of(schemas):
        if key == ITEMS:
            items = schema.get("items")
            inner = [*schema.get("prefixItems", ()), *(items if isinstance(items, list) else [items])]
        else:
            inner = [schema.get("properties", {}).get(key, schema.get("additionalProperties"))]
        members |= {id(one): one for one in inner if isinstance(one, Mapping)}
    return list(members.values())


def keys_inside(parameters: Mapping[str, Any], schemas: Sequence[object]) -> list[str]:
    """The members that one of these schemas names."""
    every = _Kinds(parameters).all_of(schemas)
    return list(dict.fromkeys(key for schema in every for key in schema.get("properties", {})))


class _Kinds:
    """The kinds that a schema admits, as far as its types tell."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.known: dict[str, frozenset[str]] = {}
        """What references lead to. One that leads to itself says nothing, so schemas may go in circles."""

    def of(self, schema: object) -> frozenset[str]:
        spend()
        kinds = ANY_KIND
        if not isinstance(schema, Mapping):
            return kinds
        if "$ref" in schema:
            kinds &= self._referred(schema["$ref"])
        if "type" in schema:
            kinds &= {"number" if name == "integer" else name for name in types_of(schema)}
        if "enum" in schema:
            kinds &= {kind_of(value) for value in schema["enum"]}
        if "const" in schema:
            kinds &= {kind_of(schema["const"])}
        for alternatives in ("anyOf", "oneOf"):
            if schema.get(alternatives):
                kinds &= frozenset[str]().union(*map(self.of, schema[alternatives]))
        for one in schema.get("allOf", ()):
            kinds &= self.of(one)
        return kinds

    def all_of(self, schemas: Iterable[object]) -> Iterator[Mapping[str, Any]]:
        """These schemas, and all that they refer to or are made of."""
        seen: set[int] = set()
        todo = list(schemas)
        while todo:
            schema = todo.pop(0)
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            spend()
            yield schema
            if "$ref" in schema:
                todo.append(self._target(schema["$ref"]))
            for parts in ("anyOf", "oneOf", "allOf"):
                todo += schema.get(parts, ())

    def _referred(self, reference: str) -> frozenset[str]:
        if reference not in self.known:
            self.known[reference] = ANY_KIND
            self.known[reference] = self.of(self._target(reference))
        return self.known[reference]

    def _target(self, reference: str) -> object:
        """The schema that a reference points to; None where it points to nothing here."""
        try:
            return resolve(self.root, reference)[1]
        except LookupError:
            return None


def kind_of(value: object) -> str:
    """Which kind of JSON value this is."""
    if value is None:
        return "null"
    for types, kind in ((bool, "boolean"), (int | float, "number"), (str, STRING), (list, "array")):
        if isinstance(value, types):
            return kind
    return "object"
