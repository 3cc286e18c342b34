"""The literals of Python as JSON: numbers, words and the characters of strings."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..lazily import lazily
from .json_text import escape, quote

WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
"""Models write JSON's words too."""
_NOT_JSON = {"nan", "inf", "infinity"}

_decimal = lazily(
    lambda: re.compile(r"([+-]?)(\d+(?:_\d+)*)?(\.(?:\d+(?:_\d+)*)?)?([eE][+-]?\d+(?:_\d+)*)?", re.ASCII).fullmatch
)
_based = lazily(lambda: re.compile(r"([+-]?)(0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)").fullmatch)

_HEX = "[0-9a-fA-F]"
_ESCAPE = (
    rf"\\(?:[0-7]{{3}}|[0-7]{{1,2}}(?=[^0-7])|x{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|[^0-7xuU])"
    # What is not known as an escape keeps its backslash, and so does one that is cut short.
    rf"|\\x(?={_HEX}?[^0-9a-fA-F])|\\u(?={_HEX}{{0,3}}[^0-9a-fA-F])|\\U(?={_HEX}{{0,7}}[^0-9a-fA-F])"
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
_SHORT |= {char: char for char in "\\'\""}
_pieces = lazily(
    lambda: re.compile(rf"\\(?:[0-7]{{1,3}}|x{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|[^0-7xuU])|[^\\]+|\\", re.DOTALL).sub
)


def _runs(quotes: str) -> Callable[..., re.Match[str] | None]:
    char = quotes[0]
    # Of three quotes that end a string, one or two alone are part of it.
    quoted = f"|{char}{{1,2}}(?=[^{char}])" if len(quotes) == 3 else ""
    return re.compile(rf"(?:[^{char}\\]++|{_ESCAPE}{quoted})*+", re.DOTALL).match


class _Runs(dict[str, Callable[..., re.Match[str] | None]]):
    """The patterns by their quotes, each compiled when first used."""

    def __missing__(self, quotes: str) -> Callable[..., re.Match[str] | None]:
        self[quotes] = _runs(quotes)
        return self[quotes]


string_run = _Runs()
"""What of a string, by its quotes, can be read so far: characters and whole escapes."""


def scalar_as_json(text: str) -> str | None:
    """A number or a word as JSON; None where it is neither."""
    if text in WORDS:
        return WORDS[text]
    if text.lstrip("+-").lower() in _NOT_JSON:
        return quote(text)
    if based := _based(text):
        sign, digits = based.groups()
        try:
            return f"{'-' if sign == '-' else ''}{int(digits, 0)}"
        except ValueError:  # longer than Python writes integers
            return None
    decimal = _decimal(text)
    if decimal is None:
        return None
    sign, whole, fraction, exponent = (part or "" for part in decimal.groups())
    if not whole and fraction in ("", "."):
        return None
    if fraction == ".":
        fraction = ".0"
    number = f"{whole.lstrip('0_') or '0'}{fraction}{exponent}".replace("_", "")
    return f"-{number}" if sign == "-" else number


def string_as_json(text: str) -> str:
    """Characters and escapes of a Python string, as they stand inside a JSON string."""
    return _pieces(_piece_as_json, text) if "\\" in text else escape(text)


def _piece_as_json(piece: re.Match[str]) -> str:
    text = piece.group()
    if text[0] != "\\" or len(text) == 1:
        return escape(text)
    kind = text[1]
    if kind in _SHORT:
        return escape(_SHORT[kind])
    if kind in "xuU" and len(text) > 2:
        code = int(text[2:], 16)
    elif kind in "01234567":
        code = int(text[1:], 8)
    else:
        return escape(text)
    if code > 0x10FFFF:
        return escape(text)
    # Half of a surrogate pair is no character. In JSON the two halves are one, as the model means them.
    return f"\\u{code:04x}" if 0xD800 <= code < 0xE000 else escape(chr(code))


_words = lazily(lambda: re.compile(r'"(?:[^"\\]|\\.)*"|true|false|null', re.DOTALL).sub)
_escapes = lazily(lambda: re.compile(r"\\.").sub)
_AS_PYTHON = {"true": "True", "false": "False", "null": "None"}


def as_python(value: str) -> str:
    """JSON as a literal of Python. But for three words and one escape, the one is the other."""
    return _words(lambda word: _AS_PYTHON.get(word.group()) or _escapes(_python_escape, word.group()), value)


def _python_escape(escape: re.Match[str]) -> str:
    return "/" if escape.group() == r"\/" else escape.group()
