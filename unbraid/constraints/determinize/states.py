"""Determinisation: a grammar rewritten so that the next character decides between its alternatives.

llama.cpp keeps a stack for each alternative that a grammar leaves open, and tries every token of the vocabulary on each
of them. Where alternatives part and meet again inside a token, the number of stacks grows with each character, without
bounds, and nothing can stop it meanwhile. So no alternatives are left open here.

As in the subset construction for automata, a state is what may still come: a set of stacks of items. Where all stacks
have the same item on top, and its end can be seen, that item is the only transition, so that values that nest in each
other stay rules. Otherwise the items on top are expanded, the highest first, down to characters, and the stacks are
sorted by these.

Whether the end of an item can be seen depends on what may follow it, and for recursive rules on itself. That is guessed
first, and done again where the guess was wrong (`check`).

The end of free text is never looked for: the builder sees to it that what follows is a word that the text must not
contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

from ...metering import spend, working_on
from ...schema.regular import EVERY, Chars, Ranges, Verbatim, union
from ..language import Token
from ..output_prefix import NotContinued, Written
from .items import EMPTY, MOST_STACKS, Concat, FreeText, InState, Item, Items, Leaf, Times, TooAmbiguous

MOST_WORK = 400_000
"""How many stacks are looked at: about a second."""
_MOST_TRIES = 10
_MOST_READINGS = 10_000
"""In how many ways a text that was written may be read."""

Stack = int
State = frozenset[Stack]
END: Stack = 0
ENDED: State = frozenset({END})
_READ = (Leaf, FreeText, InState)  # without states of their own
_LEFT_ALONE = (Leaf, FreeText)  # whose end is never looked for


@dataclass(frozen=True, slots=True)
class Transition:
    """An item, and what may come after it."""

    item: Item
    target: State


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """What may come in a state."""

    transitions: tuple[Transition, ...]
    ends: bool
    """Whether the text may end here."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an item ends."""

    continuations: Ranges = ()
    """The characters that may come although the item could have ended before them."""
    stacks: int = 0
    """How many of llama.cpp's stacks these characters are on."""


