"""The literals of Python as JSON: numbers, words and the characters of strings."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..fast_import import lazily
from ..json_text import escape, quote

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
    return quote(text) if text.lstrip("+-").lower() in _NOT_JSON else number_as_json(text)


def number_as_json(text: str) -> str | None:
    """A number as JSON; None where it is none."""
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


_space_end = lazily(lambda: re.compile(r"\s*").match)
_scalar_end = lazily(lambda: re.compile(r"[\w.+-]*").match)
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


_DEEPEST = 100
"""How deep a literal may nest that is read as a whole."""


def literal_as_json(text: str) -> str | None:
    """A whole literal of Python's as JSON; None where it is none, or nests too deeply."""
    try:
        value, end = _literal(text, _after_space(text, 0), _DEEPEST)
    except ValueError:
        return None
    return value if _after_space(text, end) == len(text) else None


def _literal(text: str, at: int, deepest: int) -> tuple[str, int]:
    """The literal at a position, and where it ends. Raises ValueError where there is none."""
    char = text[at : at + 1]
    if char and char in "\"'":
        quotes = char * 3 if text.startswith(char * 3, at) else char
        start = at + len(quotes)
        end = string_run[quotes](text, start).end()  # type: ignore[union-attr]  # an empty match always exists
        if not text.startswith(quotes, end):
            raise ValueError("a string that does not end")
        return f'"{string_as_json(text[start:end])}"', end + len(quotes)
    if char in _CLOSERS:
        return _collection(text, at + 1, char, deepest - 1)
    end = _scalar_end(text, at).end()  # type: ignore[union-attr]  # likewise
    scalar = scalar_as_json(text[at:end])
    if scalar is None:
        raise ValueError("no literal")
    return scalar, end


def _collection(text: str, at: int, open: str, deepest: int) -> tuple[str, int]:
    """What stands between brackets, from after the first."""
    if deepest < 0:
        raise ValueError("too deep")
    items: list[str] = []
    close = _CLOSERS[open]
    at = _after_space(text, at)
    while not text.startswith(close, at):
        item, at = _literal(text, at, deepest)
        at = _after_space(text, at)
        if open == "{":
            if not text.startswith(":", at):
                raise ValueError("no dict")
            value, at = _literal(text, _after_space(text, at + 1), deepest)
            item = (item if item.startswith('"') else quote(item)) + f": {value}"
            at = _after_space(text, at)
        items.append(item)
        if text.startswith(",", at):
            at = _after_space(text, at + 1)
        elif not text.startswith(close, at):
            raise ValueError("no comma")
    return ("{" if open == "{" else "[") + ", ".join(items) + ("}" if open == "{" else "]"), at + 1


def _after_space(text: str, at: int) -> int:
    return _space_end(text, at).end()  # type: ignore[union-attr]  # likewise


_words = lazily(lambda: re.compile(r'"(?:[^"\\]|\\.)*"|true|false|null', re.DOTALL).sub)
_escapes = lazily(lambda: re.compile(r"\\.").sub)
_AS_PYTHON = {"true": "True", "false": "False", "null": "None"}


def as_python(value: str) -> str:
    """JSON as a literal of Python. But for three words and one escape, the one is the other."""
    return _words(lambda word: _AS_PYTHON.get(word.group()) or _escapes(_python_escape, word.group()), value)


def _python_escape(escape: re.Match[str]) -> str:
    return "/" if escape.group() == r"\/" else escape.group()
