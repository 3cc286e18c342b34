"""The words of Lark's notation: names, strings, regular expressions, signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.fast_import import lazily
from ...metering import spend
from .errors import BadGrammar

_words = lazily(
    lambda: (
        re.compile(
            r"""(?P<space>[ \t\r\f]+|(?://|\#)[^\n]*)
        |(?P<line>\n)
        |(?P<string>"(?:[^"\\\n]|\\[^\n])*"i?)
        |(?P<regex>/(?:[^/\\\n]|\\[^\n])+/[a-z]*)
        |(?P<name>_{0,2}[A-Za-z][A-Za-z0-9_]*)
        |(?P<directive>%[a-z]+)
        |(?P<number>[0-9]+)
        |(?P<sign>->|\.\.|[:|()\[\]{},.~*+?!])
        |(?P<other>.)""",
            re.VERBOSE,
        ).finditer
    )
)
_escapes = lazily(lambda: re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL).sub)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "b": "\b", "a": "\a", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a grammar."""

    kind: str
    text: str
    line: int


def words(grammar: str) -> Iterator[Word]:
    """All words; the ends of lines are words too, and the last is an end."""
    line = 1
    for found in _words(grammar):
        spend()
        kind = found.lastgroup or ""
        if kind == "other":
            raise BadGrammar(f"line {line}: {found.group()!r} does not belong there")
        if kind != "space":
            yield Word(kind, found.group(), line)
        line += kind == "line"
    yield Word("end", "", line)


def unquoted(word: Word) -> str:
    """What a string says, without its flag."""

    def said(escape: re.Match[str]) -> str:
        digits = escape.group(1) or escape.group(2) or escape.group(3)
        if not digits:
            return _SHORT.get(escape.group(4), escape.group(4))
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise BadGrammar(f"line {word.line}: {escape.group()} is no character")
        return chr(code)

    return _escapes(said, word.text.removesuffix("i")[1:-1])
