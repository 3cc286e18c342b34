"""Regular languages as small immutable values: text, character classes, sequence, choice, repetition.

A regular expression of a schema is read into these nodes (`patterns`), a schema in normal form holds them (`forms`),
and the grammars of `constraints` are made of them together with nodes of their own. All of these share the base class
`Node`. Below the nodes are constructors that keep the values small, and what can be asked about a regular node: what it
matches, how long its matches are, what they begin with.

A character class is a set of ranges of code points. Surrogates are in none of them: they are halves of characters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ..metering import spend

Ranges = tuple[tuple[int, int], ...]
"""Code points: the first and the last of each range. Ranges are in order, and neither overlap nor touch."""

_TOP = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, _TOP))
"""All characters."""


class Node:
    """A part of a language."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Verbatim(Node):
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars(Node):
    """One character out of ranges. Make these with `chars`, `all_but` and `among`."""

    ranges: Ranges
    excluded: bool = False
    """Any character that is in none of the ranges."""

    @property
    def members(self) -> Ranges:
        """The ranges of all characters in the class, also where it is given by what it excludes."""
        return without(EVERY, self.ranges) if self.excluded else self.ranges

    def holds(self, char: str) -> bool:
        return any(low <= ord(char) <= high for low, high in self.ranges) is not self.excluded


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """One item after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OneOf(Node):
    """One of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """The item, at least `least` and at most `most` times."""

    item: Node
    least: int = 0
    most: int | None = None


NOTHING = Sequence(())
"""The empty text."""


# --- Ranges ------------------------------------------------------------------------------------------------------


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """The difference of two sets of characters."""
    left: list[tuple[int, int]] = []
    for low, high in ranges:
        for start, end in taken:
            if start <= high and end >= low:
                if start > low:
                    left.append((low, start - 1))
                low = end + 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


# --- Character classes -------------------------------------------------------------------------------------------


def chars(*ranges: str) -> Chars:
    """`chars("az", "_")` is a letter from a to z, or an underscore."""
    return Chars(union((ord(range[0]), ord(range[-1])) for range in ranges))


def all_but(*ranges: str) -> Chars:
    """`all_but("<", "\\x00\\x1f")` is any character but `<` and the control characters."""
    return Chars(chars(*ranges).ranges, excluded=True)


def among(ranges: Ranges) -> Chars:
    """A character of these ranges. A class that reaches to the last character is given by what it excludes."""
    open_end = bool(ranges) and ranges[-1][1] == _TOP
    return Chars(without(EVERY, ranges), excluded=True) if open_end else Chars(ranges)


ANY = all_but()
"""Any character."""


# --- Sequence and choice -----------------------------------------------------------------------------------------


def sequence(*items: Node) -> Node:
    """The items in a row, without sequences in sequences."""
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Sequence) else (item,)
    return NOTHING if not flat else flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(*items: Node) -> Node:
    return items[0] if len(items) == 1 else OneOf(items)


def maybe(*items: Node) -> Node:
    """The items in a row, or nothing."""
    return Repeat(sequence(*items), 0, 1)


# --- Questions about regular nodes -------------------------------------------------------------------------------


def matches(node: Node, text: str) -> bool:
    """Whether the whole text is a match."""
    return len(text) in _ends(node, text, {0})


def _ends(node: Node, text: str, starts: set[int]) -> set[int]:
    """Where a match can end: all of them at once, so that no pattern takes exponential time."""
    spend(1 + len(starts))
    match node:
        case Verbatim(word):
            return {at + len(word) for at in starts if text.startswith(word, at)}
        case Chars():
            return {at + 1 for at in starts if at < len(text) and node.holds(text[at])}
        case Sequence(items):
            for item in items:
                starts = _ends(item, text, starts)
            return starts
        case OneOf(items):
            return set[int]().union(*(_ends(item, text, starts) for item in items))
        case Repeat(item, least, most):
            for _ in range(least):
                starts = _ends(item, text, starts)
                if not starts:
                    return starts
            ends, new, count = set(starts), starts, least
            while new and (most is None or count < most):
                new = _ends(item, text, new) - ends
                ends |= new
                count += 1
            return ends
    raise AssertionError(node)


def may_hold(node: Node, some: Collection[str]) -> bool:
    """Whether a match can have one of these characters in it."""
    return any(any(map(leaf.holds, some)) for leaf in leaves(node))


def leaves(node: Node) -> Iterator[Chars]:
    """The characters that it is made of."""
    spend()
    match node:
        case Verbatim(text):
            yield chars(*text)
        case Chars():
            yield node
        case Sequence(items) | OneOf(items):
            for item in items:
                yield from leaves(item)
        case Repeat(item):
            yield from leaves(item)


def lengths(node: Node) -> tuple[int, int | None]:
    """The fewest and the most characters that a match has."""
    spend()
    match node:
        case Verbatim(text):
            return len(text), len(text)
        case Sequence(items) | OneOf(items):
            lows, highs = zip(*map(lengths, items), strict=True) if items else ((), ())
            tops = None if None in highs else highs
            if isinstance(node, Sequence):
                return sum(lows), None if tops is None else sum(tops)
            return min(lows), None if tops is None else max(tops)
        case Repeat(item, fewest, times):
            low, high = lengths(item)
            return fewest * low, None if high is None or times is None else times * high
    return 1, 1


def limit_length(node: Node, least: int, most: int | None) -> Node | None:
    """The matches of `node` of these lengths, where that can be written: it is one character repeated, or has such a
    length anyway. None where it cannot."""
    low, high = lengths(node)
    if least <= low and (most is None or (high is not None and high <= most)):
        return node
    if not isinstance(node, Repeat) or lengths(node.item) != (1, 1):
        return None
    least, most = max(low, least), high if most is None else most if high is None else min(high, most)
    return Repeat(node.item, least, most) if most is None or least <= most else None


def disjoint(one: Node, other: Node) -> bool:
    """Whether no text matches both, as far as the first character tells. (False says nothing.)"""
    left, right = union(_begins(one)), union(_begins(other))
    return lengths(one)[0] > 0 and lengths(other)[0] > 0 and without(left, right) == left


def _begins(node: Node) -> Iterator[tuple[int, int]]:
    """The characters that a match can begin with."""
    match node:
        case Verbatim(text):
            yield from chars(*text[:1]).ranges
        case Chars():
            yield from node.members
        case Sequence(items):
            for item in items:
                yield from _begins(item)
                if lengths(item)[0]:
                    break
        case OneOf(items):
            for item in items:
                yield from _begins(item)
        case Repeat(item):
            yield from _begins(item)
