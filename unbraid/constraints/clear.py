"""A language written anew, so that the next character says which way it goes.

llama.cpp keeps a stack for each way that a grammar leaves open, and tries every token of the vocabulary on every one of
them; where ways part and meet again inside of a token, their number grows with each character, without bounds. And it
cannot be stopped meanwhile. So nothing is left open here. As in the making of a deterministic automaton, a state is
what may still come: a set of rows of items. Where all rows begin with the same item, and its end is plain to see, it
comes next as it is, so that values that nest in each other stay rules. Otherwise the rows are opened up to their first
characters and sorted by these.

Only free text is not looked into for its end: the builder sees to it that it ends with what it must not spell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from . import avoid
from .language import (
    EVERY,
    SOME_SPACE,
    SPACE,
    Chars,
    Choice,
    Free,
    Json,
    Node,
    Ranges,
    Repeat,
    Rule,
    Sequence,
    Text,
    Token,
    Whole,
    all_but,
    union,
)

MOST_WAYS = 64
"""How many ways may be open at once. To llama.cpp each is a pass over the vocabulary."""
MOST_WORK = 400_000
"""How many rows are looked at: about a second."""
_MOST_TRIES = 10
_MOST_SPACE = 42  # what the two kinds have together
MOST_TIMES = 1_000
"""What is counted further is counted by the thousand, for which several ways are open at once."""

machine = lru_cache(maxsize=64)(avoid.machine)

Item = int
Row = int
State = frozenset[Row]
END: Row = 0
ENDED: State = frozenset({END})
_EMPTY: Item = 0


class TooOpen(ValueError):
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
class InARow:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    items: frozenset[Item]


@dataclass(frozen=True, slots=True)
class Times:
    item: Item
    least: int
    most: int | None


Shape = Leaf | Unspelled | Named | InARow | OneOf | Times


@dataclass(frozen=True, slots=True)
class Way:
    """An item, and what may come after it."""

    item: Item
    then: State


@dataclass(frozen=True, slots=True)
class Ways:
    """What may come in a state."""

    ways: tuple[Way, ...]
    ends: bool
    """Or nothing at all."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an item ends."""

    more: Ranges = ()
    """Characters that may come although it could have ended before them,"""
    open: int = 0
    """and in how many ways they do."""


class Items:
    """Nodes with numbers: equal ones have the same. Item 0 is the empty text."""

    def __init__(self, rule: Callable[[str], Node], whole: Callable[[Json | Token, bool], Node | None]) -> None:
        self.shapes: list[Shape] = [InARow(())]
        self._numbers: dict[Shape, Item] = {self.shapes[0]: _EMPTY}
        self._rule, self._whole = rule, whole
        self._bodies: dict[str, Item | None] = {}  # None while it is made
        self._names: dict[Item, str] = {}
        self._nullable: dict[Item, bool] = {_EMPTY: True}
        self._first: dict[Item, Ranges] = {_EMPTY: ()}
        self._height: dict[Item, int] = {_EMPTY: 0}

    def of(self, node: Node, spaced: bool = False) -> Item:
        """`spaced` says that there may be whitespace before it."""
        match node:
            case Text(text):
                return self._leaf(node) if text else _EMPTY
            case Chars():
                return self.chars(node.members)
            case Free(words, clean_end):
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
            case Whole(item):
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
        return self._leaf(Text(text)) if text else _EMPTY

    def chars(self, ranges: Ranges) -> Item:
        one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        return self.text(chr(ranges[0][0])) if one else self._leaf(Chars(ranges))

    def row(self, items: Iterable[Item]) -> Item:
        flat: list[Item] = []
        for item in items:
            shape = self.shapes[item]
            flat += shape.items if isinstance(shape, InARow) else (item,)
        return flat[0] if len(flat) == 1 else self._number(InARow(tuple(flat)))

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
        if item == _EMPTY or most == 0:
            return _EMPTY
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
            case InARow(items) if items:
                if len(items) > MOST_WAYS:
                    raise TooOpen
                ways: list[Item] = []
                for at, head in enumerate(items):
                    ways.append(self.row([self._not_empty(head), *items[at + 1 :]]))
                    if not self.nullable(head):
                        break
                return self.one_of(ways)
            case OneOf(items):
                return self.one_of(self._not_empty(inner) for inner in items if inner != _EMPTY)
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
        if isinstance(shape, Leaf | Named | Times) or body == _EMPTY:
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
            case InARow(items):
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
                case InARow(items):
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
                case InARow(items):
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
        """Raise `TooOpen` where counts by the thousand stand too deep in each other: their ways multiply."""
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
                    case InARow(items) | OneOf(items):
                        found = max((ways[inner] for inner in items), default=1)
                    case Times(inner, least, most):
                        found = ways[inner] * _ways_of_counting(0 if most is None else most - least)
                if found > MOST_WAYS:
                    raise TooOpen
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
                case InARow(items) | OneOf(items):
                    found = max(map(self.height, items)) + 1
                case Times(inner):
                    found = self.height(inner) + 1
            self._height[item] = found
        return self._height[item]


