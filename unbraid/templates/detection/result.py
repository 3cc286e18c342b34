"""The result of a detection: the format, how sure it is, and why. A derived format is shown as Python source."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal

from ...core.grammar import Format
from ...errors import UnknownFormat
from ...formats import find

How = Literal["rendered", "derived", "response_template", "markers", "plain", "none"]
_HOWTO = (
    "Name a format if you know it (`unbraid formats` lists them), put one together (`unbraid.compose`), or define one: "
    "a few lines of data, as docs/formats.md shows under 'Add a format'."
)


@dataclass(frozen=True)
class Detection:
    """The format of a template, and the reasons."""

    format: Format | None
    """None if none was found."""
    verified: bool
    """Whether the format read back everything that the template rendered. If not, it is a guess: use it only if you
    have checked it."""
    how: How
    """`rendered`: a registered format that reads the rendered turns. `derived`: a new format made from them.
    `response_template`: stated by the tokenizer. `markers`: suggested by words in the template. `plain`: the template
    has nothing but content. `none`: no format was found."""
    reasons: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    """Other formats that read everything as well; if none was found, the nearest ones."""
    strands: tuple[str, ...] = ()
    """What the template writes: `content`, `reasoning`, `calls`. If `verified`, each of them came back in its own
    strand; about the others nothing is known."""

    @property
    def name(self) -> str | None:
        return None if self.format is None else self.format.name

    @property
    def definition(self) -> str | None:
        """The Python source of the format, if it is not registered."""
        registered = self.how in ("rendered", "markers") and self.format is not None and _is_registered(self.format)
        return None if self.format is None or registered else format_source(self.format)

    def required(self) -> Format:
        """The format. Raises `UnknownFormat`, which says what to do, if none is verified."""
        if self.format is not None and self.verified:
            return self.format
        raise UnknownFormat(self.problem)

    @property
    def problem(self) -> str:
        """The error message if no format is verified."""
        why = "; ".join(self.reasons)
        if self.format is not None:
            return f"the format may be {self.format.name!r}, but that could not be verified: {why}. {_HOWTO}"
        near = f" Nearest are {', '.join(self.alternatives)}." if self.alternatives else ""
        return f"no format was found for this template: {why}.{near} {_HOWTO}"

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.name,
            "verified": self.verified,
            "strands": list(self.strands),
            "how": self.how,
            "reasons": list(self.reasons),
            "alternatives": list(self.alternatives),
            "definition": self.definition,
        }


def _is_registered(format: Format) -> bool:
    try:
        return find(format.name) == format
    except UnknownFormat:
        return False


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
    arguments = []
    for field in fields(value):
        item = getattr(value, field.name)
        if field.default is MISSING:
            arguments.append(_written(item, depth + 1))
        elif item != field.default:
            arguments.append(f"{field.name}={_written(item, depth + 1)}")
    return _enclosed(f"{type(value).__name__}(", arguments, ")", depth)


def _enclosed(open: str, items: list[str], close: str, depth: int, lone_comma: bool = False) -> str:
    line = open + ", ".join(items) + ("," if lone_comma and len(items) == 1 else "") + close
    if len(line) + depth * len(_INDENT) <= _WIDTH and "\n" not in line:
        return line
    inner = "".join(f"{_INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{open}\n{inner}{_INDENT * depth}{close}"
