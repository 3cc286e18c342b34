"""What a response may be, as a small grammar that every dialect can print.

There is no behaviour here but a few shapes that are used often. `builder` makes these values from a format and a
request, `schema_patterns` from a regular expression and `schema_nodes` from a JSON schema; `lark`, `gbnf`,
`structural_tag`, `regex` and `token_sets` print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = bool | Mapping[str, Any]
Ranges = tuple[tuple[int, int], ...]
"""Code points: the first and the last of each range. They are in order, and apart from each other."""

_TOP = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, _TOP))  # what lies between are halves of characters


@dataclass(frozen=True, slots=True)
class Unenforced:
    """Something that a dialect cannot express."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Text:
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ranges. `chars`, `all_but` and `among` make these."""

    ranges: Ranges
    excluded: bool = False
    """One that is in none of them."""

    @property
    def members(self) -> Ranges:
        """The ranges that it is in."""
        return without(EVERY, self.ranges) if self.excluded else self.ranges

    def holds(self, char: str) -> bool:
        return any(low <= ord(char) <= high for low, high in self.ranges) is not self.excluded


@dataclass(frozen=True, slots=True)
class Token:
    """One token out of ranges of ids. Where a dialect knows no tokens, the texts stand for them."""

    ranges: tuple[tuple[int, int], ...]
    text: Node


@dataclass(frozen=True, slots=True)
class TextExcept:
    """Any text that spells none of `without`."""

    without: tuple[str, ...]
    clean_end: bool = False
    """It does not end with the beginning of one of them either, so that what follows cannot complete it."""
    least: int = 0
    most: int | None = None
    """How many characters it has. Only llguidance is told."""
    where: str = ""
    """What says so."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value. `where` says in error messages what the schema belongs to."""

    schema: Schema
    where: str
    without: tuple[str, ...] = ()
    """What its strings must not spell."""
    python: bool = False
    """Whether true, false and null are written as Python writes them."""

    @property
    def plain(self) -> bool:
        """Whether it is all that the schema says, and nothing but JSON."""
        return not self.without and not self.python


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A regular node that a lexer reads in one piece: it may begin like something else that can stand in its place."""

    item: Node


@dataclass(frozen=True, slots=True)
class Rule:
    """What stands under this name among the language's rules."""

    name: str


Node = Text | Chars | Token | TextExcept | Json | Sequence | Choice | Repeat | Lexeme | Rule


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    root: Node
    rules: Mapping[str, Node]
    unenforced: Iterable[Unenforced] = ()
    """What no dialect is told."""

    def needed(self) -> Language:
        """The same language, with no rules but those that are used."""
        used = {node.name for node in self.nodes() if isinstance(node, Rule)}
        return Language(self.root, {name: node for name, node in self.rules.items() if name in used}, self.unenforced)

    def nodes(self) -> Iterator[Node]:
        """All that can be reached from the root, each once."""
        seen: set[int] = set()
        todo = [self.root]
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if isinstance(node, Rule) and node.name in self.rules:
                todo.append(self.rules[node.name])
            if isinstance(node, Sequence | Choice):
                todo += node.items
            elif isinstance(node, Repeat | Lexeme):
                todo.append(node.item)


NOTHING = Sequence(())


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
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


def chars(*ranges: str) -> Chars:
    """`chars("az", "_")` is a letter from a to z, or an underscore."""
    return Chars(union((ord(range[0]), ord(range[-1])) for range in ranges))


def all_but(*ranges: str) -> Chars:
    return Chars(chars(*ranges).ranges, excluded=True)


def among(ranges: Ranges) -> Chars:
    """One of these, or none of the others: what has no end is said by what it leaves out."""
    open_end = bool(ranges) and ranges[-1][1] == _TOP
    return Chars(without(EVERY, ranges), excluded=True) if open_end else Chars(ranges)


ANY = all_but()
# As much as any template writes, and not so much that a model could lose itself in it.
SPACE = Repeat(chars(" ", "\n", "\t"), 0, 20)
SOME_SPACE = Repeat(chars(" ", "\n", "\t"), 1, 20)


def sequence(*items: Node) -> Node:
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Sequence) else (item,)
    return NOTHING if not flat else flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(*items: Node) -> Node:
    return items[0] if len(items) == 1 else Choice(items)


def alternatives(*items: Node) -> Node:
    """A choice; what all of them begin with is said once. (Not what they end with: a lexer must see an end that may be
    missing together with what follows it.)"""
    rows = [item.items if isinstance(item, Sequence) else (item,) for item in items]
    shortest = min(map(len, rows))
    same = next((at for at in range(shortest) if any(row[at] != rows[0][at] for row in rows)), shortest)
    return sequence(*rows[0][:same], choice(*(sequence(*row[same:]) for row in rows)))


def maybe(*items: Node) -> Node:
    return Repeat(sequence(*items), 0, 1)


def unbounded(text: TextExcept) -> list[Unenforced]:
    """What is lost where the length of free text cannot be said."""
    if not text.least and text.most is None:
        return []
    return [Unenforced(text.where, "`minLength` and `maxLength` are not enforced between tags")]
