"""JSON as text: strings quoted and read, numbers told, objects taken apart without losing how values were written."""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring as quote

from ..errors import UnbraidError
from .fast_import import lazily
from .machine.markers import NOT_YET, NotYet

__all__ = ["Number", "as_json", "decode", "escape", "is_number", "may_become_number", "members", "quote"]

is_number = lazily(lambda: re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch)
"""Whether a text is a number in JSON, or may yet become one."""
may_become_number = lazily(
    lambda: re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?").fullmatch
)


def escape(text: str) -> str:
    """Text as it stands inside a JSON string."""
    return quote(text)[1:-1]


_plain = lazily(lambda: re.compile(r'[^"\\]*').match)
_escape = lazily(lambda: re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})').match)
_partial_escape = lazily(lambda: re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z").match)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def plain_end(text: str, at: int) -> int:
    """Up to where there is neither a quote nor a backslash."""
    return _plain(text, at).end()  # type: ignore[union-attr]  # an empty match always exists


def read_escape(text: str, at: int, at_end: bool) -> tuple[int, str] | NotYet:
    """The size of the escape that stands there, and what it stands for; size 1 for a backslash that escapes nothing.

    at_end: whether no more text comes."""
    escape = _escape(text, at)
    if escape is None:
        return NOT_YET if _partial_escape(text, at) and not at_end else (1, "\\")
    spelled = escape.group()
    if spelled[1] != "u":
        return 2, _ESCAPED[spelled[1]]
    high = int(spelled[2:], 16)
    if not 0xD800 <= high < 0xE000:
        return 6, chr(high)
    second = _escape(text, at + 6)
    if second is None and not at_end and (len(text) == at + 6 or _partial_escape(text, at + 6)):
        return NOT_YET
    if second is not None and second.group()[1] == "u" and high < 0xDC00:
        low = int(second.group()[2:], 16)
        if 0xDC00 <= low < 0xE000:
            return 12, chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    # Half of a pair is no character: it stays the escape that it is.
    return 6, spelled


class Number(str):
    """A number as it is written."""

    __slots__ = ()


decode = json.JSONDecoder(parse_int=Number, parse_float=Number).decode
"""A JSON text as Python's values, with the numbers as they are written."""


def as_json(value: object) -> str:
    """JSON, with the numbers as they were written."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(key)}: {as_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_json, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def members(arguments: str) -> dict[str, str]:
    """The values of a JSON object, each as the JSON it is written as."""
    try:
        if not isinstance(json.loads(arguments), dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as problem:
        raise UnbraidError(f"arguments that this format cannot write: {arguments[:40]!r} ({problem})") from None
    values: dict[str, str] = {}
    raw_decode = json.JSONDecoder(strict=False).raw_decode
    at = _skip(arguments, _skip(arguments, 0) + 1)
    while arguments[at] != "}":
        key, end = raw_decode(arguments, at)
        start = _skip(arguments, _skip(arguments, end) + 1)
        _, end = raw_decode(arguments, start)
        values[key] = arguments[start:end]
        at = _skip(arguments, end)
        if arguments[at] == ",":
            at = _skip(arguments, at + 1)
    return values


_space = lazily(lambda: re.compile(r"[ \t\n\r]*").match)


def _skip(text: str, at: int) -> int:
    """Past the whitespace."""
    return _space(text, at).end()  # type: ignore[union-attr]  # an empty match always exists
