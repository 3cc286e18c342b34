"""What is wrong with a JSON schema, said before a grammar is made of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

from unbraid.errors import UnbraidError

from ..constraints.language import Schema
from . import patterns

# The converters take schemas of this size in about a second; what is larger is a mistake or an attack.
_MOST_BYTES = 1 << 20
_MOST_NODES = 20_000
_MOST_DEPTH = 100  # of JSON values: a schema under `properties` is two deeper than the schema above it
_MOST_PROPERTIES = 1_000
MOST_REPEATS = 100_000

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_BESIDE = ("not", "if", "then", "else", "contains", "unevaluatedItems", "unevaluatedProperties")
ONE_SCHEMA = ("items", "additionalItems", "additionalProperties", "propertyNames", *_BESIDE)
MANY_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_PLACE = ("anyOf", "oneOf", "allOf")
# A schema that nothing satisfies is a mistake, unless it stands where it only rules something out or is one of many.
_MAY_FAIL = {*_BESIDE, "anyOf", "oneOf", "$defs", "definitions", "dependentSchemas", "patternProperties"}


class InvalidSchema(UnbraidError):
    """A JSON schema that no constraint can be made of; the message says where and what to change."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)  # type: ignore[operator,call-overload]


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "a number": (_is_number, "minimum maximum"),
    "a number (or, in old drafts, a boolean)": (
        lambda value: isinstance(value, bool) or _is_number(value),
        "exclusiveMinimum exclusiveMaximum",
    ),
    "a number above zero": (lambda value: _is_number(value) and value > 0, "multipleOf"),
    "a whole number, not negative": (
        _is_count,
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    ),
    "a string": (lambda value: isinstance(value, str), "pattern format $ref"),
    "a list of property names": (_is_names, "required"),
    "a list": (lambda value: isinstance(value, list), "enum"),
    "true or false": (lambda value: isinstance(value, bool), "uniqueItems nullable"),
}
_KEYWORDS = {key: (kind, test) for kind, (test, keys) in _KINDS.items() for key in keys.split()}


def check(schema: object, where: str) -> None:
    """Raise InvalidSchema if `schema` is malformed, enormous or contradicts itself."""
    _check_size(schema, where)
    if not isinstance(schema, bool | Mapping):
        raise InvalidSchema(f"{where} must be a JSON schema (an object or a boolean), not {type(schema).__name__}")
    if schema is False:
        raise InvalidSchema(f"{where} is `false`, which no value satisfies; say what the value may be")
    nodes = list(_walk(schema, where))
    for place, _, node in nodes:
        _check_keywords(place, node)
    _check_refs(schema, nodes)
    _check_contradictions(schema, nodes)


def _check_size(schema: object, where: str) -> None:
    count, todo = 0, [(schema, 0)]
    while todo:
        value, depth = todo.pop()
        count += 1
        if depth > _MOST_DEPTH:
            raise InvalidSchema(f"{where} nests deeper than {_MOST_DEPTH}; put what is deep into `$defs`")
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise InvalidSchema(f"{where} has a key that is no string; JSON knows only strings")
            inner = list(value.values())
        elif isinstance(value, list | tuple):
            inner = list(value)
        else:
            if not (value is None or isinstance(value, str | bool | int) or _is_number(value)):
                raise InvalidSchema(f"{where} holds a {type(value).__name__}, which is no JSON; write it as JSON would")
            continue
        if count + len(todo) + len(inner) > _MOST_NODES:
            raise InvalidSchema(f"{where} holds more than {_MOST_NODES} values; make it smaller")
        todo.extend((item, depth + 1) for item in inner)
    if len(json.dumps(schema, ensure_ascii=False, default=dict)) > _MOST_BYTES:
        raise InvalidSchema(f"{where} is longer than {_MOST_BYTES} characters as JSON; make it smaller")