class States:
    """The states of a language: those of its root, and those of every item that comes as it is."""

    def __init__(self, items: Items, most_work: int = MOST_WORK) -> None:
        self.items = items
        self._stacks: list[tuple[Item, Stack]] = [(EMPTY, END)]
        self._numbers: dict[tuple[Item, Stack], Stack] = {}
        self._cut: dict[tuple[Stack, int], Stack] = {}
        self._expanded: dict[Stack, State] = {}
        self._starts: dict[Item, State] = {}
        self._may_end: dict[Stack, bool] = {END: True}
        self._later: dict[tuple[State, str], State] = {}
        self.work, self._most_work = 0, most_work
        self._known: dict[Item, Ending] = {}  # of what nests in itself
        self._steps: dict[State, TransitionRow] = {}
        self._endings: dict[Item, Ending] = {}
        self._widths: dict[State, int] = {}
        self._making: set[Item] = set()
        self._guessed: set[Item] = set()

    def copy(self, items: Items, most_work: int) -> States:
        """The same states to go on with; `items` are a copy of theirs."""
        states = States(items, most_work)
        states._stacks, states._numbers, states._cut = self._stacks.copy(), self._numbers.copy(), self._cut.copy()
        states._expanded, states._starts = self._expanded.copy(), self._starts.copy()
        states._may_end, states._later, states._known = self._may_end.copy(), self._later.copy(), self._known.copy()
        states._steps, states._endings, states._widths = self._steps.copy(), self._endings.copy(), self._widths.copy()
        return states

    def check(self, roots: Iterable[tuple[Item, str]], begun: State) -> list[State]:
        """All states from `begun` on, where the text goes on; raises `TooAmbiguous`. The roots are what it is made of,
        each with the part of a schema that it says and after those that it needs."""
        self.items.check_counts()
        tables: tuple[dict[Any, Any], ...] = (self._steps, self._endings, self._widths)
        for root, place in roots:
            working_on(place)
            sizes = [len(table) for table in tables]
            tries = 0
            while wrong := self._wrong(root):
                self._known |= wrong
                # What was made for this root may rest on the guess. What was there before does not.
                for table, size in zip(tables, sizes, strict=True):
                    while len(table) > size:
                        table.popitem()
                tries += 1
                if tries > _MOST_TRIES:
                    raise TooAmbiguous
        states = self.all([begun])
        for state in states:
            widest = self.width(state)
            for one in self.step(state).transitions:
                widest = max(widest, self.ending(one.item).stacks + self.width(one.target))
            if widest > MOST_STACKS:
                raise TooAmbiguous
        return states

    def _wrong(self, root: Item) -> dict[Item, Ending]:
        """Endings that were guessed while building the root, with their real values, where the guess was wrong."""
        self.ending(root)
        guessed, self._guessed = self._guessed, set()
        endings = {item: self.ending(item) for item in guessed}
        return {item: ending for item, ending in endings.items() if ending != self._known.get(item, Ending())}

    def all(self, starts: Iterable[State]) -> list[State]:
        """All states that can be reached, also those of the items on the way."""
        done: set[State] = set()
        states, todo = [], list(starts)
        while todo:
            reached = self.reached(todo.pop(), done)
            states += reached
            for state in reached:
                todo += self.inner(state)
        return states

    def inner(self, state: State) -> list[State]:
        """Where the items begin that may come next and have states of their own."""
        shapes, starts = self.items.shapes, []
        for transition in self.step(state).transitions:
            item = transition.item
            while isinstance(shape := shapes[item], Times) and self.is_unambiguous(shape):
                item = shape.item
            if not isinstance(shape, _READ):
                starts.append(self.start(item))
        return starts

    def follow(self, state: State) -> list[State]:
        """The states that a state leads to."""
        return [*(one.target for one in self.step(state).transitions), *self.inner(state)]

    @property
    def size(self) -> int:
        """How much is known of the states so far."""
        return len(self.items.shapes) + len(self._stacks) + len(self._later)

    def spend(self, work: int) -> None:
        spend(work)
        self.work += work
        if self.work > self._most_work:
            raise TooAmbiguous

    # --- Stacks --------------------------------------------------------------------------------------------------

    def push(self, items: tuple[Item, ...], stack: Stack) -> Stack:
        """The stack with the items on top, the first on the very top."""
        for item in items[::-1]:
            shape = self.items.shapes[item]
            if isinstance(shape, Concat):
                stack = self.push(shape.items, stack)
            else:
                cell = item, stack
                number = self._numbers.get(cell)
                if number is None:
                    number = self._numbers[cell] = len(self._stacks)
                    self._stacks.append(cell)
                stack = number
        return stack

    def start(self, item: Item) -> State:
        """Where an item begins."""
        if item not in self._starts:
            self._starts[item] = frozenset([self.push(items, END) for items in self.items.expansions(item)])
        return self._starts[item]

    def first(self, state: State) -> Ranges:
        ranges: set[tuple[int, int]] = set()
        seen: set[Stack] = {END}
        for stack in state:
            while stack not in seen:
                seen.add(stack)
                item, rest = self._stacks[stack]
                ranges.update(self.items.first(item))
                if not self.items.nullable(item):
                    break
                stack = rest
        self.spend(len(seen) + len(ranges) // 16)
        return union(ranges)

    def nullable(self, state: State) -> bool:
        return any(map(self._nullable, state))

    def _nullable(self, stack: Stack) -> bool:
        if stack not in self._may_end:
            after = stack
            while after != END and self.items.nullable(self._stacks[after][0]):
                after = self._stacks[after][1]
            self._may_end[stack] = after == END
        return self._may_end[stack]

    # --- States --------------------------------------------------------------------------------------------------

    def step(self, state: State) -> TransitionRow:
        """What may come in a state."""
        if state not in self._steps:
            self._steps[state] = self._make_step(state)
        return self._steps[state]

    def _make_step(self, state: State) -> TransitionRow:
        ends = END in state
        by_height: dict[int, set[Stack]] = {}  # of the item on top

        def add(stacks: Iterable[Stack]) -> None:
            for stack in stacks:
                by_height.setdefault(self.items.height(self._stacks[stack][0]), set()).add(stack)

        add(state - ENDED)
        while by_height:
            highest = max(by_height)
            stacks = by_height[highest]
            self.spend(len(stacks))
            heads = {self._stacks[stack][0] for stack in stacks}
            if len(by_height) == len(heads) == 1:
                (head,) = heads
                then = frozenset(self._stacks[stack][1] for stack in stacks)
                if self._has_visible_end(head, then):
                    return TransitionRow((Transition(head, then),), ends)
            if highest == 0:
                transitions = self._sorted(stacks)
                if not transitions and not ends:
                    raise TooAmbiguous
                return TransitionRow(transitions, ends)
            del by_height[highest]
            expanded = set[Stack]().union(*map(self._expansions, stacks))
            ends = ends or END in expanded
            add(expanded - ENDED)
        return TransitionRow((), ends)

    def _expansions(self, stack: Stack) -> State:
        if stack not in self._expanded:
            spend()
            head, after = self._stacks[stack]
            self._expanded[stack] = frozenset([self.push(items, after) for items in self.items.expansions(head)])
        return self._expanded[stack]

    def _has_visible_end(self, item: Item, then: State) -> bool:
        """Whether the next character says if the item goes on or what follows has begun."""
        shape = self.items.shapes[item]
        if isinstance(shape, _LEFT_ALONE):
            return True
        if isinstance(shape, Times) and not self.is_unambiguous(shape):
            return False
        if then == ENDED:
            return True
        more = self.ending(item).continuations
        return not more or _disjoint(more, self.first(then))

    def _sorted(self, stacks: set[Stack]) -> tuple[Transition, ...]:
        """The stacks by their first characters, or all of them by the text that they share."""
        shared = self._shared(stacks)
        if len(shared) > 1:
            return (Transition(self.items.text(shared), frozenset(self._past(stack, len(shared)) for stack in stacks)),)
        edges: list[tuple[int, bool, Stack]] = []
        others: dict[Item, set[Stack]] = {}
        spend(len(stacks))
        for stack in stacks:
            head, then = self._stacks[stack]
            match self.items.shapes[head]:
                case Leaf(Verbatim(text)):
                    ranges: Ranges = ((ord(text[0]), ord(text[0])),)
                    then = self._past(stack, 1)
                case Leaf(Chars(ranges)):
                    pass
                case _:
                    others.setdefault(head, set()).add(then)
                    continue
            for low, high in ranges:
                edges += [(low, True, then), (high + 1, False, then)]
        edges.sort(key=itemgetter(0))
        targets: dict[State, list[tuple[int, int]]] = {}
        active: dict[Stack, int] = {}
        last = 0
        for at, begins, then in edges:
            if at > last and active:
                targets.setdefault(frozenset(active), []).append((last, at - 1))
                self.spend(len(active))
            last = at
            active[then] = active.get(then, 0) + (1 if begins else -1)
            if not active[then]:
                del active[then]
        transitions = [Transition(self.items.chars(union(some)), state) for state, some in targets.items()]
        return (*transitions, *(Transition(head, frozenset(thens)) for head, thens in others.items()))

    def _shared(self, stacks: set[Stack]) -> str:
        """The text that all of them begin with."""
        texts: list[str] = []
        for stack in stacks:
            shape = self.items.shapes[self._stacks[stack][0]]
            if not isinstance(shape, Leaf) or not isinstance(shape.node, Verbatim):
                return ""
            texts.append(shape.node.text)
        least, most = min(texts), max(texts)
        return least[: next((at for at, char in enumerate(least) if char != most[at]), len(least))]

    def _past(self, stack: Stack, count: int) -> Stack:
        """What is left of a stack without the first characters of its text."""
        if (stack, count) not in self._cut:
            spend()
            head, then = self._stacks[stack]
            shape = self.items.shapes[head]
            assert isinstance(shape, Leaf)
            assert isinstance(shape.node, Verbatim)
            rest = shape.node.text[count:]
            self._cut[stack, count] = self.push((self.items.text(rest),), then) if rest else then
        return self._cut[stack, count]

    # --- What may come after a text ------------------------------------------------------------------------------

    def begun(self, item: Item, readings: Iterable[Iterable[Written]]) -> State:
        """Where an item is after one of these texts. Raises `NotContinued` where the item allows none of them."""
        start = self.start(item)
        state = frozenset[Stack]().union(*(self.after(start, prefix) for prefix in readings))
        if not state:
            raise NotContinued("the constraint does not allow what was written so far")
        return state

    def after(self, state: State, prefix: Iterable[Written]) -> State:
        """What may come after this text; none at all where the text is not allowed. Raises `TooAmbiguous` where there
        are too many ways to read it."""
        for symbol in prefix:
            if isinstance(symbol, str):
                for char in symbol:
                    state = self._after_char(state, char)
            else:  # a token may come by its id, and by its text where that stands for it
                spelled = self.after(state, [symbol.text]) if symbol.text else frozenset()
                state = self._after_token(state, symbol.id) | spelled
        return state

    def next_characters(self, state: State) -> Ranges:
        """The characters that may come next."""
        every = set[tuple[int, int]]()
        for stack in self._leaves(state):
            match self.items.shapes[self._stacks[stack][0]]:
                case Leaf(Verbatim(text)):
                    every.add((ord(text[0]), ord(text[0])))
                case Leaf(Chars(ranges)):
                    every.update(ranges)
        return union(every)

    def _after_char(self, state: State, char: str) -> State:
        if (state, char) not in self._later:
            code, stacks = ord(char), set[Stack]()
            for stack in self._leaves(state):
                shape = self.items.shapes[self._stacks[stack][0]]
                match shape:
                    case Leaf(Verbatim(text)) if text[0] == char:
                        stacks.add(self._past(stack, 1))
                    case Leaf(Chars(ranges)) if any(low <= code <= high for low, high in ranges):
                        stacks.add(self._stacks[stack][1])
            if len(stacks) > _MOST_READINGS:
                raise TooAmbiguous
            self._later[state, char] = frozenset(stacks)
        return self._later[state, char]

    def _after_token(self, state: State, token: int) -> State:
        stacks = set[Stack]()
        for stack in self._leaves(state):
            head, then = self._stacks[stack]
            match self.items.shapes[head]:
                case Leaf(Token(ranges)) if any(low <= token <= high for low, high in ranges):
                    stacks.add(then)
        return frozenset(stacks)

    def _leaves(self, state: State) -> list[Stack]:
        """The stacks with a leaf on top that it may be."""
        seen = set(state - ENDED)
        todo, leaves = list(seen), []
        while todo:
            spend()
            stack = todo.pop()
            if isinstance(self.items.shapes[self._stacks[stack][0]], Leaf):
                leaves.append(stack)
                continue
            more = self._expansions(stack) - ENDED - seen
            seen |= more
            todo += more
        return leaves

    def contents(self, state: State) -> list[tuple[Item, ...]]:
        """The items of each stack, from the top."""
        stacks = []
        for stack in sorted(state):
            items = []
            while stack != END:
                item, stack = self._stacks[stack]
                items.append(item)
            stacks.append(tuple(items))
        return stacks

    # --- How states follow each other ----------------------------------------------------------------------------

    def reached(self, start: State, done: set[State] | None = None) -> list[State]:
        """All the states from there on, without those inside of items; not those that are done, to which they are
        added."""
        done = set() if done is None else done
        states: list[State] = []
        todo = [start]
        while todo:
            state = todo.pop()
            if state in done:
                continue
            done.add(state)
            states.append(state)
            todo += [transition.target for transition in self.step(state).transitions[::-1]]
        spend(len(states))
        return states

    def is_unambiguous(self, times: Times) -> bool:
        """Whether the next character says if one goes on or the next has begun."""
        if times.most == 1:
            return True
        return _disjoint(self.ending(times.item).continuations, self.items.first(times.item))

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
            case FreeText():
                return Ending(EVERY, self.width_of(item))
            case InState(automaton):
                return Ending(automaton.continuations, automaton.most_moves)
            case Leaf():
                return Ending()
            case Times(inner, least, most) if self.is_unambiguous(shape):
                inside = self.ending(inner)
                if least == most:
                    return inside
                open = self.width_of(inner)
                open = max(inside.stacks, open) if most == 1 else inside.stacks + open
                return Ending(union((*inside.continuations, *self.items.first(inner))), open)
        extra, open = set[tuple[int, int]](), 0
        for state in self.reached(self.start(item)):
            row = self.step(state)
            for transition in row.transitions:
                if self.nullable(transition.target):
                    inside = self.ending(transition.item)
                    extra.update(inside.continuations)
                    open = max(open, inside.stacks + self.width(transition.target))
            if row.ends:
                open = max(open, self.width(state))
                for transition in row.transitions:
                    extra.update(self.items.first(transition.item))
                    if self.items.nullable(transition.item):
                        extra.update(self.first(transition.target))
        return Ending(union(extra), open)

    # --- How many stacks these are to llama.cpp ------------------------------------------------------------------

    def width(self, state: State) -> int:
        if state not in self._widths:
            spend()
            self._widths[state] = 0
            stacks = 0
            for transition in self.step(state).transitions:
                stacks += self.width_of(transition.item)
                if self.items.nullable(transition.item):
                    stacks += self.width(transition.target)
            self._widths[state] = stacks
        return self._widths[state]

    def width_of(self, item: Item) -> int:
        shape = self.items.shapes[item]
        match shape:
            case Leaf(Token(ranges)):
                return sum(last - first + 1 for first, last in ranges)
            case FreeText() | InState():
                return len(shape.state.moves)
            case Leaf():
                return 1
            case Times(inner) if self.is_unambiguous(shape):
                return self.width_of(inner)
        return self.width(self.start(item))


def _disjoint(one: Ranges, other: Ranges) -> bool:
    """Whether no character is in both."""
    edges = sorted([*one, *other])
    return all(high < low for (_, high), (low, _) in pairwise(edges))
