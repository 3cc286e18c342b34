"""Texts compared piece by piece: a tag or a word is shared as a whole, or not at all."""

from __future__ import annotations

import re

_pieces = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]|\w+|.", re.DOTALL).finditer
_tag = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|◁[^◁▷\s]+▷")
tags = _tag.findall
"""The tags in a text."""


def cuts(text: str, begin: int, end: int) -> set[int]:
    """The places between two positions where a text may be cut."""
    found = {begin}
    for piece in _pieces(text, begin):
        if piece.end() > end:
            break
        found.add(piece.end())
    return found


def shared_length(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def shared_start(*texts: str) -> str:
    """What all texts begin with."""
    most = min(shared_length(texts[0], text) for text in texts)
    return texts[0][: max(set.intersection(*(cuts(text, 0, most) for text in texts)))]


def shared_end(*texts: str) -> str:
    """What all texts end with."""
    most = min(shared_length(texts[0][::-1], text[::-1]) for text in texts)
    sizes = [{len(text) - at for at in cuts(text, 0, len(text))} for text in texts]
    size = max(size for size in set.intersection(*sizes) if size <= most)
    return texts[0][len(texts[0]) - size :]


def first_tag(text: str) -> str:
    """The tag that a text begins with, and the whitespace around it."""
    begin = len(text) - len(text.lstrip())
    found = _tag.match(text, begin)
    if found is None:
        return ""
    rest = text[found.end() :]
    return text[: found.end() + len(rest) - len(rest.lstrip())]


def last_tag(text: str) -> str:
    """The tag that a text ends with, and the whitespace around it."""
    kept = text.rstrip()
    for found in _tag.finditer(kept, max(0, len(kept) - 200)):
        if found.end() == len(kept):
            return text[len(text[: found.start()].rstrip()) :]
    return ""


def first_mark(text: str) -> str:
    """The tag or the word that a text begins with, without the whitespace."""
    tag = first_tag(text).strip()
    return tag or next(iter(text.split()), "")
