"""A format as Python source: for a derived format, which users can paste into a program and register."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass

from ...core.grammar import Format

_WIDTH = 100
_INDENT = "    "


def format_source(format: Format) -> str:
    """The Python expression that makes the format. Fields with default values are left out."""
    return _written(format, 0)


def _written(value: object, depth: int) -> str:
    if isinstance(value, tuple):
        items = [_written(item, depth + 1) for item in value]
        return _enclosed("(", items, ")", depth, lone_comma=True)
    if not is_dataclass(value) or isinstance(value, type):
        quoted = isinstance(value, str) and '"' not in value
        return json.dumps(value, ensure_ascii=False) if quoted else repr(value)
    given = []
    for field in fields(value):
        item = getattr(value, field.name)
        if field.default is MISSING:
            given.append(_written(item, depth + 1))
        elif item != field.default:
            given.append(f"{field.name}={_written(item, depth + 1)}")
    return _enclosed(f"{type(value).__name__}(", given, ")", depth)


def _enclosed(open: str, items: list[str], close: str, depth: int, lone_comma: bool = False) -> str:
    line = open + ", ".join(items) + ("," if lone_comma and len(items) == 1 else "") + close
    if len(line) + depth * len(_INDENT) <= _WIDTH and "\n" not in line:
        return line
    inner = "".join(f"{_INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{open}\n{inner}{_INDENT * depth}{close}"
