"""What a tool's schema says about one argument: which kinds of JSON value it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRING = "string"
ANY_KIND = frozenset({STRING, "number", "boolean", "null", "array", "object"})
"""All kinds; also what is assumed where the schema says nothing."""


def kinds_of(parameters: Mapping[str, Any], key: str) -> frozenset[str]:
    """The kinds that the argument `key` may have, by the schema of all the tool's parameters. Integers are numbers."""
    schema = parameters.get("properties", {}).get(key, parameters.get("additionalProperties", True))
    return _Kinds(parameters).of(schema) or ANY_KIND


class _Kinds:
    """The kinds that a schema admits, as far as its types tell."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.known: dict[str, frozenset[str]] = {}
        """What references lead to. One that leads to itself says nothing; so schemas may go in circles."""

    def of(self, schema: object) -> frozenset[str]:
        kinds = ANY_KIND
        if not isinstance(schema, Mapping):
            return kinds
        if "$ref" in schema:
            kinds &= self._referred(schema["$ref"])
        if "type" in schema:
            types = schema["type"]
            types = types if isinstance(types, list) else [types]
            kinds &= {"number" if name == "integer" else name for name in types}
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

    def _referred(self, reference: str) -> frozenset[str]:
        if reference not in self.known:
            self.known[reference] = ANY_KIND
            self.known[reference] = self.of(self._at(reference))
        return self.known[reference]

    def _at(self, reference: str) -> object:
        """The schema that a local reference (`#/$defs/city`) points to; None where it points to nothing here."""
        found: object = self.root
        if not reference.startswith("#"):
            return None
        for part in reference.split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def kind_of(value: object) -> str:
    """Which kind of JSON value this is."""
    if value is None:
        return "null"
    for types, kind in ((bool, "boolean"), (int | float, "number"), (str, STRING), (list, "array")):
        if isinstance(value, types):
            return kind
    return "object"
