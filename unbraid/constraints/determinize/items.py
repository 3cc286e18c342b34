"""The items that states are made of: nodes of a language, numbered, so that equal ones are the same number.

Numbers make sets of stacks cheap to compare. On the way the nodes are simplified: JSON values become rules, counts of
counts become one count, whitespace before a value's own whitespace becomes one repetition. What is known of an item by
its parts alone is computed here: whether it may be empty (`nullable`), and the characters that it may begin with
(`first`), as for any LL grammar. No rule begins with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ...metering import spend
from ...schema.regular import EVERY, Chars, Node, OneOf, Ranges, Repeat, Sequence, Verbatim, union
from ..automata import Automaton, AutomatonState, TooManyStates, automaton, free_text
from ..language import MOST_SPACE, SOME_SPACE, SPACE, Json, Lexeme, Rule, TextExcept, TextOf, Token
from ..schema_grammar import MOST_JSON_SPACE

MOST_STACKS = 64
"""How many stacks llama.cpp may have at once. Each costs it a pass over the vocabulary."""
MOST_TIMES = 1_000
"""Larger counts are printed as counts of thousands, which take several stacks at once."""

Item = int
EMPTY: Item = 0


class TooAmbiguous(ValueError):
    """A grammar that cannot be determinised within bounds: it needs too many stacks or states, or matches nothing."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Text, a character class or a token."""

    node: Verbatim | Chars | Token


@dataclass(frozen=True, slots=True)
class FreeText:
    """Text without forbidden words, from a state of its automaton on."""

    words: tuple[str, ...]
    clean_end: bool
    at: int = 0

    @property
    def automaton(self) -> Automaton:
        return free_text(self.words, self.clean_end)

    @property
    def state(self) -> AutomatonState:
        return self.automaton.states[self.at]


@dataclass(frozen=True, slots=True)
class InState:
    """What an automaton reads, from a state on."""

    automaton: Automaton
    at: int = 0

    @property
    def state(self) -> AutomatonState:
        return self.automaton.states[self.at]


@dataclass(frozen=True, slots=True)
class Named:
    """A rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Concat:
    """One item after the other."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the items."""

    items: frozenset[Item]


@dataclass(frozen=True, slots=True)
class Times:
    """An item, so many times."""

    item: Item
    least: int
    most: int | None


Shape = Leaf | FreeText | InState | Named | Concat | Alternation | Times


