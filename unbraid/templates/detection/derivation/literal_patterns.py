"""Literal patterns: regular expressions made only of texts, named groups and whitespace.

A `response_template` describes markers by regular expressions. A grammar knows literal markers, names and optional
whitespace, so a pattern is read into these, and one that says more is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import DetectionError

SPACE = "\n"
"""Stands for optional whitespace: at the ends of a marker, a line break may be present or not."""
_SPELLED = {"n": "\n", "t": "\t", "r": "\r"}
_space = re.compile(r"\\s[*+?]?").match
_named = re.compile(r"\(\?P<(\w+)>").match


@dataclass(frozen=True)
class NamedGroup:
    """A named group. What it matches is not examined."""

    name: str


PatternItem = str | NamedGroup


def read_pattern(pattern: str, where: str) -> list[PatternItem]:
    """The texts and groups of a pattern, in order; optional whitespace is `SPACE` in a text. Raises `DetectionError`
    for other patterns; `where` names the pattern in the message."""
    items: list[PatternItem] = []
    for item in _items(pattern, where):
        if isinstance(item, str) and items and isinstance(items[-1], str):
            items[-1] += item
        else:
            items.append(item)
    return items


def _items(pattern: str, where: str) -> Iterator[PatternItem]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if space := _space(pattern, at):
            yield SPACE
            at = space.end()
        elif named := _named(pattern, at):
            yield NamedGroup(named[1])
            at = _group_end(pattern, at, where)
        elif pattern.startswith("(?:", at):
            # Alternatives: the first is the usual one.
            end = _group_end(pattern, at, where)
            yield from _items(_first_of(pattern[at + 3 : end - 1]), where)
            at = end
        elif char == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            yield pattern[at + 1]
            at += 2
        elif char == "\\" and pattern[at + 1 : at + 2] in _SPELLED:
            yield _SPELLED[pattern[at + 1]]
            at += 2
        elif char in r".*+?()[]{}|^$" + "\\":
            raise DetectionError(
                f"{where}: {pattern[at : at + 12]!r} in {pattern!r} is more than a grammar can say, which knows texts, "
                "whitespace and named groups"
            )
        else:
            yield char
            at += 1


def _group_end(pattern: str, at: int, where: str) -> int:
    depth, inside_set = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside_set:
            inside_set = char != "]"
        elif char == "[":
            inside_set = True
            at += 1 if pattern[at + 1 : at + 2] in ("]", "^") else 0
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return at + 1
        at += 1
    raise DetectionError(f"{where}: a bracket in {pattern!r} is not closed")


def _first_of(alternatives: str) -> str:
    depth, at = 0, 0
    while at < len(alternatives):
        char = alternatives[at]
        if char == "\\":
            at += 1
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            return alternatives[:at]
        at += 1
    return alternatives
