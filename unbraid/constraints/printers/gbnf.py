"""A language as GBNF for llama.cpp.

llama.cpp follows all alternatives of a grammar at once, so the language is determinised first (`determinize`) and
printed state by state. Where it cannot be determinised within bounds, it is printed as it is, and the result says what
in it is too ambiguous: llama.cpp would be busy with it for minutes over one token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...errors import InvalidSchema
from ...metering import spend
from ...schema.keywords import Schema
from ...schema.regular import Chars, Verbatim, among
from ..determinize.items import FreeText, InState, Item, Leaf, Times, TooAmbiguous
from ..determinize.states import ENDED, MOST_WORK, State
from ..language import Json, OutputLanguage, TextExcept, Token, variants
from ..output_prefix import NotContinued, Written
from ..schema_export import locate
from . import Point, Printed
from .rules import ItemPrinter, RulePrinter, char_class, counted, quoted, text

# llama.cpp tries each token of a set in turn. Larger sets are printed as text: its character rules take tokens, too.
_MOST_TOKENS = 16


def to_gbnf(language: OutputLanguage, *readings: Sequence[Written]) -> Printed[str]:
    """Where the language is too ambiguous for llama.cpp, the result says so.

    readings: what was written already, if anything was; several where it is not known which. The grammar is that of the
        rest. Raises `NotContinued` where there is none.
    """
    options = variants(language)
    for one in options:
        try:
            return _DeterministicPrinter(one, MOST_WORK).run(readings or ((),))
        except (TooAmbiguous, RecursionError):
            pass
    if any(readings):
        raise NotContinued("what was written so far leaves too many alternatives open")
    printed = _Printer().print(options[-1])
    return Printed(printed.grammar, printed.unenforced, too_ambiguous=_locate_ambiguity(language))


def _locate_ambiguity(language: OutputLanguage) -> str:
    """The place of the schema that is too ambiguous, as far down as it can be told."""
    left = MOST_WORK // 2

    def fails(schema: Schema) -> bool:
        nonlocal left
        if left < 0:
            return False
        printer = _DeterministicPrinter(OutputLanguage(Json(schema, ""), {}), MOST_WORK // 4)
        try:
            printer.run()
        except (TooAmbiguous, RecursionError):
            return True
        except InvalidSchema:  # it is a part of another, and nothing satisfies it alone
            return False
        finally:
            left -= printer.work
        return False

    for node in language.nodes():
        if isinstance(node, Json) and fails(node.schema):
            return locate(node.schema, fails, node.where)
    return "the constraint"


def shown(leaf: Verbatim | Chars | Token) -> str:
    """A leaf as it stands in a grammar."""
    match leaf:
        case Verbatim(characters):
            return quoted(characters)
        case Chars():
            return char_class(among(leaf.members))
        case Token():
            return " | ".join(f"<[{id}]>" for id in leaf.ids)


class _Printer(RulePrinter):
    def token(self, node: Token) -> str:
        return self.named("token", shown(node)) if len(node.ids) <= _MOST_TOKENS else self.expression(node.text)


class _DeterministicPrinter(ItemPrinter, _Printer):
    """Prints the states of a language, each as a rule."""

    most_tokens = _MOST_TOKENS

    def __init__(self, language: OutputLanguage, most_work: int) -> None:
        super().__init__(language, most_work)
        self._state_names: dict[State, str] = {}
        self._todo: list[State] = []
        self._used: defaultdict[State, int] = defaultdict(int)

    @property
    def work(self) -> int:
        return self.states_of.work

    def run(self, readings: Sequence[Sequence[Written]] = ((),)) -> Printed[str]:
        """Raises `TooAmbiguous` where the language cannot be determinised within bounds."""
        self.read(self.language.rules)
        for node in self.language.nodes():
            if isinstance(node, TextExcept):
                self.unenforced += node.length_unenforced()
        root = self.items.of(self.language.root)
        rules = [*self.language.rules, *self.schemas.rules]
        start = self.states_of.begun(root, readings)
        parts = [(self.items.named(name), self.place(name)) for name in rules]
        states = self.states_of.check([*parts, (root, "")], start)
        for state in states:
            for target in self.states_of.follow(state):
                self._used[target] += 1
        lines = {"root": self._state(start)}
        while self._todo:
            state = self._todo.pop()
            lines[self._state_names[state]] = self._state(state)
        unenforced = (*self.language.unenforced, *self.all_unenforced())
        return Printed(text(lines | self.rules), unenforced, points=tuple(dict.fromkeys(map(self._point, states))))

    def _point(self, state: State) -> Point:
        spend()
        row = self.states_of.step(state)
        shapes = [self.items.shapes[transition.item] for transition in row.transitions]
        for at, shape in enumerate(shapes):
            while isinstance(shape, Times) and shape.least:
                shapes[at] = shape = self.items.shapes[shape.item]
        leaves = tuple(shape.node for shape in shapes if isinstance(shape, Leaf))
        return Point(leaves, only=bool(leaves) and len(leaves) == len(shapes) and not row.ends)

    def _state(self, state: State) -> str:
        row = self.states_of.step(state)
        options = [self._option(transition.item, transition.target) for transition in row.transitions]
        return " | ".join([*options, *(['""'] if row.ends else [])]) or '""'

    def _option(self, item: Item, then: State) -> str:
        """The item, and all that follows it up to the next point with a choice."""
        parts: list[str | Verbatim] = [self._item(item)]
        while then != ENDED:
            spend()
            row = self.states_of.step(then)
            if self._used[then] > 1 or row.ends or len(row.transitions) > 1:
                parts.append(self._name(then))
                break
            parts.append(self._item(row.transitions[0].item))
            then = row.transitions[0].target
        joined: list[str] = []
        run = ""
        for part in (*parts, ""):
            if isinstance(part, Verbatim):
                run += part.text
            else:
                joined += ([quoted(run)] if run else []) + ([part] if part else [])
                run = ""
        return " ".join(joined)

    def _item(self, item: Item) -> str | Verbatim:
        shape = self.items.shapes[item]
        match shape:
            case Leaf(Verbatim() as leaf):
                return leaf
            case Leaf(Chars(ranges)):
                return char_class(among(ranges))
            case Leaf(node):
                return self.expression(node)
            case FreeText() | InState():
                return self.states(shape.automaton, shape.at)
            case Times(inner, least, most) if self.states_of.is_unambiguous(shape):
                part = self._item(inner)
                return counted(
                    f"({quoted(part.text)})" if isinstance(part, Verbatim) else part, least, most, self.named
                )
        return self._name(self.states_of.start(item))

    def _name(self, state: State) -> str:
        if state not in self._state_names:
            self._state_names[state] = f"s-{len(self._state_names)}"
            self._todo.append(state)
        return self._state_names[state]
