"""Deterministic automata over characters: free text without forbidden words, and a regular node without them.

Grammar syntaxes that cannot say "any text without these words" (`free_text`), or "what this node matches, without these
words" (`automaton`), get the automaton, state by state. For the word `ab`, free text has two states:

    0   a → 1, any other character → 0; the text may end
    1   a → 1, any other character but b → 0; the text may end

The words alone are an Aho–Corasick automaton: a state stands for the longest beginning of a word that the text read so
far ends with. With a regular node it is the product of that automaton and the node's own, by the subset construction.
States from which no text comes to an end are left out, so that nothing that follows the automaton can lose itself in
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..metering import spend
from ..schema import regular
from ..schema.regular import Chars, Node, OneOf, Ranges, Repeat, Verbatim, all_but, chars, union
from .language import Lexeme

_MOST_STATES = 4_000
_MOST_WORK = 400_000
"""How many edges are looked at: about a second."""

_Edges = list[list[tuple[Ranges, int]]]


class TooManyStates(ValueError):
    """A language whose automaton is too large, or that has no text without the words."""


@dataclass(frozen=True, slots=True)
class AutomatonState:
    """What may come in a state."""

    moves: tuple[tuple[Ranges, int], ...]
    """Characters, and the state after them. No character is in two of these."""
    ends: bool
    """Whether the text may end here."""


@dataclass(frozen=True, eq=False)
class Automaton:
    """The states; the first is the start."""

    states: tuple[AutomatonState, ...]
    name: str = "states"
    """What printers call its rules."""

    def first(self, at: int) -> Ranges:
        """The characters that may come in a state."""
        return union(some for ranges, _ in self.states[at].moves for some in ranges)

    @cached_property
    def continuations(self) -> Ranges:
        """The characters that may come although the text could have ended before them."""
        ends = (self.first(at) for at, state in enumerate(self.states) if state.ends)
        return union(some for ranges in ends for some in ranges)

    @cached_property
    def most_moves(self) -> int:
        """How many ways on a state has at most."""
        return max(len(state.moves) for state in self.states)


@dataclass(frozen=True, slots=True)
class _WordState:
    """What may come after a text that ends with the beginning of a word."""

    moves: dict[str, int]
    """The state after a character; all others lead back to the start."""
    forbidden: frozenset[str]
    """Characters that would complete a word."""
    pending: bool
    """Whether the text ends with the beginning of a word."""


def _word_states(words: Sequence[str]) -> list[_WordState]:
    """The states of text without these words; the first is the start. The text may end in any of them."""
    begins = sorted({word[:size] for word in words for size in range(len(word))}, key=lambda begin: (len(begin), begin))
    begins = [begin for begin in begins if not any(word in begin for word in words)]
    number = {begin: at for at, begin in enumerate(begins)}
    letters = sorted({char for word in words for char in word})
    states = []
    for begin in begins:
        spend(len(letters))
        moves, forbidden = {}, set()
        for char in letters:
            text = begin + char
            if any(text.endswith(word) for word in words):
                forbidden.add(char)
            elif target := next((number[text[at:]] for at in range(len(text)) if text[at:] in number), 0):
                moves[char] = target
        states.append(_WordState(moves, frozenset(forbidden), bool(begin)))
    return states or [_WordState({}, frozenset(), False)]


@lru_cache(maxsize=64)
def free_text(words: tuple[str, ...], clean_end: bool) -> Automaton:
    """Any text without these words. With `clean_end`, the text does not end with the beginning of a word either."""
    return Automaton(
        tuple(
            AutomatonState(
                (
                    (all_but(*state.moves, *state.forbidden).members, 0),
                    *((chars(char).ranges, to) for char, to in sorted(state.moves.items())),
                ),
                ends=not (clean_end and state.pending),
            )
            for state in _word_states(words)
        ),
        name="text",
    )


@lru_cache(maxsize=64)
def automaton(item: Node, without: tuple[str, ...]) -> Automaton:
    """The texts of a regular node in which none of the words occurs."""
    return _Product(item, without).run()


class _Product:
    def __init__(self, item: Node, without: tuple[str, ...]) -> None:
        self._edges: _Edges = [[], []]
        self._empty: list[list[int]] = [[], []]
        self._add(item, 0, 1)
        self._words = _word_states(without)
        self._letters = [
            [(chars(char).ranges, to) for char, to in state.moves.items()]
            + [(chars(char).ranges, -1) for char in state.forbidden]
            for state in self._words
        ]
        self._work = 0

    # --- The regular node, with moves over nothing ---------------------------------------------------------------

    def _new(self) -> int:
        spend()
        self._edges.append([])
        self._empty.append([])
        if len(self._edges) > 20 * _MOST_STATES:
            raise TooManyStates
        return len(self._edges) - 1

    def _add(self, node: Node, start: int, end: int) -> None:
        match node:
            case Verbatim(text):
                for char in text:
                    then = self._new()
                    self._edges[start].append((chars(char).ranges, then))
                    start = then
                self._empty[start].append(end)
            case Chars():
                self._edges[start].append((node.members, end))
            case regular.Sequence(items):
                for item in items:
                    then = self._new()
                    self._add(item, start, then)
                    start = then
                self._empty[start].append(end)
            case OneOf(items):
                for item in items:
                    self._add(item, start, end)
            case Lexeme(item):
                self._add(item, start, end)
            case Repeat(item, least, most):
                self._repeat(item, least, most, start, end)
            case _:
                raise AssertionError(node)

    def _repeat(self, item: Node, least: int, most: int | None, start: int, end: int) -> None:
        for count in range(least if most is None else most):
            if count >= least:
                self._empty[start].append(end)
            then = self._new()
            self._add(item, start, then)
            start = then
        if most is None:
            loop = self._new()
            self._empty[start].append(loop)
            self._add(item, loop, loop)
            start = loop
        self._empty[start].append(end)

    def _closed(self, states: Iterable[int]) -> frozenset[int]:
        """All states that can be reached over nothing; of these only the ones that matter."""
        reached: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state not in reached:
                reached.add(state)
                todo += self._empty[state]
        self._spend(len(reached))
        return frozenset(state for state in reached if self._edges[state] or state == 1)

    # --- The product ---------------------------------------------------------------------------------------------

    def run(self) -> Automaton:
        begin = self._closed([0]), 0
        numbers = {begin: 0}
        order = [begin]
        rows: list[dict[int, list[tuple[int, int]]]] = []
        for inside, word in order:
            row: dict[int, list[tuple[int, int]]] = {}
            for low, high, then, after in self._moves(inside, word):
                target = then, after
                if target not in numbers:
                    if len(order) >= _MOST_STATES:
                        raise TooManyStates
                    numbers[target] = len(order)
                    order.append(target)
                row.setdefault(numbers[target], []).append((low, high))
            rows.append(row)
        return _trimmed(rows, [1 in inside for inside, _ in order])

    def _moves(self, inside: frozenset[int], word: int) -> Iterable[tuple[int, int, frozenset[int], int]]:
        """Ranges of characters, with the states of both after them."""
        bounds: list[tuple[int, int, int, int]] = []  # where it begins or ends, which, and of which automaton
        for state in inside:
            for ranges, then in self._edges[state]:
                for low, high in ranges:
                    bounds += [(low, 1, then, 0), (high + 1, -1, then, 0)]
        for ranges, then in self._letters[word]:
            for low, high in ranges:
                bounds += [(low, 1, then, 1), (high + 1, -1, then, 1)]
        self._spend(len(bounds))
        bounds.sort(key=lambda bound: bound[:2])  # ends first
        active: dict[int, int] = {}
        closures: dict[frozenset[int], frozenset[int]] = {}
        letter, last = 0, 0
        for at, change, then, which in bounds:
            if at > last and active and letter >= 0:
                targets = frozenset(active)
                if targets not in closures:
                    closures[targets] = self._closed(targets)
                yield last, at - 1, closures[targets], letter
            last = at
            if which:
                letter = then if change > 0 else 0
            else:
                active[then] = active.get(then, 0) + change
                if not active[then]:
                    del active[then]

    def _spend(self, work: int) -> None:
        spend(work)
        self._work += work
        if self._work > _MOST_WORK:
            raise TooManyStates


def _trimmed(rows: list[dict[int, list[tuple[int, int]]]], ends: list[bool]) -> Automaton:
    """Without the states from which no text comes to an end."""
    sources: list[list[int]] = [[] for _ in rows]
    for at, row in enumerate(rows):
        spend(len(row))
        for target in row:
            sources[target].append(at)
    alive: set[int] = set()
    todo = [at for at, end in enumerate(ends) if end]
    while todo:
        at = todo.pop()
        if at not in alive:
            alive.add(at)
            todo += sources[at]
    if 0 not in alive:
        raise TooManyStates
    kept = {at: number for number, at in enumerate(sorted(alive))}
    return Automaton(
        tuple(
            AutomatonState(
                tuple((union(ranges), kept[to]) for to, ranges in rows[at].items() if to in alive),
                ends[at],
            )
            for at in kept
        )
    )
