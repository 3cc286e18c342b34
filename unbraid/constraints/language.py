"""What a response may be, as a small grammar that every dialect can print.

There is no behaviour here but a few shapes that are used often. `builder` makes these values from a format and a
request; `lark`, `gbnf`, `structural_tag`, `regex` and `token_sets` print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .schemas import Loosened

JsonSchema = Mapping[str, Any] | bool


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Chars:
    """One character out of ranges: `("az", "09", "__")`."""

    ranges: tuple[str, ...]
    excluded: bool = False
    """One that is in none of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """One token out of ranges of ids. Where a dialect knows no tokens, the texts stand for them."""

    ranges: tuple[tuple[int, int], ...]
    text: Node


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """Any text that spells none of `without`."""

    without: tuple[str, ...]
    clean_end: bool = False
    """It does not end with the beginning of one of them either, so that what follows cannot complete it."""
    least: int = 0
    most: int | None = None
    """How many characters it has. Only llguidance is told."""
    where: str = ""
    """What says so."""


@dataclass(frozen=True, slots=True, eq=False)
class Json:
    """A JSON value. `where` says in error messages what the schema belongs to."""

    schema: JsonSchema
    where: str
    without: tuple[str, ...] = ()
    """What its strings must not spell."""


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    item: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """What stands under this name among the language's rules."""

    name: str


Node = Text | Chars | Token | Free | Json | Sequence | Choice | Repeat | Rule


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    root: Node
    rules: Mapping[str, Node]
    loosened: Iterable[Loosened] = ()
    """What no dialect is told."""


NOTHING = Sequence(())
# As much as any template writes, and not so much that a model could lose itself in it.
SPACE = Repeat(Chars((" ", "\n", "\t")), 0, 20)
SOME_SPACE = Repeat(Chars((" ", "\n", "\t")), 1, 20)


def sequence(*items: Node) -> Node:
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Sequence) else (item,)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(*items: Node) -> Node:
    return items[0] if len(items) == 1 else Choice(items)


def maybe(*items: Node) -> Node:
    return Repeat(sequence(*items), 0, 1)


def unbounded(text: Free) -> list[Loosened]:
    """What is lost where the length of free text cannot be said."""
    if not text.least and text.most is None:
        return []
    return [Loosened(text.where, "`minLength` and `maxLength` are not enforced between tags")]
