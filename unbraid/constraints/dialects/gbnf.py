"""A language as rules over characters: GBNF for llama.cpp, and EBNF as xgrammar reads it.

The two differ in how they name tokens and free text. All else is printed in what both understand alike: names of
letters, digits and dashes; no `\\x` (two digits to one, any number to the other); never an empty alternative. llama.cpp
refuses what it would unroll into more than 2000 rules: so no count is larger than a thousand, and what holds counts and
is counted itself has a name. GBNF is printed from what `clear` makes of the language, EBNF from the language as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from ..determinize.items import MOST_TIMES, Item, Items, Leaf, Times, TooAmbiguous, Unspelled
from ..determinize.states import ENDED, MOST_WORK, State, States
from ..forbidden_words import machine
from ..language import (
    Chars,
    Choice,
    Json,
    Language,
    Lexeme,
    Node,
    Repeat,
    Rule,
    Schema,
    Sequence,
    Text,
    TextExcept,
    Token,
    Unenforced,
    all_but,
    among,
    sequence,
    unbounded,
)
from ..schema_export import InvalidSchema, locate
from ..schema_grammar import SPACE as JSON_SPACE
from ..schema_grammar import SchemaNodes
from .regex import bracketed, times

Kind = Literal["gbnf", "ebnf"]
# llama.cpp tries each token of a set in turn.
_MOST_TOKENS = 16
_TOO_OPEN = "# too many ways are open in "


def to_gbnf(language: Language) -> tuple[str, list[Unenforced]]:
    """Where the ways that it leaves open are more than llama.cpp has the time for, a comment at the top says so."""
    try:
        return _print_clear(language)
    except (TooAmbiguous, RecursionError):
        text, unenforced = _print(language, "gbnf")
        return f"{_TOO_OPEN}{_too_open(language)}\n{text}", unenforced


def too_open(grammar: str) -> str | None:
    """What in a grammar of ours leaves too many ways open, if that is so."""
    return grammar.partition("\n")[0].removeprefix(_TOO_OPEN) if grammar.startswith(_TOO_OPEN) else None


def _too_open(language: Language) -> str:
    """Which schema does, and where in it."""
    left = MOST_WORK // 2

    def fails(schema: Schema) -> bool:
        nonlocal left
        if left < 0:
            return False
        printer = _ClearPrinter(Language(Json(schema, ""), {}), MOST_WORK // 4)
        try:
            printer.lines()
        except (TooAmbiguous, RecursionError):
            return True
        except InvalidSchema:  # it is a part of another, and is itself not satisfied by anything
            return False
        finally:
            left -= printer.work
        return False

    for node in language.nodes():
        if isinstance(node, Json) and fails(node.schema):
            return locate(node.schema, fails, node.where).replace("\n", " ")
    return "the constraint"


def to_ebnf(language: Language) -> tuple[str, list[Unenforced]]:
    return _print(language, "ebnf")


def _print(language: Language, kind: Kind) -> tuple[str, list[Unenforced]]:
    printer = _Printer(kind)
    try:
        lines = {"root": printer.body(language.root)}
        for rules in (language.rules, printer.schemas.rules):  # the second grows by the first
            lines.update((name, printer.body(node)) for name, node in rules.items())
    except RecursionError:
        raise InvalidSchema("the constraint nests too deep for a grammar; put what is deep into `$defs`") from None
    lines |= printer.rules
    return _text(lines), printer.unenforced + printer.schemas.unenforced


def _text(lines: Mapping[str, str]) -> str:
    return "".join(f"{name} ::= {body}\n" for name, body in lines.items())


def _print_clear(language: Language) -> tuple[str, list[Unenforced]]:
    """What llama.cpp has no trouble with; raises `TooAmbiguous` where there is no such thing."""
    printer = _ClearPrinter(language, MOST_WORK)
    return _text(printer.lines()), printer.unenforced + printer.schemas.unenforced


class _Printer:
    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.schemas = SchemaNodes()
        self.rules: dict[str, str] = {}
        self.unenforced: list[Unenforced] = []
        self._names: dict[str, str] = {}
        self._free: dict[tuple[tuple[str, ...], bool], str] = {}

    def body(self, node: Node) -> str:
        return " | ".join(map(self.expression, node.items)) if isinstance(node, Choice) else self.expression(node)

    def expression(self, node: Node) -> str:
        match node:
            case Text(text):
                return quoted(text)
            case Chars():
                return char_class(node)
            case Token(ranges, text):
                return self._token(ranges, text)
            case TextExcept():
                return self._text(node)
            case Json():
                # The converters of the other dialects let whitespace stand before a value.
                return self.expression(sequence(JSON_SPACE, self.schemas.node(node)))
            case Sequence(items):
                return " ".join(map(self.expression, items)) or '""'
            case Choice():
                return self.named("any", self.body(node))
            case Repeat(item, least, most):
                return self._repeated(item, least, most)
            case Lexeme(item):
                return self.expression(item)
            case Rule(name):
                return name
        raise AssertionError(node)

    def _repeated(self, item: Node, least: int, most: int | None) -> str:
        part = self.expression(item)
        if not isinstance(item, Chars | Choice | Rule | TextExcept):  # the others are one name or one class
            part = self.named("part", part) if any(char in part for char in "*+?{") else f"({part})"
        return counted(part, least, most, self.named)

    def named(self, kind: str, body: str) -> str:
        """A rule for this body; the same body has one rule."""
        if body not in self._names:
            self._names[body] = name = f"{kind}-{len(self._names)}"
            self.rules[name] = body
        return self._names[body]

    def _token(self, ranges: tuple[tuple[int, int], ...], text: Node) -> str:
        ids = _ids(ranges)
        if self.kind == "ebnf":
            return f"Token({', '.join(map(str, ids))})"
        if len(ids) > _MOST_TOKENS:
            # Its character rules take a token for the text that it stands for.
            return self.expression(text)
        return self.named("token", " | ".join(f"<[{id}]>" for id in ids))

    def _text(self, node: TextExcept) -> str:
        self.unenforced += unbounded(node)
        if self.kind == "ebnf" and node.without:
            # It may end with the beginning of a word; xgrammar has no name for one that does not.
            return self.named("text", f"TagDispatch(excludes=({''.join(f'{quoted(w)}, ' for w in node.without)}))")
        return self.free(node.without, node.clean_end, 0)

    def free(self, words: tuple[str, ...], clean_end: bool, at: int) -> str:
        """The machine that reads free text, from a state on."""
        key = words, clean_end
        if key not in self._free:
            self._free[key] = name = f"text-{len(self._free)}"
            for number, state in enumerate(machine(words)):
                others = char_class(all_but(*state.moves, *state.barred))
                ways = [f"{others} {name}-0"] + [f"{quoted(c)} {name}-{to}" for c, to in sorted(state.moves.items())]
                if not (clean_end and state.pending):
                    ways.append('""')
                self.rules[f"{name}-{number}"] = " | ".join(ways)
        return f"{self._free[key]}-{at}"


class _ClearPrinter(_Printer):
    """Prints what `clear` makes of a language."""

    def __init__(self, language: Language, most_work: int) -> None:
        super().__init__("gbnf")
        self._language = language
        self._items = Items(self._rule, self._whole)
        self._states = States(self._items, most_work)
        self._state_names: dict[State, str] = {}
        self._todo: list[State] = []
        self._used: Counter[State] = Counter()

    @property
    def work(self) -> int:
        return self._states.work

    def _rule(self, name: str) -> Node:
        rules = self._language.rules
        return rules[name] if name in rules else self.schemas.rules[name]

    def _whole(self, node: Json | Token, spaced: bool) -> Node | None:
        """What stands for it, if it does not for itself. One kind of whitespace is enough."""
        if isinstance(node, Json):
            value = self.schemas.node(node)
            self._read(self.schemas.rules)
            return value if spaced else sequence(JSON_SPACE, value)
        return node.text if len(_ids(node.ranges)) > _MOST_TOKENS else None

    def _read(self, rules: Iterable[str]) -> None:
        """These rules, one after the other: each needs few but those before it, so that the stack stays low."""
        for name in list(rules):
            self._items.body(name)

    def lines(self) -> dict[str, str]:
        self._read(self._language.rules)
        for node in self._language.nodes():
            if isinstance(node, TextExcept):
                self.unenforced += unbounded(node)
        root = self._items.of(self._language.root)
        self._states.check([*map(self._items.named, [*self._language.rules, *self.schemas.rules]), root])
        start = self._states.start(root)
        for state in self._states.all([start]):
            self._used.update(way.then for way in self._states.ways(state).ways)
            self._used.update(map(self._states.start, self._states.inner(state)))
        lines = {"root": self._state(start)}
        while self._todo:
            state = self._todo.pop()
            lines[self._state_names[state]] = self._state(state)
        return lines | self.rules

    def _state(self, state: State) -> str:
        found = self._states.ways(state)
        ways = [self._way(way.item, way.then) for way in found.ways]
        return " | ".join([*ways, *(['""'] if found.ends else [])]) or '""'

    def _way(self, item: Item, then: State) -> str:
        """The item and all that follows it without another way."""
        parts: list[str | Text] = [self._item(item)]
        while then != ENDED:
            found = self._states.ways(then)
            if self._used[then] > 1 or found.ends or len(found.ways) > 1:
                parts.append(self._name(then))
                break
            parts.append(self._item(found.ways[0].item))
            then = found.ways[0].then
        written: list[str] = []
        text = ""
        for part in (*parts, ""):
            if isinstance(part, Text):
                text += part.text
            else:
                written += ([quoted(text)] if text else []) + ([part] if part else [])
                text = ""
        return " ".join(written)

    def _item(self, item: Item) -> str | Text:
        shape = self._items.shapes[item]
        match shape:
            case Leaf(Text() as text):
                return text
            case Leaf(Chars(ranges)):
                return char_class(among(ranges))
            case Leaf(node):
                return self.expression(node)
            case Unspelled(words, clean_end, at):
                return self.free(words, clean_end, at)
            case Times(inner, least, most) if self._states.loops_plainly(shape):
                part = self._item(inner)
                return counted(f"({quoted(part.text)})" if isinstance(part, Text) else part, least, most, self.named)
        return self._name(self._states.start(item))

    def _name(self, state: State) -> str:
        if state not in self._state_names:
            self._state_names[state] = f"s-{len(self._state_names)}"
            self._todo.append(state)
        return self._state_names[state]


def counted(part: str, least: int, most: int | None, named: Callable[[str, str], str]) -> str:
    """So many of something that has no counts in it."""
    if most == 0:
        return '""'
    if max(least, most or 0) <= MOST_TIMES:
        return f"{part}{times(least, most)}"
    thousand = named("part", counted(part, MOST_TIMES, MOST_TIMES, named))
    thousands, ones = divmod(least, MOST_TIMES)
    needed = [counted(thousand, thousands, thousands, named), counted(part, ones, ones, named)]
    if most is None:
        needed.append(f"{part}*")
    else:
        thousands, ones = divmod(most - least, MOST_TIMES)
        rest = f"{counted(thousand, thousands, thousands, named)} {counted(part, 0, ones, named)}"
        if thousands:
            fewer = counted(thousand, 0, thousands - 1, named), counted(part, 0, MOST_TIMES - 1, named)
            rest = named("any", f"{' '.join(fewer)} | {rest}")
        needed.append(rest)
    return " ".join(needed)


def _ids(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return [id for first, last in ranges for id in range(first, last + 1)]


def quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(node: Chars) -> str:
    # To one of them `[^]` is any character, and to the other none. And llama.cpp refuses a token that is only the first
    # byte of a character if that could become one that is excluded.
    by_members = node.excluded and (not node.ranges or node.ranges[-1][1] > 0x7F)
    return bracketed(Chars(node.members) if by_members else node, _in_class)


def _in_class(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in '^-[]"' else _escaped(char)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char < "\x7f" or (char.isprintable() and ord(char) > 0xA0):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
