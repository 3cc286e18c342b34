"""A language as EBNF for xgrammar: what SGLang calls `ebnf`, and vLLM `grammar`.

xgrammar tells tokens and free text by built-in rules, `Token(…)` and `TagDispatch(…)`. The rest of an output is printed
from items: the stacks that are left are alternatives, and xgrammar follows them all.
"""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from functools import lru_cache
from threading import Lock

from ...schema.regular import Chars, Node, OneOf, Repeat, Sequence, Verbatim, among, sequence
from ..automata import TooManyStates
from ..determinize.items import Alternation, Concat, FreeText, InState, Item, Leaf, Named, Times, TooAmbiguous
from ..determinize.states import State
from ..language import OutputLanguage, TextExcept, Token, variants
from ..output_prefix import NotContinued, Written
from . import Printed
from .rules import ItemPrinter, RulePrinter, char_class, characters, counted, quoted, text

_KEPT = 16
"""So many languages keep their states and grammars."""
_MOST_KNOWN = 100_000
_MOST_GRAMMARS = 256


def to_ebnf(language: OutputLanguage, prefix: abc.Sequence[Written] = ()) -> Printed[str]:
    """`prefix` is the beginning of the output, if there is one already: the grammar is that of the rest. Raises
    `NotContinued` where there is none."""
    for one in _variants(language):
        try:
            return _rests(one).after(prefix) if prefix else print_ebnf(one)
        except (TooManyStates, TooAmbiguous):
            pass
    raise NotContinued("what was written so far leaves too many alternatives open")


def print_ebnf(language: OutputLanguage) -> Printed[str]:
    """Raises `TooManyStates` where the grammar of a client is too large."""
    return _Printer().print(language)


class _Printer(RulePrinter):
    """xgrammar knows beforehand which tokens a rule of characters takes, unless that rule refers to another or ends
    after each character: then it looks at nearly every token in each step, which takes hundreds of times as long. So an
    escape in a string is no rule of its own, and one character and any number of them are one repetition."""

    def body(self, node: Node) -> str:
        options = node.items if isinstance(node, OneOf) else (node,)
        return " | ".join(self.expression(one) for option in options for one in _spelled_out(option))

    def expression(self, node: Node) -> str:
        match node:
            case Sequence((*before, first, Repeat(item, least, None))) if first == item:
                return self.expression(sequence(*before, Repeat(item, least + 1)))
        return super().expression(node)

    def token(self, node: Token) -> str:
        return f"Token({', '.join(map(str, node.ids))})"

    def free_text(self, node: TextExcept) -> str:
        if not node.without:
            return super().free_text(node)
        self.unenforced += node.length_unenforced()
        # It may end with the beginning of a word; xgrammar has no name for text that does not.
        excluded = "".join(f"{quoted(word)}, " for word in node.without)
        return self.named("text", f"TagDispatch(excludes=({excluded}))")


def _spelled_out(node: Node) -> list[Node]:
    match node:
        case Sequence((Verbatim() as first, OneOf(items))) if all(map(_has_no_choice, items)):
            return [sequence(first, item) for item in items]
    return [node]


def _has_no_choice(node: Node) -> bool:
    match node:
        case Sequence(items):
            return all(map(_has_no_choice, items))
        case Repeat(item):
            return _has_no_choice(item)
    return isinstance(node, Verbatim | Chars)


class _RestPrinter(ItemPrinter, _Printer):
    """Prints what may come after the beginning of an output.

    When an engine fails, all its outputs go on elsewhere, many of them under the same constraint. So what was found out
    about the language is kept, and so are the grammars: most outputs are in one of a few states.
    """

    def __init__(self, language: OutputLanguage) -> None:
        super().__init__(language)
        self.read(language.rules)
        self._root = self.items.of(language.root)
        self._grammars: dict[State, Printed[str]] = {}
        self._lock = Lock()

    def begin(self) -> None:
        super().begin()
        self._lines: dict[str, str] = {}
        self._todo: list[str] = []
        self._begun: dict[FreeText, str] = {}

    def after(self, prefix: abc.Sequence[Written]) -> Printed[str]:
        if not self._lock.acquire(blocking=False):  # another thread is at it, and may be for long
            return _RestPrinter(self.language).after(prefix)
        try:
            self.states_of.work = 0
            state = self.states_of.begun(self._root, [prefix])
            if state not in self._grammars:
                self._grammars[state] = self._print(state)
            if self.states_of.size > _MOST_KNOWN or len(self._grammars) > _MOST_GRAMMARS:
                _rests.cache_clear()
            return self._grammars[state]
        finally:
            self._lock.release()

    def _print(self, state: State) -> Printed[str]:
        self.begin()
        stacks = self.states_of.contents(state)
        self._lines["root"] = " | ".join(" ".join(map(self._item, items)) or '""' for items in stacks)
        while self._todo:
            name = self._todo.pop()
            body = self.items.body(name)
            assert body is not None, "all rules have been read"
            self._lines[name] = self._item(body)
        return Printed(text(self._lines | self.rules), (*self.language.unenforced, *self.all_unenforced()))

    def _item(self, item: Item) -> str:
        shape = self.items.shapes[item]
        match shape:
            case Leaf(Verbatim(characters)):
                return quoted(characters)
            case Leaf(Chars(ranges)):
                return char_class(among(ranges))
            case Leaf(node):
                return self.expression(node)
            case FreeText():
                return self._rest_of(shape)
            case InState(automaton, at):
                return self.states(automaton, at)
            case Named(name):
                if name not in self._lines:
                    self._lines[name] = ""
                    self._todo.append(name)
                return name
            case Concat((*before, first, last)) if self.items.shapes[last] == Times(first, 0, None):
                return " ".join([*map(self._item, before), f"{self._part(first)}+"])
            case Concat(items):
                return " ".join(map(self._item, items)) or '""'
            case Alternation(items):
                return self.named("any", " | ".join(sorted(one for item in items for one in self._spelled_out(item))))
            case Times(inner, least, most):
                return counted(self._part(inner), least, most, self.named)
        raise AssertionError(shape)

    def _part(self, item: Item) -> str:
        one = self._item(item)
        return one if isinstance(self.items.shapes[item], Alternation) else self.named("part", one)

    def _spelled_out(self, item: Item) -> list[str]:
        match self.items.shapes[item]:
            case Concat((first, last)) if self._has_no_choice(first):
                match self.items.shapes[last]:
                    case Alternation(items) if all(map(self._has_no_choice, items)):
                        return [f"{self._item(first)} {self._item(one)}" for one in items]
        return [self._item(item)]

    def _has_no_choice(self, item: Item) -> bool:
        match self.items.shapes[item]:
            case Leaf(node):
                return isinstance(node, Verbatim | Chars)
            case Concat(items):
                return all(map(self._has_no_choice, items))
            case Times(inner):
                return self._has_no_choice(inner)
        return False

    def _rest_of(self, shape: FreeText) -> str:
        """Free text, which may have begun with the beginning of a word."""
        if not shape.at:
            return self.free_text(TextExcept(shape.words, shape.clean_end))
        if shape not in self._begun:
            self._begun[shape] = name = f"begun-{len(self._begun)}"
            moves = [f"{characters(ranges)} {self._rest_of(replace(shape, at=to))}" for ranges, to in shape.state.moves]
            self.rules[name] = " | ".join([*moves, *(['""'] if shape.state.ends else [])])
        return self._begun[shape]


_rests = lru_cache(maxsize=_KEPT)(_RestPrinter)
_variants = lru_cache(maxsize=_KEPT)(variants)
