"""Contradictions that can be seen in the keywords of one schema, said in terms of these keywords.

This is a lint. The normal form finds out that *nothing* satisfies a schema, but by then the keywords are gone: bounds
are merged, optional parts that fail are dropped. A mistake in an optional property would be enforced silently. So the
common ones are looked for here, where the message can still name what to change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..errors import InvalidSchema
from ..metering import spend
from .bounds import bounds
from .keywords import CONDITIONS
from .references import resolve
from .types import TYPES, Schema, same, types_of, types_of_value

_MAY_FAIL = {*CONDITIONS, "anyOf", "oneOf", "$defs", "definitions", "dependentSchemas", "patternProperties"}
"""Where a schema that nothing satisfies is no mistake: it only rules something out, or is one of many."""


def check_contradictions(root: Schema, nodes: Sequence[tuple[str, str, Schema]]) -> None:
    """Raise InvalidSchema for the first of these nodes (place, keyword, schema; parents first) that contradicts itself,
    unless it stands where it may."""
    reasons: dict[int, str | None] = {}
    for _ in range(4):  # so that what a reference leads to counts too, through three references at most
        before = sum(reason is not None for reason in reasons.values())
        for _, _, node in reversed(nodes):  # children first
            if isinstance(node, Mapping):
                reasons[id(node)] = reasons.get(id(node)) or _contradiction(root, node, reasons)
        if sum(reason is not None for reason in reasons.values()) == before:
            break
    for place, key, node in reversed(nodes):
        reason = reasons.get(id(node)) if isinstance(node, Mapping) else None
        if reason and key not in _MAY_FAIL:
            raise InvalidSchema(f"{place}{reason}")


def _contradiction(root: Schema, node: Mapping[str, Any], known: Mapping[int, str | None]) -> str | None:
    """Why nothing satisfies `node`, as the end of a sentence that begins with its place; None where nothing is found.
    `known` has the reasons of the schemas below."""

    def fails(inner: Any) -> bool:
        return inner is False or known.get(id(inner)) is not None

    spend(1 + len(node.get("enum", ())))
    types = _allowed_types(node)
    for name in ("Length", "Items", "Properties"):
        least, most = node.get(f"min{name}", 0), node.get(f"max{name}", math.inf)
        kind = {"Length": "string", "Items": "array", "Properties": "object"}[name]
        if least > most and types == {kind}:
            return f": min{name} ({least}) is above max{name} ({most}); lower the one or raise the other"
    if types and types <= {"integer", "number"}:
        low, high, open_low, open_high = bounds(node)
        if low > high or (low == high and (open_low or open_high)):
            return f": no number is between {_shown(low)} and {_shown(high)}; change the minimum or the maximum"
        if "integer" in types and not types - {"integer"} and -math.inf < low and high < math.inf:
            first = math.floor(low) + 1 if open_low else math.ceil(low)
            last = math.ceil(high) - 1 if open_high else math.floor(high)
            if first > last:
                return f": no integer is between {_shown(low)} and {_shown(high)}; change the minimum or the maximum"
    values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else None
    if values is not None:
        if not values:
            return ".enum is empty; list the values that are allowed"
        if "const" in node and not any(same(value, node["const"]) for value in values):
            return ".const is not among the values of enum; remove one of the two"
        if not any(types_of_value(value) & types for value in values):
            key = "enum" if "enum" in node else "const"
            return f": no value of {key} is of type {node.get('type')!r}; change the type or the values"
    if not types:
        return ".type allows nothing, together with allOf; make the types agree"
    if types == {"object"}:
        properties, others = node.get("properties", {}), node.get("additionalProperties", True)
        named = {
            name: properties.get(name, True if "patternProperties" in node else others)
            for name in node.get("required", ())
        }
        for name, inner in named.items():
            if fails(inner):
                how = "can have no value" if name in properties else "is not in `properties`, and no others are allowed"
                return f".required: {name!r} {how}; add a schema for it, or do not require it"
        if len(named) > node.get("maxProperties", math.inf):
            return f": {len(named)} properties are required, but maxProperties is {node['maxProperties']}; raise it"
    for key in ("anyOf", "oneOf"):
        if key in node and all(fails(inner) for inner in node[key]):
            return f".{key}: every alternative contradicts itself; correct at least one"
    for index, inner in enumerate(node.get("allOf", ())):
        if fails(inner):
            return f".allOf[{index}] admits nothing; correct or remove it"
    if "$ref" in node and fails(resolve(root, node["$ref"])[1]):
        return f".$ref leads to {node['$ref']!r}, which admits nothing; correct it there"
    return None


def _shown(bound: Fraction | float) -> str:
    return str(bound) if isinstance(bound, float) or bound.denominator == 1 else str(float(bound))


def _allowed_types(node: Mapping[str, Any]) -> frozenset[str]:
    """The types that `type` leaves, also that of `allOf`."""
    types = frozenset(TYPES)
    for inner in [node, *(part for part in node.get("allOf", ()) if isinstance(part, Mapping))]:
        own = set(types_of(inner))
        types &= own | ({"integer"} if "number" in own else set())
    return types - ({"integer"} if "number" in types else frozenset())
