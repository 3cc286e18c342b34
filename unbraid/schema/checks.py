"""Schemas that no constraint can be made of: refused before a grammar is built, with the place and what to change.

A schema that comes here has been through `repair`, so its keywords are well-formed. Refused is what is enormous, has a
pattern that is no regular expression, a reference that leads nowhere or in a circle, or contradicts itself.

The search for contradictions is a lint. The normal form finds out that *nothing* satisfies a schema, but by then the
keywords are gone: bounds are merged, optional parts that fail are dropped. A mistake in an optional property would be
enforced silently. So the common mistakes are looked for here, where the message can still name what to change.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..errors import InvalidSchema
from ..metering import spend, working_on
from . import patterns
from .forms import bounds
from .keywords import (
    CONDITIONS,
    IN_PLACE,
    MOST_BITS,
    SHOWN,
    TYPES,
    Schema,
    children,
    is_number,
    resolve,
    same,
    types_of,
    types_of_value,
)

# Grammars of schemas of this size take about a second; what is larger is a mistake or an attack.
_MOST_BYTES = 1 << 20
_MOST_NODES = 20_000
_MOST_DEPTH = 100  # of JSON values: a schema under `properties` is two deeper than the schema above it
_MOST_PROPERTIES = 1_000
MOST_REPEATS = 100_000


def check(schema: Schema, where: str) -> None:
    """Raise InvalidSchema if `schema` is enormous, cannot be read or contradicts itself."""
    _check_size(schema, where)
    if schema is False:
        raise InvalidSchema(f"{where} is `false`, which no value satisfies; say what the value may be")
    working_on(where)
    nodes = list(_walk(schema, where))
    for place, _, node in nodes:
        if isinstance(node, Mapping):
            _check_limits(place, node)
            _check_patterns(place, node)
    _check_refs(schema, nodes)
    _check_contradictions(schema, nodes)


def _check_size(schema: Schema, where: str) -> None:
    count = 0
    todo: list[tuple[object, int]] = [(schema, 0)]
    while todo:
        value, depth = todo.pop()
        count += 1
        spend()
        if depth > _MOST_DEPTH:
            raise InvalidSchema(f"{where} nests deeper than {_MOST_DEPTH}; put what is deep into `$defs`")
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise InvalidSchema(f"{where} has a key that is no string; JSON knows only strings")
            inner = list(value.values())
        elif isinstance(value, list | tuple):
            inner = list(value)
        else:
            if isinstance(value, int) and value.bit_length() > MOST_BITS:
                raise InvalidSchema(f"{where} holds a number of more than 3,000 digits; make it smaller")
            if not (value is None or isinstance(value, str | bool | int) or is_number(value)):
                raise InvalidSchema(f"{where} holds a {type(value).__name__}, which is no JSON; write it as JSON would")
            continue
        if count + len(todo) + len(inner) > _MOST_NODES:
            raise InvalidSchema(f"{where} holds more than {_MOST_NODES} values; make it smaller")
        todo.extend((item, depth + 1) for item in inner)
    if len(json.dumps(schema, ensure_ascii=False, default=dict)) > _MOST_BYTES:
        raise InvalidSchema(f"{where} is longer than {_MOST_BYTES} characters as JSON; make it smaller")


def _walk(schema: Schema, where: str) -> Iterator[tuple[str, str, Schema]]:
    """Place, keyword and schema of everything in it, parents first."""
    todo: list[tuple[str, str, Schema]] = [(where, "", schema)]
    while todo:
        place, key, node = todo.pop()
        spend()
        yield place, key, node
        if isinstance(node, Mapping):
            todo.extend((f"{place}.{step}", inner_key, inner) for inner_key, step, inner in children(node))


def _check_limits(place: str, node: Mapping[str, Any]) -> None:
    if len(node.get("properties", ())) > _MOST_PROPERTIES:
        raise InvalidSchema(f"{place}.properties are more than {_MOST_PROPERTIES}; group some into objects")
    for key in ("minLength", "minItems", "minProperties"):
        if node.get(key, 0) > MOST_REPEATS:
            raise InvalidSchema(f"{place}.{key} is {node[key]}, too large for a grammar; the most is {MOST_REPEATS}")


def _check_patterns(place: str, node: Mapping[str, Any]) -> None:
    _check_pattern(f"{place}.pattern", node.get("pattern", ""))
    for pattern in node.get("patternProperties", ()):
        _check_pattern(f"{place}.patternProperties.{pattern:.{SHOWN}}", pattern)


def _check_pattern(place: str, pattern: str) -> None:
    try:
        patterns.parse(pattern)
    except patterns.UnsupportedPattern:
        pass  # It is not enforced, which is said where it is printed.
    except patterns.BadPattern as problem:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            raise InvalidSchema(f"{place} {pattern!r:.60} is no regular expression: {problem}") from None


def _check_refs(root: Schema, nodes: list[tuple[str, str, Schema]]) -> None:
    """All references lead somewhere, and none leads back to itself without going down into a value."""
    inside: dict[int, list[Any]] = {}
    for place, _, node in nodes:
        if isinstance(node, Mapping):
            inside[id(node)] = [inner for key in IN_PLACE for inner in node.get(key, ())]
            if "$ref" in node:
                try:
                    inside[id(node)].append(resolve(root, node["$ref"])[1])
                except LookupError as problem:
                    raise InvalidSchema(f"{place}.$ref: {problem.args[0]}") from None
    done: set[int] = set()
    for place, _, node in nodes:
        path: dict[int, Iterator[Any]] = {id(node): iter(inside.get(id(node), ()))} if id(node) not in done else {}
        while path:
            top = next(reversed(path))
            inner = next(path[top], None)
            if inner is None:
                done.add(top)
                path.popitem()
            elif id(inner) in path:
                raise InvalidSchema(f"{place} refers to itself with nothing in between; say what the value is")
            elif id(inner) not in done and isinstance(inner, Mapping):
                path[id(inner)] = iter(inside.get(id(inner), ()))


# --- Contradictions ----------------------------------------------------------------------------------------------

_MAY_FAIL = {*CONDITIONS, "anyOf", "oneOf", "$defs", "definitions", "dependentSchemas", "patternProperties"}
"""Where a schema that nothing satisfies is no mistake: it only rules something out, or is one of many."""


def _check_contradictions(root: Schema, nodes: Sequence[tuple[str, str, Schema]]) -> None:
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


def _contradiction(root: Schema, node: Mapping[str, Any], reasons: Mapping[int, str | None]) -> str | None:
    """Why nothing satisfies `node`, as the end of a sentence that begins with its place; None where nothing is found.
    `reasons` has those of the schemas below."""

    def fails(inner: Any) -> bool:
        return inner is False or reasons.get(id(inner)) is not None

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
    number = str(bound) if isinstance(bound, float) or bound.denominator == 1 else str(float(bound))
    return number if len(number) < 40 else f"{number[:20]}…"


def _allowed_types(node: Mapping[str, Any]) -> frozenset[str]:
    """The types that `type` leaves, also that of `allOf`."""
    types = frozenset(TYPES)
    for inner in [node, *(part for part in node.get("allOf", ()) if isinstance(part, Mapping))]:
        own = set(types_of(inner))
        types &= own | ({"integer"} if "number" in own else set())
    return types - ({"integer"} if "number" in types else frozenset())