def children(node: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Keyword, place and sub-schema of all that are directly below. Things of a wrong type are passed over."""
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
                yield key, f"{key}.{name}", inner


def _walk(schema: Schema, where: str) -> Iterator[tuple[str, str, Schema]]:
    """Place, keyword and schema of everything in it, parents first."""
    todo: list[tuple[str, str, Any]] = [(where, "", schema)]
    while todo:
        place, key, node = todo.pop()
        if not isinstance(node, bool | Mapping):
            raise InvalidSchema(f"{place} must be a JSON schema (an object or a boolean), not {type(node).__name__}")
        yield place, key, node
        if isinstance(node, Mapping):
            todo.extend((f"{place}.{step}", inner_key, inner) for inner_key, step, inner in children(node))


def _check_keywords(place: str, node: Schema) -> None:
    if isinstance(node, bool):
        return
    types = node.get("type", [])
    for kind in types if isinstance(types, list) else [types]:
        if not isinstance(kind, str) or kind not in TYPES:
            raise InvalidSchema(f"{place}.type: {kind!r} is no JSON schema type; use one of {', '.join(sorted(TYPES))}")
    for key, value in node.items():
        if key in _KEYWORDS and not _KEYWORDS[key][1](value):
            raise InvalidSchema(f"{place}.{key} must be {_KEYWORDS[key][0]}, not {value!r:.40}")
        if key in MANY_SCHEMAS and (not isinstance(value, list) or (not value and key != "prefixItems")):
            raise InvalidSchema(f"{place}.{key} must be a list of schemas that is not empty")
        if key in NAMED_SCHEMAS and not isinstance(value, Mapping):
            raise InvalidSchema(f"{place}.{key} must be an object of schemas, not {type(value).__name__}")
        if key == "properties" and len(value) > _MOST_PROPERTIES:
            raise InvalidSchema(f"{place}.properties are more than {_MOST_PROPERTIES}; group some into objects")
        if key in ("minLength", "minItems", "minProperties") and value > MOST_REPEATS:
            raise InvalidSchema(f"{place}.{key} is {value}, too large for a grammar; the most is {MOST_REPEATS}")
    _check_pattern(f"{place}.pattern", node.get("pattern", ""))
    for pattern in node.get("patternProperties", ()):
        _check_pattern(f"{place}.patternProperties.{pattern}", pattern)


def _check_pattern(place: str, pattern: str) -> None:
    try:
        patterns.parse(pattern)
    except patterns.UnsupportedPattern:
        pass  # Unenforced, when it is fitted.
    except patterns.BadPattern as problem:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            raise InvalidSchema(f"{place} {pattern!r:.60} is no regular expression: {problem}") from None


def resolve(root: Schema, ref: str) -> tuple[str, Schema]:
    """The place (`.$defs.a`) and the schema that a local reference is about."""
    if not ref.startswith("#"):
        raise LookupError(f"{ref!r} is not local; copy that schema into `$defs` and refer to `#/$defs/…`")
    pointer = unquote(ref[1:])
    if pointer and not pointer.startswith("/"):
        raise LookupError(f"{ref!r} is an anchor; write it as a path, `#/$defs/…`")
    place, node = "", root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and step in node:
            place, node = f"{place}.{step}", node[step]
        elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            place, node = f"{place}[{int(step)}]", node[int(step)]
        else:
            raise LookupError(f"{ref!r} leads nowhere: there is no {step!r} in it")
    if not isinstance(node, bool | Mapping):
        raise LookupError(f"{ref!r} leads to something that is no schema")
    return place, node


def _check_refs(root: Schema, nodes: list[tuple[str, str, Schema]]) -> None:
    """All references lead somewhere, and none leads back to itself without going down into a value."""
    inside: dict[int, list[Any]] = {}
    for place, _, node in nodes:
        if isinstance(node, Mapping):
            inside[id(node)] = [inner for key in _IN_PLACE for inner in node.get(key, ())]
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


def _check_contradictions(root: Schema, nodes: list[tuple[str, str, Schema]]) -> None:
    reasons: dict[int, str | None] = {}
    for _ in range(4):  # so that what a reference leads to counts too, through three references at most
        before = sum(reason is not None for reason in reasons.values())
        for _, _, node in reversed(nodes):  # children first
            if isinstance(node, Mapping):
                reasons[id(node)] = reasons.get(id(node)) or contradiction(root, node, reasons)
        if sum(reason is not None for reason in reasons.values()) == before:
            break
    for place, key, node in reversed(nodes):
        reason = reasons.get(id(node)) if isinstance(node, Mapping) else None
        if reason and key not in _MAY_FAIL:
            raise InvalidSchema(f"{place}{reason}")


def contradiction(root: Schema, node: Mapping[str, Any], known: Mapping[int, str | None]) -> str | None:
    """Why nothing satisfies `node` (as the end of a sentence that begins with its place), as far as is easily seen."""

    def fails(inner: Any) -> bool:
        return inner is False or known.get(id(inner)) is not None

    types = allowed_types(node)
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
        if not any(type_of(value) & types for value in values):
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


def allowed_types(node: Mapping[str, Any]) -> frozenset[str]:
    """The types that `type` leaves, also that of `allOf` and of `nullable`."""
    types = frozenset(TYPES)
    for inner in [node, *(part for part in node.get("allOf", ()) if isinstance(part, Mapping))]:
        kinds = inner.get("type", list(TYPES))
        own = set(kinds if isinstance(kinds, list) else [kinds])
        own |= {"integer"} if "number" in own else set()
        types &= own | ({"null"} if inner.get("nullable") is True else set())
    return types - ({"integer"} if "number" in types else frozenset())


def bounds(node: Mapping[str, Any]) -> tuple[Fraction | float, Fraction | float, bool, bool]:
    """Lowest and highest value, and whether these themselves are excluded. (In draft 4, exclusive… were booleans.)"""
    low, high, open_low, open_high = -math.inf, math.inf, False, False
    lows = [(node.get("minimum"), node.get("exclusiveMinimum") is True)]
    highs = [(node.get("maximum"), node.get("exclusiveMaximum") is True)]
    lows += [(node["exclusiveMinimum"], True)] if _is_number(node.get("exclusiveMinimum")) else []
    highs += [(node["exclusiveMaximum"], True)] if _is_number(node.get("exclusiveMaximum")) else []
    result: list[tuple[Fraction | float, bool]] = [(low, open_low), (high, open_high)]
    for side, found in enumerate((lows, highs)):
        for value, is_open in found:
            if value is not None:
                exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
                current, current_open = result[side]
                stricter = exact > current if side == 0 else exact < current
                if stricter or (exact == current and is_open and not current_open):
                    result[side] = exact, is_open
    return result[0][0], result[1][0], result[0][1], result[1][1]


def type_of(value: object) -> frozenset[str]:
    if isinstance(value, float) and value == int(value):
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


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return json.dumps(one, sort_keys=True, default=dict) == json.dumps(other, sort_keys=True, default=dict) or (
        _is_number(one) and _is_number(other) and bool(one == other)
    )
