"""Schemas that no constraint can be made of: refused before a grammar is built, with the place and what to change.

A schema that comes here has been through `repair`, so its keywords are well-formed. Refused is what is enormous, has a
pattern that is no regular expression, a reference that leads nowhere or in a circle, or contradicts itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InvalidSchema
from ..metering import spend, working_on
from . import patterns
from .contradictions import check_contradictions
from .keywords import IN_PLACE, SHOWN, children
from .references import resolve
from .types import Schema, is_number

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
    check_contradictions(schema, nodes)


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
