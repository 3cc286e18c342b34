"""Malformed schemas, read as what their authors meant: the door through which every schema comes in.

People write `"type": "float"`, `"required": true` or `"properties": []`, and libraries export such things. A keyword
that can be read is rewritten as JSON Schema has it; one that cannot is left out, so that it restricts nothing. Each
change is a `Repair`, and the caller warns of it. What is well-formed is never refused or changed here: whether it can
be satisfied is for `checks` to say.

The caller's schema is never changed. What needs no repair is returned as the same object, so that nothing is copied.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidSchema, SchemaWarning
from ..metering import spend, working_on
from .keywords import MANY_SCHEMAS, MOST_BITS, NAMED_SCHEMAS, ONE_SCHEMA, SHAPES, SHOWN, TYPES, Schema, read_type
from .references import ADDRESSES, is_pointer, with_pointers

_MOST_DEPTH = 200
_MOST_WARNINGS = 8  # of one request, so that none of them floods the log
_MOST_REMEMBERED = 1_000
_shown_before: dict[str | tuple[str, type[Warning], int], int] = {}
_NOTHING = object()
"""Stands for a keyword that is left out."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A change that was made to a schema."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def repair(schema: object, where: str) -> tuple[Schema, list[Repair]]:
    """The schema without what is malformed in it or too deep to be read, and what was changed. Raises InvalidSchema if
    it is no schema at all."""
    if not isinstance(schema, bool | Mapping):
        raise InvalidSchema(f"{where} must be a JSON schema (an object or a boolean), not {type(schema).__name__}")
    repairer = _Repairer()
    repaired = repairer.schema(schema, where, 0)
    return with_pointers(repaired) if repairer.has_addresses else repaired, repairer.repairs


def warn(repairs: Iterable[Repair]) -> None:
    """Warn of each change, on behalf of the code that called this library.

    Python's default filter shows the same mistake once. What was shown is remembered here, within bounds: Python's own
    memory would grow with every name that a client makes up.
    """
    frame = sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    texts = [str(repair) for repair in repairs]
    if len(texts) > _MOST_WARNINGS:
        texts[_MOST_WARNINGS:] = [f"{len(texts) - _MOST_WARNINGS} more mistakes in the same schemas were repaired"]
    if len(_shown_before) > _MOST_REMEMBERED:
        _shown_before.clear()
    for text in texts:
        warnings.warn_explicit(text, SchemaWarning, frame.f_code.co_filename, frame.f_lineno, registry=_shown_before)


class _Repairer:
    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self.has_addresses = False
        """Whether something has an address or a name, or is referred to by one."""
        self._done: dict[int, Schema] = {}  # by id, so that schemas that share parts cost no more than their parts

    def _note(self, where: str, what: str) -> None:
        self.repairs.append(Repair(where, what))

    def schema(self, schema: object, where: str, depth: int) -> Schema:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            return self._no_schema(schema, where)
        if id(schema) in self._done:
            return self._done[id(schema)]
        if depth > _MOST_DEPTH:
            self._note(f"{where:.200}…", f"nests deeper than {_MOST_DEPTH}; read as any value")
            self._done[id(schema)] = True  # so that one that holds itself, more than once, comes to an end
            return True
        working_on(where)
        spend(1 + len(schema))
        self.has_addresses |= not is_pointer(schema.get("$ref")) or not ADDRESSES.isdisjoint(schema)
        changed: dict[str, Any] = {}
        for key, value in schema.items():
            place = f"{where}.{key:.{SHOWN}}"
            repaired: Any
            if key == "type":
                repaired = self._type(value, place)
            elif key == "required":
                repaired = self._required(value, place)
            elif key in SHAPES:
                repaired = self._shaped(key, value, place)
            elif key in MANY_SCHEMAS or (key == "items" and isinstance(value, list)):
                repaired = self._many(key, value, place, depth)
            elif key in ONE_SCHEMA:
                repaired = self.schema(value, place, depth + 1)
            elif key in NAMED_SCHEMAS:
                repaired = self._named(value, place, depth)
            else:
                continue
            if repaired is not value:
                changed[key] = repaired
        result = schema
        if changed:
            merged = {key: changed.get(key, value) for key, value in schema.items()}
            result = {key: value for key, value in merged.items() if value is not _NOTHING}
        self._done[id(schema)] = result
        return result

    def _no_schema(self, value: object, where: str) -> Schema:
        """What stands where a schema should: the name of a type, or something that means nothing."""
        types = read_type(value)
        if types is None:
            self._note(where, f"{_shown(value)} is no schema; read as any value")
            return True
        self._note(where, f'{_shown(value)} is no schema; read as {{"type": {_named_types(types)}}}')
        return {"type": _as_keyword(types)}

    def _type(self, value: object, where: str) -> object:
        if isinstance(value, str) and value in TYPES:
            return value
        types = read_type(value)
        if types is None:
            self._note(where, f"{_shown(value)} is no JSON Schema type; read as any type")
            return _NOTHING
        if types == value:
            return value
        self._note(where, f"{_shown(value)} is no JSON Schema type; read as {_named_types(types)}")
        return _as_keyword(types)

    def _required(self, value: object, where: str) -> object:
        if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            return value
        names = [value] if isinstance(value, str) else []
        if isinstance(value, list | tuple):
            names = [name for name in value if isinstance(name, str)]
        read = f"read as {names}" if names else "left out"
        self._note(where, f"must be a list of property names, not {_shown(value)}; {read}")
        return names or _NOTHING

    def _shaped(self, key: str, value: object, where: str) -> object:
        shape, is_right = SHAPES[key]
        if is_right(value):
            return value
        self._note(where, f"must be {shape}, not {_shown(value)}; left out")
        return _NOTHING

    def _many(self, key: str, value: object, where: str, depth: int) -> object:
        if not isinstance(value, list) or (not value and key not in ("prefixItems", "items")):
            self._note(where, f"must be a list of schemas, not {_shown(value)}; left out")
            return _NOTHING
        schemas = [self.schema(inner, f"{where}[{index}]", depth + 1) for index, inner in enumerate(value)]
        return value if all(new is old for new, old in zip(schemas, value, strict=True)) else schemas

    def _named(self, value: object, where: str, depth: int) -> object:
        if not isinstance(value, Mapping):
            self._note(where, f"must be an object of schemas, not {_shown(value)}; left out")
            return _NOTHING
        schemas = {name: self.schema(inner, f"{where}.{name:.{SHOWN}}", depth + 1) for name, inner in value.items()}
        return value if all(schemas[name] is inner for name, inner in value.items()) else schemas


def _as_keyword(types: list[str]) -> str | list[str]:
    return types[0] if len(types) == 1 else types


def _named_types(types: list[str]) -> str:
    return " or ".join(f'"{name}"' for name in types)


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return "a number of more than 3,000 digits"
    return "null" if value is None else f"{value!r:.40}"
