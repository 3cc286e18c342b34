"""The keywords of JSON Schema, each read in one place: `type`, those that hold schemas, `$ref`.

Type names that are no JSON Schema but are common in tool definitions (`float`, `dict`, `STRING`) are translated by
`read_type`. `repair` does so once, so that everybody else sees the seven real names only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = bool | Mapping[str, Any]

# --- `type`, and `nullable` of OpenAPI. Every integer is a number. ----------------------------------------------

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
        kind = _NAMES.get(generic[1] if generic else name)
        return None if kind is None else [kind]
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
    for kind, names in (
        (bool, "boolean"),
        (int, "integer number"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (Mapping, "object"),
    ):
        if isinstance(value, kind):
            return frozenset(names.split())
    return frozenset({"null"})


def is_number(value: object) -> bool:
    """Whether it is a JSON number: no boolean, and finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1, but 1.0 is."""
    return json.dumps(one, sort_keys=True, default=dict) == json.dumps(other, sort_keys=True, default=dict) or (
        is_number(one) and is_number(other) and bool(one == other)
    )


# --- Keywords that hold schemas, and what the others must be -----------------------------------------------------

CONDITIONS = ("not", "if", "then", "else", "contains", "unevaluatedItems", "unevaluatedProperties")
"""Keywords with a schema that the value need not satisfy itself."""
ONE_SCHEMA = ("items", "additionalItems", "additionalProperties", "propertyNames", *CONDITIONS)
MANY_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
IN_PLACE = ("anyOf", "oneOf", "allOf")
"""Keywords with schemas of the value itself, not of a part of it."""


def _is_count(value: object) -> bool:
    return is_number(value) and value >= 0 and value == int(value)  # type: ignore[operator,call-overload]


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "a number": (is_number, "minimum maximum"),
    "a number or a boolean": (
        lambda value: isinstance(value, bool) or is_number(value),  # a boolean before draft 6
        "exclusiveMinimum exclusiveMaximum",
    ),
    "a number above zero": (lambda value: is_number(value) and value > 0, "multipleOf"),
    "a whole number, not negative": (
        _is_count,
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    ),
    "a string": (lambda value: isinstance(value, str), "pattern format $ref"),
    "a list": (lambda value: isinstance(value, list | tuple), "enum"),
    "true or false": (lambda value: isinstance(value, bool), "uniqueItems nullable"),
}
SHAPES = {key: (shape, test) for shape, (test, keys) in _SHAPES.items() for key in keys.split()}
"""What the value of a keyword must be, in words and as a test."""


MOST_BITS = 10_000
"""Of an integer: some 3,000 digits. Python does not write much larger ones."""
SHOWN = 100
"""How much of a name stands in a place. Places are kept for every part of a schema, and a name may be a megabyte."""


def children(node: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Keyword, place and schema of all schemas that are directly below."""
    for key in ONE_SCHEMA:
        if key in node and not isinstance(node[key], list):
            yield key, key, node[key]
    for key in (*MANY_SCHEMAS, "items"):  # before draft 2020, `items` could be a list
        if isinstance(node.get(key), list):
            for index, inner in enumerate(node[key]):
                yield key, f"{key}[{index}]", inner
    for key in NAMED_SCHEMAS:
        if isinstance(node.get(key), Mapping):
            for name, inner in node[key].items():
                yield key, f"{key}.{name:.{SHOWN}}", inner


# --- `$ref` ------------------------------------------------------------------------------------------------------


def resolve(root: Schema, ref: str) -> tuple[str, Schema]:
    """The place (`.$defs.a`) and the schema that a local reference (`#/$defs/a`, a JSON pointer) leads to. Raises
    LookupError, which says what is wrong.

    References by addresses and names have become pointers (`references`). Those to other documents are not followed. A
    reference may lead to itself; whoever follows it must see to it that this ends.
    """
    if not ref.startswith("#"):
        raise LookupError(f"{ref!r} is not local; copy that schema into `$defs` and refer to `#/$defs/…`")
    pointer = ref[1:]
    if "%" in pointer:
        from urllib.parse import unquote  # which few need

        pointer = unquote(pointer)
    if pointer and not pointer.startswith("/"):
        raise LookupError(f"{ref!r} leads nowhere: no `$anchor` has that name")
    place, node = "", root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and step in node:
            place, node = f"{place}.{step:.{SHOWN}}", node[step]
        elif isinstance(node, list) and step.isdecimal() and len(step) < 10 and int(step) < len(node):
            place, node = f"{place}[{int(step)}]", node[int(step)]
        else:
            raise LookupError(f"{ref!r} leads nowhere: there is no {step!r} in it")
    if not isinstance(node, bool | Mapping):
        raise LookupError(f"{ref!r} leads to something that is no schema")
    return place, node
