"""Formats as JSON documents, to be carried by a model's repository or read by another implementation.

    document = export(find("qwen3"))     {"unbraid_format": 1, "name": "qwen3", "reasoning": {"open": "<think>", …}, …}
    read(document) == find("qwen3")

A document is the grammar's own values (`core.grammar`, `core.notations`), field by field. A value that stands where
several kinds may stand names its kind under `type`. Fields that have their default are left out. Everything follows
from the annotations of the grammar's classes: what is written, how it is read, and the JSON Schema of it (`schema`). A
field that is added to the grammar is a field of the documents.

The version changes when a document of before would be read otherwise.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..core import grammar, notations
from ..core.grammar import Format, Notation
from ..errors import InvalidFormat

VERSION = 1
VERSION_KEY = "unbraid_format"
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_MOST_NESTED = 40


def export(format: Format) -> dict[str, Any]:
    """A format as a JSON document."""
    return {VERSION_KEY: VERSION, **_written(format, Format)}


def read(document: str | bytes | Mapping[str, Any]) -> Format:
    """The format that a document describes. Raises `InvalidFormat` with the place of what is wrong."""
    if isinstance(document, str | bytes):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise InvalidFormat(f"the document is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise InvalidFormat(f"a format's document is an object, not {_kind(document)}: `unbraid export` writes one")
    version = document.get(VERSION_KEY)
    if version != VERSION:
        problem = f"is {version!r}" if VERSION_KEY in document else "is missing"
        raise InvalidFormat(
            f"{VERSION_KEY} {problem}: this version of unbraid reads {VERSION}, which `unbraid export` writes"
        )
    rest = {key: value for key, value in document.items() if key != VERSION_KEY}
    format: Format = _read(rest, Format, "the document", 0)
    return format


def schema() -> dict[str, Any]:
    """The JSON Schema of the documents."""
    definitions = {name: _object_schema(kind) for name, kind in sorted(_classes().items())}
    properties = {VERSION_KEY: {"const": VERSION}, **definitions["Format"]["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A format of unbraid: what the models of one family write",
        **definitions["Format"],
        "properties": properties,
        "required": [VERSION_KEY, *definitions["Format"]["required"]],
        "$defs": definitions,
    }


# The grammar's classes


@cache
def _classes() -> dict[str, type]:
    """All that a document can name under `type`, by name."""
    values = [*vars(grammar).values(), *(getattr(notations, name) for name in notations.__all__)]
    return {each.__name__: each for each in values if isinstance(each, type) and is_dataclass(each)}


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The annotations of a class's fields, which are names of the grammar's and of the notations' modules."""
    annotated = type("Annotated", (), {"__annotations__": {each.name: each.type for each in fields(kind)}})
    return get_type_hints(annotated, {**vars(notations), **vars(grammar)})