class Items:
    """Nodes with numbers: equal ones have the same. Item 0 is the empty text. `rule` gives the node of a rule;
    `replacement` gives the node that stands for a JSON value or a token, if that does not stand for itself."""

    def __init__(self, rule: Callable[[str], Node], replacement: Callable[[Json | Token, bool], Node | None]) -> None:
        self.shapes: list[Shape] = [Concat(())]
        self._numbers: dict[Shape, Item] = {self.shapes[0]: EMPTY}
        self._rule, self._replacement = rule, replacement
        self._bodies: dict[str, Item | None] = {}  # None while it is made
        self._names: dict[Item, str] = {}
        self._nullable: dict[Item, bool] = {EMPTY: True}
        self._first: dict[Item, Ranges] = {EMPTY: ()}
        self._height: dict[Item, int] = {EMPTY: 0}
        self._of_nodes: dict[tuple[int, bool], tuple[Node, Item]] = {}  # by their ids, which are theirs while they are
        self._stacks_of: list[int] = []

    def copy(self, rule: Callable[[str], Node], replacement: Callable[[Json | Token, bool], Node | None]) -> Items:
        """The same items to go on with."""
        items = Items(rule, replacement)
        items.shapes, items._numbers, items._bodies = self.shapes.copy(), self._numbers.copy(), self._bodies.copy()
        items._names, items._nullable, items._first = self._names.copy(), self._nullable.copy(), self._first.copy()
        items._height, items._of_nodes, items._stacks_of = (
            self._height.copy(),
            self._of_nodes.copy(),
            self._stacks_of.copy(),
        )
        return items

    def of(self, node: Node, spaced: bool = False) -> Item:
        """`spaced` says that there may be whitespace before it."""
        kept = self._of_nodes.get((id(node), spaced))
        if kept is None:
            spend()
            kept = self._of_nodes[id(node), spaced] = node, self._of(node, spaced)
        return kept[1]

    def _of(self, node: Node, spaced: bool) -> Item:
        match node:
            case Verbatim(text):
                return self._leaf(node) if text else EMPTY
            case Chars():
                return self.chars(node.members)
            case TextExcept(words, clean_end):
                return self._number(FreeText(words, clean_end))
            case TextOf(item, without):
                try:
                    return self._number(InState(automaton(item, without)))
                except TooManyStates:
                    raise TooAmbiguous from None
            case Json() | Token():
                inner = self._replacement(node, spaced)
                if inner is not None:
                    return self.of(inner)
                assert isinstance(node, Token)
                return self._leaf(node)
            case Sequence(items):
                return self.concat(self._spaced(items, spaced))
            case OneOf(items):
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
                node = Repeat(node.item, node.least, MOST_SPACE + MOST_JSON_SPACE)
            yield self.of(node, spaced)
            spaced = space

    def _number(self, shape: Shape) -> Item:
        number = self._numbers.get(shape)  # once: shapes are long to hash
        if number is None:
            spend()
            number = self._numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
        return number

    def _leaf(self, node: Verbatim | Chars | Token) -> Item:
        return self._number(Leaf(node))

    def text(self, text: str) -> Item:
        return self._leaf(Verbatim(text)) if text else EMPTY

    def chars(self, ranges: Ranges) -> Item:
        one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        return self.text(chr(ranges[0][0])) if one else self._leaf(Chars(ranges))

    def concat(self, items: Iterable[Item]) -> Item:
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
            for inner in shape.items if isinstance(shape, Alternation) else (item,):
                match self.shapes[inner]:
                    case Leaf(Chars(some)):
                        ranges += some
                    case Leaf(Verbatim(text)) if len(text) == 1:
                        ranges.append((ord(text), ord(text)))
                    case _:
                        kept[inner] = None
        if ranges:
            kept[self.chars(union(ranges))] = None
        return next(iter(kept)) if len(kept) == 1 else self._number(Alternation(frozenset(kept)))

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
        spend()
        match self.shapes[item]:
            case Concat(items) if items:
                if len(items) > MOST_STACKS:
                    raise TooAmbiguous
                ways: list[Item] = []
                for at, head in enumerate(items):
                    ways.append(self.concat([self._not_empty(head), *items[at + 1 :]]))
                    if not self.nullable(head):
                        break
                return self.one_of(ways)
            case Alternation(items):
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

    def expansions(self, item: Item) -> list[tuple[Item, ...]]:
        """The sequences of items that it may be."""
        match self.shapes[item]:
            case Named(name):
                return [(self._made(name),)]
            case Alternation(items):
                return [(inner,) for inner in items]
            case Times(inner, 0, most):
                return [(), (inner, self.times(inner, 0, None if most is None else most - 1))]
            case Times(inner, least, most):
                return [(inner, self.times(inner, least - 1, None if most is None else most - 1))]
            case Concat(items):
                return [items]
            case FreeText() | InState() as read:
                state = read.state
                moves = [(self.chars(ranges), self._number(replace(read, at=to))) for ranges, to in state.moves]
                return [*moves, *([()] if state.ends else [])]
            case Leaf():
                return [(item,)]

    # What is known of an item by its parts alone. A rule never begins with itself.

    def nullable(self, item: Item) -> bool:
        if item not in self._nullable:
            self._nullable[item] = False
            match self.shapes[item]:
                case Leaf():
                    empty = False
                case FreeText() | InState() as read:
                    empty = read.state.ends
                case Named(name):
                    body = self.body(name)
                    if body is None:  # it is being made, and so has something around it
                        del self._nullable[item]
                        return False
                    empty = self.nullable(body)
                case Concat(items):
                    empty = all(map(self.nullable, items))
                case Alternation(items):
                    empty = any(map(self.nullable, items))
                case Times(_, least):
                    empty = least == 0
            self._nullable[item] = empty
        return self._nullable[item]

    def first(self, item: Item) -> Ranges:
        """The characters that it can begin with."""
        if item not in self._first:
            spend()
            self._first[item] = ()
            match self.shapes[item]:
                case Leaf(Verbatim(text)):
                    ranges: Ranges = ((ord(text[0]), ord(text[0])),)
                case Leaf(Chars(ranges)):
                    pass
                case FreeText():
                    ranges = EVERY
                case InState(driven, at):
                    ranges = driven.first(at)
                case Leaf():
                    ranges = ()
                case Named(name):
                    ranges = self.first(self._made(name))
                case Concat(items):
                    ranges = self.first_of(items)
                case Alternation(items):
                    ranges = union(some for inner in items for some in self.first(inner))
                case Times(inner):
                    ranges = self.first(inner)
            self._first[item] = ranges
        return self._first[item]

    def first_of(self, items: Iterable[Item]) -> Ranges:
        ranges: list[tuple[int, int]] = []
        for item in items:
            ranges += self.first(item)
            if not self.nullable(item):
                break
        return union(ranges)

    def check_counts(self) -> None:
        """Raise `TooAmbiguous` where counts of thousands stand too deep in each other: their stacks multiply."""
        stacks = self._stacks_of
        begin = len(stacks)
        stacks += [1] * (len(self.shapes) - begin)
        changed = True
        while changed:
            changed = False
            spend(len(self.shapes) - begin)
            for item, shape in enumerate(self.shapes[begin:], begin):
                match shape:
                    case Leaf() | FreeText() | InState():
                        count = 1
                    case Named(name):
                        count = stacks[self._made(name)]
                    case Concat(items) | Alternation(items):
                        count = max((stacks[inner] for inner in items), default=1)
                    case Times(inner, least, most):
                        count = stacks[inner] * _stacks_of_counting(0 if most is None else most - least)
                if count > MOST_STACKS:
                    raise TooAmbiguous
                changed |= count > stacks[item]
                stacks[item] = count

    def height(self, item: Item) -> int:
        """How deep items are nested in it; expanding it gives items that are lower."""
        if item not in self._height:
            spend()
            self._height[item] = 1
            match self.shapes[item]:
                case Leaf():
                    deep = 0
                case FreeText() | InState():
                    deep = 1
                case Named(name):
                    deep = self.height(self._made(name)) + 1
                case Concat(items) | Alternation(items):
                    deep = max(map(self.height, items)) + 1
                case Times(inner):
                    deep = self.height(inner) + 1
            self._height[item] = deep
        return self._height[item]


def _begins_json(node: Node | None) -> bool:
    return isinstance(node, Json) or (isinstance(node, OneOf) and any(map(_begins_json, node.items)))


def _stacks_of_counting(most: int) -> int:
    """How many stacks follow a count of that size: it may be in the last thousand, in one before, or among the single
    ones after them."""
    stacks = 1
    while most >= MOST_TIMES:
        most //= MOST_TIMES
        stacks += 2
    return stacks
