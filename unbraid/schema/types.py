"""The `type` keyword of JSON Schema, and the types of values: the one place that reads them.

`type` may be a name or a list of names, `nullable` (of OpenAPI) adds null, and every integer is a number. Type names
that are no JSON Schema but are common in tool definitions (`float`, `dict`, `STRING`) are translated by `read_type`;
`repair` uses that once, so that everybody else sees the seven real names only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

Schema = bool | Mapping[str, Any]

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_MEANT = {
    "null": "none nil nonetype undefined void",
    "boolean": "bool",
    "integer": "int int32 int64 uint uint32 uint64 long short",
    "number": "float float32 float64 double decimal real numeric",
    "string": "str text char unicode",
    "array": "list tuple set frozenset sequence",
    "object": "dict dictionary map mapping hash record struct json",
}
_NAMES = {name: name for name in TYPES} | {name: meant for meant, names in _MEANT.items() for name in names.split()}
_generic = re.compile(r"(\w+)\s*[\[<].*[\]>]", re.DOTALL).fullmatch  # `list[str]`, `Array<string>`


def read_type(value: object) -> list[str] | None:
    """The types that a `type` keyword means, whatever it was written as; None where it says nothing readable."""
    if isinstance(value, str):
        name = value.strip().lower()
        generic = _generic(name)
        found = _NAMES.get(generic[1] if generic else name)
        return None if found is None else [found]
    if not isinstance(value, list | tuple) or not value:
        return None
    types: dict[str, None] = {}
    for one in value:
        meant = read_type(one) if isinstance(one, str) else None
        if meant is None:
            return None
        types.update(dict.fromkeys(meant))
    return list(types)


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The types that `type` and `nullable` admit, in the order of the schema; all where they say nothing. Where numbers
    are admitted, integers are not named as well."""
    named = schema.get("type", TYPES)
    types = dict.fromkeys([named] if isinstance(named, str) else named)
    if schema.get("nullable") is True:
        types["null"] = None
    if "number" in types:
        types.pop("integer", None)
    return tuple(types)


def types_of_value(value: object) -> frozenset[str]:
    """The types that a JSON value has: 1 and 1.0 are an integer and a number."""
    if isinstance(value, float) and value.is_integer():
        return frozenset({"integer", "number"})
    for kind, found in (
        (bool, "boolean"),
        (int, "integer number"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (Mapping, "object"),
    ):
        if isinstance(value, kind):
            return frozenset(found.split())
    return frozenset({"null"})


def is_number(value: object) -> bool:
    """Whether it is a JSON number: no boolean, and finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1, but 1.0 is."""
    return json.dumps(one, sort_keys=True, default=dict) == json.dumps(other, sort_keys=True, default=dict) or (
        is_number(one) and is_number(other) and bool(one == other)
    )
