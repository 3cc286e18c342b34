"""Common prefixes and suffixes of texts, at the boundaries of tags and words.

`<tool_call>` and `<tool_calls>` share ten characters, but no tag. So texts are compared in pieces: a tag, a word or a
single other character is shared as a whole or not at all.
"""

from __future__ import annotations

import re

_pieces = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]|\w+|.", re.DOTALL).finditer
_tag = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|◁[^◁▷\s]+▷")
tags = _tag.findall
"""The tags in a text."""


def boundaries(text: str, begin: int, end: int) -> set[int]:
    """The positions between `begin` and `end` at which a piece of the text ends."""
    ends = {begin}
    for piece in _pieces(text, begin):
        if piece.end() > end:
            break
        ends.add(piece.end())
    return ends


def shared_length(one: str, other: str) -> int:
    """The length of the common prefix of two texts, in characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def shared_start(*texts: str) -> str:
    """The common prefix of all texts, in whole pieces."""
    most = min(shared_length(texts[0], text) for text in texts)
    return texts[0][: max(set.intersection(*(boundaries(text, 0, most) for text in texts)))]


def shared_end(*texts: str) -> str:
    """The common suffix of all texts, in whole pieces."""
    most = min(shared_length(texts[0][::-1], text[::-1]) for text in texts)
    sizes = [{len(text) - at for at in boundaries(text, 0, len(text))} for text in texts]
    size = max(size for size in set.intersection(*sizes) if size <= most)
    return texts[0][len(texts[0]) - size :]


def first_tag(text: str) -> str:
    """The tag at the beginning of a text, with the whitespace around it; empty if there is none."""
    begin = len(text) - len(text.lstrip())
    tag = _tag.match(text, begin)
    if tag is None:
        return ""
    rest = text[tag.end() :]
    return text[: tag.end() + len(rest) - len(rest.lstrip())]


def last_tag(text: str) -> str:
    """The tag at the end of a text, with the whitespace around it; empty if there is none."""
    kept = text.rstrip()
    for tag in _tag.finditer(kept, max(0, len(kept) - 200)):
        if tag.end() == len(kept):
            return text[len(text[: tag.start()].rstrip()) :]
    return ""


def first_tag_or_word(text: str) -> str:
    """The tag or word at the beginning of a text, without whitespace."""
    tag = first_tag(text).strip()
    return tag or next(iter(text.split()), "")