def _apart(one: Ranges, other: Ranges) -> bool:
    """Whether no character is in both."""
    edges = sorted([*one, *other])
    return all(high < low for (_, high), (low, _) in pairwise(edges))


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


class States:
    """The states of a language: those of its root, and those of every item that comes as it is."""

    def __init__(self, items: Items, most_work: int = MOST_WORK) -> None:
        self.items = items
        self._cells: list[tuple[Item, Row]] = [(_EMPTY, END)]
        self._rows: dict[tuple[Item, Row], Row] = {}
        self._cut: dict[tuple[Row, int], Row] = {}
        self._open_rows: dict[Row, State] = {}
        self._may_end: dict[Row, bool] = {END: True}
        self.work, self._most_work = 0, most_work
        self._known: dict[Item, Ending] = {}  # of what nests in itself
        self._forget()

    def _forget(self) -> None:
        self._ways: dict[State, Ways] = {}
        self._endings: dict[Item, Ending] = {}
        self._making: set[Item] = set()
        self._guessed: set[Item] = set()
        self._widths: dict[State, int] = {}

    def check(self, roots: Iterable[Item]) -> None:
        """Make the states of all of them, or raise `TooOpen`."""
        roots = list(roots)
        self.items.check_counts()
        tries = 0
        for root in roots:
            while wrong := self._wrong(root):
                self._known |= wrong
                self._forget()
                tries += 1
                if tries > _MOST_TRIES:
                    raise TooOpen
        for state in self.all(map(self.start, roots)):
            widest = [self.ending(way.item).open + self.width(way.then) for way in self.ways(state).ways]
            if max([self.width(state), *widest]) > MOST_WAYS:
                raise TooOpen

    def _wrong(self, root: Item) -> dict[Item, Ending]:
        """What was taken for granted while the states of the root were made, as it has turned out to be."""
        self.ending(root)
        guessed, self._guessed = self._guessed, set()
        found = {item: self.ending(item) for item in guessed}
        return {item: ending for item, ending in found.items() if ending != self._known.get(item, Ending())}

    def all(self, starts: Iterable[State]) -> Iterator[State]:
        """All states from there on, also those inside of items."""
        done: set[State] = set()
        todo = list(starts)
        while todo:
            for state in self.reached(todo.pop(), done):
                yield state
                todo += [self.start(inner) for inner in self.inner(state)]

    def inner(self, state: State) -> Iterator[Item]:
        """What has states of its own among the items that may come."""
        for way in self.ways(state).ways:
            item, shape = way.item, self.items.shapes[way.item]
            while isinstance(shape, Times) and self.loops_plainly(shape):
                item, shape = shape.item, self.items.shapes[shape.item]
            if not isinstance(shape, Leaf | Unspelled):
                yield item

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > self._most_work:
            raise TooOpen

    # --- Rows ----------------------------------------------------------------------------------------------------

    def push(self, items: Iterable[Item], row: Row) -> Row:
        """The items, and then the row."""
        for item in reversed(tuple(items)):
            shape = self.items.shapes[item]
            if isinstance(shape, InARow):
                row = self.push(shape.items, row)
            else:
                cell = item, row
                if cell not in self._rows:
                    self._rows[cell] = len(self._cells)
                    self._cells.append(cell)
                row = self._rows[cell]
        return row

    def start(self, item: Item) -> State:
        """Where an item begins."""
        return frozenset(self.push(items, END) for items in self.items.opened(item))

    def first(self, state: State) -> Ranges:
        found: set[tuple[int, int]] = set()
        seen: set[Row] = {END}
        for row in state:
            while row not in seen:
                seen.add(row)
                item, row_after = self._cells[row]
                found.update(self.items.first(item))
                if not self.items.nullable(item):
                    break
                row = row_after
        self.spend(len(seen) + len(found) // 16)
        return union(found)

    def nullable(self, state: State) -> bool:
        return any(map(self._nullable, state))

    def _nullable(self, row: Row) -> bool:
        if row not in self._may_end:
            after = row
            while after != END and self.items.nullable(self._cells[after][0]):
                after = self._cells[after][1]
            self._may_end[row] = after == END
        return self._may_end[row]

    # --- States --------------------------------------------------------------------------------------------------

    def ways(self, state: State) -> Ways:
        if state not in self._ways:
            self._ways[state] = self._found(state)
        return self._ways[state]

    def _found(self, state: State) -> Ways:
        ends = END in state
        tall: dict[int, set[Row]] = {}  # the rows by how much there is to be opened

        def add(rows: Iterable[Row]) -> None:
            for row in rows:
                tall.setdefault(self.items.height(self._cells[row][0]), set()).add(row)

        add(state - ENDED)
        while tall:
            highest = max(tall)
            rows = tall[highest]
            self.spend(len(rows))
            heads = {self._cells[row][0] for row in rows}
            if len(tall) == len(heads) == 1:
                (head,) = heads
                then = frozenset(self._cells[row][1] for row in rows)
                if self._ends_plainly(head, then):
                    return Ways((Way(head, then),), ends)
            if highest == 0:
                ways = self._sorted(rows)
                if not ways and not ends:
                    raise TooOpen
                return Ways(ways, ends)
            del tall[highest]
            opened = set[Row]().union(*map(self._opened, rows))
            ends = ends or END in opened
            add(opened - ENDED)
        return Ways((), ends)

    def _opened(self, row: Row) -> State:
        if row not in self._open_rows:
            head, after = self._cells[row]
            self._open_rows[row] = frozenset(self.push(items, after) for items in self.items.opened(head))
        return self._open_rows[row]

    def _ends_plainly(self, item: Item, then: State) -> bool:
        shape = self.items.shapes[item]
        if isinstance(shape, Leaf | Unspelled):
            return True
        if isinstance(shape, Times) and not self.loops_plainly(shape):
            return False
        if then == ENDED:
            return True
        more = self.ending(item).more
        return not more or _apart(more, self.first(then))

    def _sorted(self, rows: set[Row]) -> tuple[Way, ...]:
        """The rows by their first characters, or all of them by the text that they share."""
        shared = self._shared(rows)
        if len(shared) > 1:
            return (Way(self.items.text(shared), frozenset(self._past(row, len(shared)) for row in rows)),)
        edges: list[tuple[int, bool, Row]] = []
        others: dict[Item, set[Row]] = {}
        for row in rows:
            head, then = self._cells[row]
            match self.items.shapes[head]:
                case Leaf(Text(text)):
                    ranges: Ranges = ((ord(text[0]), ord(text[0])),)
                    then = self._past(row, 1)
                case Leaf(Chars(ranges)):
                    pass
                case _:
                    others.setdefault(head, set()).add(then)
                    continue
            for low, high in ranges:
                edges += [(low, True, then), (high + 1, False, then)]
        edges.sort(key=lambda edge: edge[0])
        found: dict[State, list[tuple[int, int]]] = {}
        active: dict[Row, int] = {}
        last = 0
        for at, begins, then in edges:
            if at > last and active:
                found.setdefault(frozenset(active), []).append((last, at - 1))
                self.spend(len(active))
            last = at
            active[then] = active.get(then, 0) + (1 if begins else -1)
            if not active[then]:
                del active[then]
        ways = [Way(self.items.chars(union(some)), state) for state, some in found.items()]
        return (*ways, *(Way(head, frozenset(thens)) for head, thens in others.items()))

    def _shared(self, rows: set[Row]) -> str:
        """The text that all of them begin with."""
        texts: list[str] = []
        for row in rows:
            shape = self.items.shapes[self._cells[row][0]]
            if not isinstance(shape, Leaf) or not isinstance(shape.node, Text):
                return ""
            texts.append(shape.node.text)
        least, most = min(texts), max(texts)
        return least[: next((at for at, char in enumerate(least) if char != most[at]), len(least))]

    def _past(self, row: Row, count: int) -> Row:
        """What is left of a row without the first characters of its text."""
        if (row, count) not in self._cut:
            head, then = self._cells[row]
            shape = self.items.shapes[head]
            assert isinstance(shape, Leaf)
            assert isinstance(shape.node, Text)
            rest = shape.node.text[count:]
            self._cut[row, count] = self.push([self.items.text(rest)], then) if rest else then
        return self._cut[row, count]

    def reached(self, start: State, done: set[State] | None = None) -> list[State]:
        """All the states from there on, without those inside of items; not those that are done, to which they are
        added."""
        done = set() if done is None else done
        found: list[State] = []
        todo = [start]
        while todo:
            state = todo.pop()
            if state in done:
                continue
            done.add(state)
            found.append(state)
            todo += [way.then for way in reversed(self.ways(state).ways)]
        return found

    def loops_plainly(self, times: Times) -> bool:
        """Whether it is plain where one ends and the next begins."""
        if times.most == 1:
            return True
        return _apart(self.ending(times.item).more, self.items.first(times.item))

    def ending(self, item: Item) -> Ending:
        if item not in self._endings:
            if item in self._making:
                self._guessed.add(item)
                return self._known.get(item, Ending())
            self._making.add(item)
            self._endings[item] = self._ending(item)
            self._making.discard(item)
        return self._endings[item]

    def _ending(self, item: Item) -> Ending:
        shape = self.items.shapes[item]
        match shape:
            case Unspelled():
                return Ending(EVERY, self.width_of(item))
            case Leaf():
                return Ending()
            case Times(inner, least, most) if self.loops_plainly(shape):
                inside = self.ending(inner)
                if least == most:
                    return inside
                open = self.width_of(inner)
                open = max(inside.open, open) if most == 1 else inside.open + open
                return Ending(union((*inside.more, *self.items.first(inner))), open)
        extra, open = set[tuple[int, int]](), 0
        for state in self.reached(self.start(item)):
            found = self.ways(state)
            for way in found.ways:
                if self.nullable(way.then):
                    inside = self.ending(way.item)
                    extra.update(inside.more)
                    open = max(open, inside.open + self.width(way.then))
            if found.ends:
                open = max(open, self.width(state))
                for way in found.ways:
                    extra.update(self.items.first(way.item))
                    if self.items.nullable(way.item):
                        extra.update(self.first(way.then))
        return Ending(union(extra), open)

    # --- How many stacks these are to llama.cpp ------------------------------------------------------------------

    def width(self, state: State) -> int:
        if state not in self._widths:
            self._widths[state] = 0
            found = 0
            for way in self.ways(state).ways:
                found += self.width_of(way.item)
                if self.items.nullable(way.item):
                    found += self.width(way.then)
            self._widths[state] = found
        return self._widths[state]

    def width_of(self, item: Item) -> int:
        shape = self.items.shapes[item]
        match shape:
            case Leaf(Token(ranges)):
                return sum(last - first + 1 for first, last in ranges)
            case Unspelled():
                return len(shape.state.moves) + 1
            case Leaf():
                return 1
            case Times(inner) if self.loops_plainly(shape):
                return self.width_of(inner)
        return self.width(self.start(item))
