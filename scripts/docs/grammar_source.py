"""A grammar as the Python that makes it: only what differs from the defaults, in lines of a readable length."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

_WIDTH = 96
_INDENT = "    "


def source(value: Any, before: int = 0) -> str:
    """The expression for a value. `before` is how many characters stand before it in its line."""
    short = _in_one_line(value)
    if before + len(short) <= _WIDTH:
        return short
    opened, items, closed = _parts(value)
    if not items:
        return short
    lines = [
        _INDENT + (f"{name}=" if name else "") + _indented(source(item, len(_INDENT) + len(name) + 2))
        for name, item in items
    ]
    return "\n".join([opened, *(line + "," for line in lines), closed])


def _in_one_line(value: Any) -> str:
    opened, items, closed = _parts(value)
    if not items and not closed:
        return opened
    inner = ", ".join((f"{name}=" if name else "") + _in_one_line(item) for name, item in items)
    return opened + inner + ("," if isinstance(value, tuple) and len(value) == 1 else "") + closed


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """What a value begins with, its items by name, and what it ends with."""
    if isinstance(value, tuple):
        return "(", [("", item) for item in value], ")"
    if is_dataclass(value) and not isinstance(value, type):
        items: list[tuple[str, Any]] = []
        positional = True
        for field in fields(value):
            if not field.init or getattr(value, field.name) == _default(field):
                positional = False
                continue
            item = getattr(value, field.name)
            positional = positional and not isinstance(item, bool)
            items.append(("" if positional else field.name, item))
        return f"{type(value).__name__}(", items, ")"
    return _literal(value), [], ""


def _literal(value: Any) -> str:
    if isinstance(value, str):
        quoted = repr(value)
        return quoted if '"' in value else '"' + quoted[1:-1].replace("\\'", "'") + '"'
    return repr(value)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + _INDENT)
