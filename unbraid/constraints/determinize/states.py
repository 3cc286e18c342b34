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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..language import EVERY, Chars, Ranges, Text, Token, union
from .items import EMPTY, MOST_WAYS, Concat, Item, Items, Leaf, Times, TooAmbiguous, Unspelled

MOST_WORK = 400_000
"""How many rows are looked at: about a second."""
_MOST_TRIES = 10

Row = int
State = frozenset[Row]
END: Row = 0
ENDED: State = frozenset({END})


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


class States:
    """The states of a language: those of its root, and those of every item that comes as it is."""

    def __init__(self, items: Items, most_work: int = MOST_WORK) -> None:
        self.items = items
        self._cells: list[tuple[Item, Row]] = [(EMPTY, END)]
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
        """Make the states of all of them, or raise `TooAmbiguous`."""
        roots = list(roots)
        self.items.check_counts()
        tries = 0
        for root in roots:
            while wrong := self._wrong(root):
                self._known |= wrong
                self._forget()
                tries += 1
                if tries > _MOST_TRIES:
                    raise TooAmbiguous
        for state in self.all(map(self.start, roots)):
            widest = [self.ending(way.item).open + self.width(way.then) for way in self.ways(state).ways]
            if max([self.width(state), *widest]) > MOST_WAYS:
                raise TooAmbiguous

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
            raise TooAmbiguous

    # --- Rows ----------------------------------------------------------------------------------------------------

    def push(self, items: Iterable[Item], row: Row) -> Row:
        """The items, and then the row."""
        for item in reversed(tuple(items)):
            shape = self.items.shapes[item]
            if isinstance(shape, Concat):
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
                    raise TooAmbiguous
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


def _apart(one: Ranges, other: Ranges) -> bool:
    """Whether no character is in both."""
    edges = sorted([*one, *other])
    return all(high < low for (_, high), (low, _) in pairwise(edges))
