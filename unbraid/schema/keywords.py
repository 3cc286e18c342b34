"""The vocabulary of JSON Schema: which keywords hold schemas, and what the others must be.

Whoever walks over a schema uses `children`. `repair` uses the tables to leave out what is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .types import is_number

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
