"""The request's tools: checked once, so that what is wrong with them is said before a model runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import InvalidTools, about

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MANY_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MOST_DEPTH = 200


class Tools(Mapping[str, Mapping[str, Any]]):
    """Function name to the JSON schema of its parameters.

    Takes what chat APIs take: `{"type": "function", "function": {"name": …, "parameters": …}}`, or the inner part.
    """

    def __init__(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        if isinstance(definitions, str | bytes | Mapping) or not isinstance(definitions, Iterable):
            raise InvalidTools(f"tools must be a list of function definitions, not {type(definitions).__name__}")
        self._parameters: dict[str, Mapping[str, Any]] = {}
        self._strict: set[str] = set()
        for index, definition in enumerate(definitions):
            with about(f"tools[{index}]"):
                name, parameters, strict = _function(index, definition)
            if self._parameters.get(name, parameters) != parameters:
                raise InvalidTools(
                    f"tools[{index}]: {name!r} is defined twice, with different parameters", field=f"tools[{index}]"
                )
            self._parameters[name] = parameters
            if strict:
                self._strict.add(name)

    def strict(self, name: str) -> bool:
        """Whether the arguments must follow the schema, where the engine can see to it."""
        return name in self._strict

    def copy(self) -> Tools:
        """The same tools, which no longer change with the definitions that they were made of."""
        other = Tools([])
        other._parameters, other._strict = copy.deepcopy(self._parameters), set(self._strict)
        return other

    def only(self, names: Iterable[str]) -> Tools:
        """These of the tools."""
        some = Tools([])
        some._parameters = {name: self._parameters[name] for name in names}
        some._strict = self._strict & set(names)
        return some

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def _function(index: int, definition: object) -> tuple[str, Mapping[str, Any], bool]:
    where = f"tools[{index}]"
    if not isinstance(definition, Mapping):
        raise InvalidTools(f"{where} must be an object, not {type(definition).__name__}")
    kind = definition.get("type", "function")
    if kind != "function":
        raise InvalidTools(f'{where}: only tools of type "function" are known, not {kind!r}')
    function = definition
    if "function" in definition:
        function, where = definition["function"], f"{where}.function"
        if not isinstance(function, Mapping):
            raise InvalidTools(f"{where} must be an object, not {type(function).__name__}", field=where)
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidTools(f"{where} has no name: give it a non-empty string", field=f"{where}.name")
    path, where = where, f"{where} ({name!r})"
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {}
    with about(f"{path}.parameters"):
        _check_schema(parameters, f"{where}.parameters", 0)
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise InvalidTools(f'{where}.parameters must be a JSON schema of type "object"')
    strict = function.get("strict")
    if strict not in (None, True, False):
        raise InvalidTools(f"{where}.strict must be true or false, not {strict!r}", field=f"{path}.strict")
    return name, parameters, bool(strict)


def _check_schema(schema: object, where: str, depth: int) -> None:
    """The mistakes that people make in schemas. What only a validator can tell is left to the validators."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise InvalidTools(f"{where} must be a JSON schema (an object or a boolean), not {type(schema).__name__}")
    if depth > _MOST_DEPTH:
        raise InvalidTools(f"{where} nests deeper than {_MOST_DEPTH}")
    types = schema.get("type", [])
    for kind in types if isinstance(types, list) else [types]:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise InvalidTools(f"{where}.type: {kind!r} is no JSON schema type; use one of {', '.join(sorted(_TYPES))}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise InvalidTools(f"{where}.required must be a list of property names")
    if not isinstance(schema.get("enum", []), list):
        raise InvalidTools(f"{where}.enum must be a list")
    if not isinstance(schema.get("$ref", ""), str):
        raise InvalidTools(f"{where}.$ref must be a string")
    for key in _ONE_SCHEMA:
        # Before draft 2020, `items` could be a list of schemas.
        for inner in schema[key] if isinstance(schema.get(key), list) else [schema.get(key, True)]:
            _check_schema(inner, f"{where}.{key}", depth + 1)
    for key in _MANY_SCHEMAS:
        inners = schema.get(key, [])
        if not isinstance(inners, list):
            raise InvalidTools(f"{where}.{key} must be a list of schemas")
        for i, inner in enumerate(inners):
            _check_schema(inner, f"{where}.{key}[{i}]", depth + 1)
    for key in _NAMED_SCHEMAS:
        named = schema.get(key, {})
        if not isinstance(named, Mapping):
            raise InvalidTools(f"{where}.{key} must be an object of schemas")
        for name, inner in named.items():
            _check_schema(inner, f"{where}.{key}.{name}", depth + 1)