@cache
def _choices(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(choice for each in get_args(annotation) for choice in _choices(each))
    if annotation is Notation:
        return tuple(each for each in _classes().values() if issubclass(each, Notation))
    return (annotation,)


def _tagged(annotation: Any) -> bool:
    """Whether values say under `type` what they are, because several kinds may stand there."""
    return sum(is_dataclass(each) for each in _choices(annotation)) > 1


# Writing


def _written(value: Any, annotation: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        document: dict[str, Any] = {"type": kind.__name__} if _tagged(annotation) else {}
        for field, hint in zip(fields(value), _hints(kind).values(), strict=True):
            item = getattr(value, field.name)
            if field.default is MISSING or item != field.default:
                document[field.name] = _written(item, hint)
        return document
    if isinstance(value, tuple):
        items = _items(annotation, len(value))
        return [_written(item, hint) for item, hint in zip(value, items, strict=True)]
    return value


def _items(annotation: Any, count: int) -> list[Any]:
    """The annotations of the items of a tuple."""
    arguments = next(get_args(each) for each in _choices(annotation) if get_origin(each) is tuple)
    return [arguments[0]] * count if arguments[-1:] == (Ellipsis,) else list(arguments)


# Reading


def _read(value: Any, annotation: Any, where: str, depth: int) -> Any:
    if depth > _MOST_NESTED:
        raise InvalidFormat(f"{where} is nested too deep")
    choices = _choices(annotation)
    if isinstance(value, Mapping):
        return _read_object(value, choices, where, depth)
    if isinstance(value, list):
        return _read_list(value, choices, where, depth)
    for kind in (str, bool, int, float, type(None)):
        if type(value) is kind and kind in choices:
            return value
    if type(value) is int and float in choices:
        return float(value)
    raise InvalidFormat(f"{where} is {_kind(value)}, and must be {_in_words(choices)}")


def _read_object(value: Mapping[str, Any], choices: tuple[Any, ...], where: str, depth: int) -> Any:
    kinds: dict[str, Any] = {each.__name__: each for each in choices if isinstance(each, type) and is_dataclass(each)}
    if not kinds:
        raise InvalidFormat(f"{where} is an object, and must be {_in_words(choices)}")
    named = value.get("type", next(iter(kinds)) if len(kinds) == 1 else None)
    if not isinstance(named, str) or named not in kinds:
        problem = f"is {named!r}" if "type" in value else "is missing"
        raise InvalidFormat(f"{where}.type {problem}: it must be one of {', '.join(sorted(kinds))}")
    value, kind = {key: item for key, item in value.items() if key != "type"}, kinds[named]
    hints = _hints(kind)
    if unknown := [key for key in value if key not in hints]:
        raise InvalidFormat(f"{where} has the key {unknown[0]!r}, which is not known; known are {', '.join(hints)}")
    required = [each.name for each in fields(kind) if each.default is MISSING]
    if missing := [name for name in required if name not in value]:
        raise InvalidFormat(f"{where} lacks the key {missing[0]!r}")
    return kind(**{key: _read(item, hints[key], f"{where}.{key}", depth + 1) for key, item in value.items()})


def _read_list(value: list[Any], choices: tuple[Any, ...], where: str, depth: int) -> tuple[Any, ...]:
    arguments = next((get_args(each) for each in choices if get_origin(each) is tuple), None)
    if arguments is None:
        raise InvalidFormat(f"{where} is a list, and must be {_in_words(choices)}")
    if arguments[-1:] != (Ellipsis,) and len(arguments) != len(value):
        raise InvalidFormat(f"{where} has {len(value)} items, and must have {len(arguments)}")
    hints = [arguments[0]] * len(value) if arguments[-1:] == (Ellipsis,) else arguments
    pairs = enumerate(zip(value, hints, strict=True))
    return tuple(_read(item, hint, f"{where}[{at}]", depth + 1) for at, (item, hint) in pairs)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"{json.dumps(value, default=repr)} ({_PLAIN.get(type(value), 'no JSON')})"


def _in_words(choices: tuple[Any, ...]) -> str:
    names = [
        "a list" if get_origin(each) is tuple else _PLAIN.get(each) or f"an object ({each.__name__})"
        for each in choices
    ]
    return " or ".join(dict.fromkeys(names))


# The schema


def _object_schema(kind: type) -> dict[str, Any]:
    documented = (kind.__doc__ or "").split("\n\n")[0].replace("\n    ", " ").strip()
    return {
        "description": documented,
        "type": "object",
        "properties": {
            "type": {"const": kind.__name__},
            **{name: _schema(hint) for name, hint in _hints(kind).items()},
        },
        "required": [each.name for each in fields(kind) if each.default is MISSING],
        "additionalProperties": False,
    }


def _schema(annotation: Any) -> dict[str, Any]:
    tagged = _tagged(annotation)
    schemas = [_choice_schema(each, tagged) for each in _choices(annotation)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _choice_schema(kind: Any, tagged: bool) -> dict[str, Any]:
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if get_origin(kind) is tuple:
        arguments = get_args(kind)
        if arguments[-1:] == (Ellipsis,):
            return {"type": "array", "items": _schema(arguments[0])}
        items = [_schema(each) for each in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    reference = {"$ref": f"#/$defs/{kind.__name__}"}
    return {**reference, "required": ["type"]} if tagged else reference
