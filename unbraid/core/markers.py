"""Finding markers in text that arrives in pieces.

`Markers` answers the two questions that every node asks of its buffer: where is the nearest marker, and up to where can
the text not be part of one? Both are one search with a compiled pattern, whatever the number of markers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from .errors import InvalidFormat

Role = Literal["open", "close", "end"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker as the parser looks for it."""

    role: Role
    strand: str
    """What it opens or closes."""
    key: str
    """Its text without the whitespace around it; or, with a tokenizer, the character that stands for its token."""
    lead: str = ""
    trail: str = ""


def split_whitespace(marker: str) -> tuple[str, str, str]:
    """The whitespace before a marker, the marker itself, the whitespace after it."""
    key = marker.strip()
    if not key:
        raise InvalidFormat(f"a marker must hold more than whitespace: {marker!r}")
    lead, _, trail = marker.partition(key)
    return lead, key, trail


class Markers:
    """A set of markers to look for at once."""

    __slots__ = ("_begin", "_by_key", "_longest", "_partial", "_search")

    def __init__(self, markers: Iterable[Marker]) -> None:
        self._by_key = {marker.key: marker for marker in markers}
        spellings = {lead + marker.key for marker in self._by_key.values() for lead in _suffixes(marker.lead)}
        for one in self._by_key:
            for other in self._by_key:
                if one != other and other.startswith(one):
                    raise InvalidFormat(f"the marker {one!r} begins another, {other!r}: a stream can't tell them apart")
        # Longest first, so that a marker takes all of the whitespace before it. Every alternative begins with a literal
        # character: `re` then skips over other text at the speed of C.
        ordered = sorted(spellings, key=len, reverse=True)
        nothing = "(?!)"
        self._search = re.compile("|".join(map(re.escape, ordered)) or nothing).search
        self._begin = any_of({spelling[0] for spelling in spellings})
        prefixes = sorted({s[:n] for s in spellings for n in range(1, len(s))}, key=len, reverse=True)
        self._partial = re.compile(rf"(?:{'|'.join(map(re.escape, prefixes))})\Z" if prefixes else nothing).search
        self._longest = max(map(len, spellings), default=0)

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The nearest marker, with the whitespace before it that belongs to it."""
        return self._search(text, start)

    def which(self, found: re.Match[str]) -> Marker:
        return self._by_key[found.group().lstrip()]

    def settled(self, text: str, start: int) -> int:
        """Up to where `text`, which holds no marker, cannot become part of one, whatever comes next."""
        size = len(text)
        tail = size - self._longest + 1
        if self._begin(text, tail if tail > start else start) is None:
            return size
        partial = self._partial(text, tail if tail > start else start)
        return size if partial is None else partial.start()


def any_of(chars: set[str]) -> Callable[[str, int], re.Match[str] | None]:
    """A search for any of these characters."""
    return re.compile("[" + "".join(map(re.escape, sorted(chars))) + "]" if chars else "(?!)").search


def _suffixes(lead: str) -> list[str]:
    return [lead[i:] for i in range(len(lead) + 1)]


class Strays:
    """Watches for markers in text that has already gone out: they mean nothing where they stand, but say that something
    went wrong. Nothing is held back for them."""

    __slots__ = ("_begin", "_longest", "_search")

    def __init__(self, keys: list[str]) -> None:
        self._search = re.compile("|".join(map(re.escape, keys)) or "(?!)")
        self._begin = any_of({key[0] for key in keys})
        self._longest = max(map(len, keys), default=0)

    def watch(self, before: str, text: str) -> tuple[str, list[tuple[str, int]]]:
        """`before` is what the last call returned: the end of the text so far, as far as it can begin a marker. Returns
        that for the next call, and each marker with the position in `text` where it ends."""
        if not before and self._begin(text, 0) is None:
            return "", []
        seen = before + text
        found = [(match.group(), match.end() - len(before)) for match in self._search.finditer(seen)]
        rest = seen[len(before) + found[-1][1] :] if found else seen
        return rest[-(self._longest - 1) :] if self._longest > 1 else "", found
