"""What the states of `clear` are made of: the nodes of a language, each with a number, and what each begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from .. import forbidden_words as avoid
from ..language import (
    EVERY,
    SOME_SPACE,
    SPACE,
    Chars,
    Choice,
    Json,
    Lexeme,
    Node,
    Ranges,
    Repeat,
    Rule,
    Sequence,
    Text,
    TextExcept,
    Token,
    all_but,
    union,
)

MOST_WAYS = 64
"""How many ways may be open at once. To llama.cpp each is a pass over the vocabulary."""
_MOST_SPACE = 42  # what the two kinds have together
MOST_TIMES = 1_000
"""What is counted further is counted by the thousand, for which several ways are open at once."""

machine = lru_cache(maxsize=64)(avoid.machine)

Item = int
EMPTY: Item = 0


class TooAmbiguous(ValueError):
    """Too many ways are open at once, or it takes too many states to tell them apart. (Or there is none at all.)"""


@dataclass(frozen=True, slots=True)
class Leaf:
    node: Text | Chars | Token


@dataclass(frozen=True, slots=True)
class Unspelled:
    """Free text from a state of its machine on."""

    words: tuple[str, ...]
    clean_end: bool
    at: int = 0

    @property
    def state(self) -> avoid.State:
        return machine(self.words)[self.at]

    @property
    def may_end(self) -> bool:
        return not (self.clean_end and self.state.pending)


@dataclass(frozen=True, slots=True)
class Named:
    name: str


@dataclass(frozen=True, slots=True)
class Concat:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    items: frozenset[Item]


@dataclass(frozen=True, slots=True)
class Times:
    item: Item
    least: int
    most: int | None


Shape = Leaf | Unspelled | Named | Concat | OneOf | Times


class Items:
    """Nodes with numbers: equal ones have the same. Item 0 is the empty text."""

    def __init__(self, rule: Callable[[str], Node], whole: Callable[[Json | Token, bool], Node | None]) -> None:
        self.shapes: list[Shape] = [Concat(())]
        self._numbers: dict[Shape, Item] = {self.shapes[0]: EMPTY}
        self._rule, self._whole = rule, whole
        self._bodies: dict[str, Item | None] = {}  # None while it is made
        self._names: dict[Item, str] = {}
        self._nullable: dict[Item, bool] = {EMPTY: True}
        self._first: dict[Item, Ranges] = {EMPTY: ()}
        self._height: dict[Item, int] = {EMPTY: 0}

    def of(self, node: Node, spaced: bool = False) -> Item:
        """`spaced` says that there may be whitespace before it."""
        match node:
            case Text(text):
                return self._leaf(node) if text else EMPTY
            case Chars():
                return self.chars(node.members)
            case TextExcept(words, clean_end):
                return self._number(Unspelled(words, clean_end))
            case Json() | Token():
                inner = self._whole(node, spaced)
                if inner is not None:
                    return self.of(inner)
                assert isinstance(node, Token)
                return self._leaf(node)
            case Sequence(items):
                return self.row(self._spaced(items, spaced))
            case Choice(items):
                return self.one_of(self.of(item, spaced) for item in items)
            case Repeat(item, least, most):
                return self.times(self.of(item), least, most)
            case Lexeme(item):
                return self.of(item, spaced)
            case Rule(name):
                return self.named(name)
        raise AssertionError(node)

    def _spaced(self, nodes: tuple[Node, ...], spaced: bool) -> Iterator[Item]:
        """The items of a sequence. Whitespace, and then that of a JSON value, is as much whitespace of any kind."""
        for node, after in zip(nodes, (*nodes[1:], None), strict=False):
            space = isinstance(node, Repeat) and node in (SPACE, SOME_SPACE)
            if isinstance(node, Repeat) and space and _begins_json(after):
                node = Repeat(node.item, node.least, _MOST_SPACE)
            yield self.of(node, spaced)
            spaced = space

    def _number(self, shape: Shape) -> Item:
        if shape not in self._numbers:
            self._numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self._numbers[shape]

    def _leaf(self, node: Text | Chars | Token) -> Item:
        return self._number(Leaf(node))

    def text(self, text: str) -> Item:
        return self._leaf(Text(text)) if text else EMPTY

    def chars(self, ranges: Ranges) -> Item:
        one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        return self.text(chr(ranges[0][0])) if one else self._leaf(Chars(ranges))

    def row(self, items: Iterable[Item]) -> Item:
        flat: list[Item] = []
        for item in items:
            shape = self.shapes[item]
            flat += shape.items if isinstance(shape, Concat) else (item,)
        return flat[0] if len(flat) == 1 else self._number(Concat(tuple(flat)))

    def one_of(self, items: Iterable[Item]) -> Item:
        kept: dict[Item, None] = {}
        ranges: list[tuple[int, int]] = []
        for item in items:
            shape = self.shapes[item]
            for inner in shape.items if isinstance(shape, OneOf) else (item,):
                match self.shapes[inner]:
                    case Leaf(Chars(some)):
                        ranges += some
                    case Leaf(Text(text)) if len(text) == 1:
                        ranges.append((ord(text), ord(text)))
                    case _:
                        kept[inner] = None
        if ranges:
            kept[self.chars(union(ranges))] = None
        return next(iter(kept)) if len(kept) == 1 else self._number(OneOf(frozenset(kept)))

    def times(self, item: Item, least: int, most: int | None) -> Item:
        """It, so many times: never of what can be empty, and no counts of counts where one says the same."""
        if self.nullable(item):
            item, least = self._not_empty(item), 0
        shape = self.shapes[item]
        if item == EMPTY or most == 0:
            return EMPTY
        if least == most == 1:
            return item
        if isinstance(shape, Times):
            low, high = shape.least, shape.most
            # Without gaps: at least as many once more are no more than one beyond the most so far.
            if least == most or low <= 1 or (least and (high is None or low <= least * (high - low) + 1)):
                return self.times(shape.item, low * least, None if most is None or high is None else high * most)
        return self._number(Times(item, least, most))

    def _not_empty(self, item: Item) -> Item:
        """The same but for the empty text; where that cannot be said, the same."""
        match self.shapes[item]:
            case Concat(items) if items:
                if len(items) > MOST_WAYS:
                    raise TooAmbiguous
                ways: list[Item] = []
                for at, head in enumerate(items):
                    ways.append(self.row([self._not_empty(head), *items[at + 1 :]]))
                    if not self.nullable(head):
                        break
                return self.one_of(ways)
            case OneOf(items):
                return self.one_of(self._not_empty(inner) for inner in items if inner != EMPTY)
            case Times(inner, 0, most):
                return self.times(inner, 1, most)
            case Named(name):
                return self._not_empty(self._made(name))
        return item

    def named(self, name: str) -> Item:
        """A rule; what is short stands for itself."""
        body = self.body(name)
        if body is None:
            return self._number(Named(name))
        shape = self.shapes[body]
        if isinstance(shape, Leaf | Named | Times) or body == EMPTY:
            return body
        return self._number(Named(self._names.setdefault(body, name)))

    def body(self, name: str) -> Item | None:
        if name not in self._bodies:
            self._bodies[name] = None
            self._bodies[name] = self.of(self._rule(name))
        return self._bodies[name]

    def _made(self, name: str) -> Item:
        body = self.body(name)
        assert body is not None
        return body

    def opened(self, item: Item) -> list[tuple[Item, ...]]:
        """The rows of items that it may be."""
        match self.shapes[item]:
            case Named(name):
                return [(self._made(name),)]
            case OneOf(items):
                return [(inner,) for inner in items]
            case Times(inner, 0, most):
                return [(), (inner, self.times(inner, 0, None if most is None else most - 1))]
            case Times(inner, least, most):
                return [(inner, self.times(inner, least - 1, None if most is None else most - 1))]
            case Concat(items):
                return [items]
            case Unspelled() as text:
                return self._unspelled(text)
            case Leaf():
                return [(item,)]

    def _unspelled(self, text: Unspelled) -> list[tuple[Item, ...]]:
        state = text.state
        others = self.chars(all_but(*state.moves, *state.barred).members)
        rows = [(others, self._number(replace(text, at=0)))]
        rows += [(self.text(char), self._number(replace(text, at=to))) for char, to in sorted(state.moves.items())]
        return [*rows, *([()] if text.may_end else [])]

    # What is known of an item by its parts alone. A rule never begins with itself.

    def nullable(self, item: Item) -> bool:
        if item not in self._nullable:
            self._nullable[item] = False
            match self.shapes[item]:
                case Leaf():
                    found = False
                case Unspelled() as text:
                    found = text.may_end
                case Named(name):
                    body = self.body(name)
                    if body is None:  # it is being made, and so has something around it
                        del self._nullable[item]
                        return False
                    found = self.nullable(body)
                case Concat(items):
                    found = all(map(self.nullable, items))
                case OneOf(items):
                    found = any(map(self.nullable, items))
                case Times(_, least):
                    found = least == 0
            self._nullable[item] = found
        return self._nullable[item]

    def first(self, item: Item) -> Ranges:
        """The characters that it can begin with."""
        if item not in self._first:
            self._first[item] = ()
            match self.shapes[item]:
                case Leaf(Text(text)):
                    found: Ranges = ((ord(text[0]), ord(text[0])),)
                case Leaf(Chars(ranges)):
                    found = ranges
                case Unspelled():
                    found = EVERY
                case Leaf():
                    found = ()
                case Named(name):
                    found = self.first(self._made(name))
                case Concat(items):
                    found = self.first_of(items)
                case OneOf(items):
                    found = union(some for inner in items for some in self.first(inner))
                case Times(inner):
                    found = self.first(inner)
            self._first[item] = found
        return self._first[item]

    def first_of(self, items: Iterable[Item]) -> Ranges:
        found: list[tuple[int, int]] = []
        for item in items:
            found += self.first(item)
            if not self.nullable(item):
                break
        return union(found)

    def check_counts(self) -> None:
        """Raise `TooAmbiguous` where counts by the thousand stand too deep in each other: their ways multiply."""
        ways = [1] * len(self.shapes)
        changed = True
        while changed:
            changed = False
            for item, shape in enumerate(self.shapes):
                match shape:
                    case Leaf() | Unspelled():
                        found = 1
                    case Named(name):
                        found = ways[self._made(name)]
                    case Concat(items) | OneOf(items):
                        found = max((ways[inner] for inner in items), default=1)
                    case Times(inner, least, most):
                        found = ways[inner] * _ways_of_counting(0 if most is None else most - least)
                if found > MOST_WAYS:
                    raise TooAmbiguous
                changed |= found > ways[item]
                ways[item] = found

    def height(self, item: Item) -> int:
        if item not in self._height:
            self._height[item] = 1
            match self.shapes[item]:
                case Leaf():
                    found = 0
                case Unspelled():
                    found = 1
                case Named(name):
                    found = self.height(self._made(name)) + 1
                case Concat(items) | OneOf(items):
                    found = max(map(self.height, items)) + 1
                case Times(inner):
                    found = self.height(inner) + 1
            self._height[item] = found
        return self._height[item]


def _begins_json(node: Node | None) -> bool:
    return isinstance(node, Json) or (isinstance(node, Choice) and any(map(_begins_json, node.items)))


def _ways_of_counting(most: int) -> int:
    """In how many ways as many as that are counted at once: by the thousand up to the last, by the thousand, one by
    one."""
    ways = 1
    while most >= MOST_TIMES:
        most //= MOST_TIMES
        ways += 2
    return ways
