"""The grammar of a response: an intermediate representation that every printer can write.

`builder` makes an `OutputLanguage` from a format and a request, `schema_grammar` makes the rules of a JSON schema, and
the modules in `printers` print it. The regular nodes (text, classes, sequence, choice, repetition) come from
`schema.regular`; those here are what a response needs besides: rules, tokens, free text, JSON values, lexemes.

There is no behaviour here but constructors, a walk over all nodes and a way to replace some. Whoever adds a node adds
it to each printer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..metering import spend
from ..schema.keywords import Schema
from ..schema.regular import Node, OneOf, Repeat, Sequence, chars, choice, sequence


@dataclass(frozen=True, slots=True)
class Unenforced:
    """Something that a request asks for and a syntax cannot express."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """What stands under this name among the language's rules."""

    name: str


@dataclass(frozen=True, slots=True)
class Token(Node):
    """One token out of ranges of ids. Where a syntax knows no tokens, the text stands for them."""

    ranges: tuple[tuple[int, int], ...]
    text: Node

    @property
    def ids(self) -> list[int]:
        return [id for first, last in self.ranges for id in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class TextExcept(Node):
    """Free text: any text in which none of the words in `without` occurs."""

    without: tuple[str, ...]
    clean_end: bool = False
    """The text does not end with the beginning of a word either, so that what follows cannot complete it."""
    least: int = 0
    most: int | None = None
    """How many characters it has. Only llguidance is told."""
    where: str = ""
    """The schema that limits the length, for `Unenforced`."""

    @property
    def unbounded(self) -> bool:
        """Whether it may have any length."""
        return not self.least and self.most is None

    def length_unenforced(self) -> list[Unenforced]:
        """What is lost in a syntax that cannot count the characters of free text."""
        if self.unbounded:
            return []
        return [Unenforced(self.where, "`minLength` and `maxLength` are not enforced between tags")]


@dataclass(frozen=True, slots=True)
class Json(Node):
    """A JSON value. `where` says in error messages what the schema belongs to."""

    schema: Schema
    where: str
    without: tuple[str, ...] = ()
    """Words that its strings must not contain."""
    python: bool = False
    """Whether true, false and null are written as Python writes them."""

    @property
    def plain(self) -> bool:
        """Whether a converter of JSON schemas can print it: there are no rules besides the schema."""
        return not self.without and not self.python


@dataclass(frozen=True, slots=True)
class Lexeme(Node):
    """A regular node that a lexer reads in one piece: it may begin like something else that can stand in its place."""

    item: Node


@dataclass(frozen=True, slots=True)
class TextOf(Node):
    """A text that a regular node matches, and in which none of the words in `without` occurs."""

    item: Node
    without: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nested(Node):
    """A language with rules of its own, which nest in themselves. It is found only as the `item` of a `Restricted`."""

    root: Node
    rules: Mapping[str, Node]
    left_recursive: bool
    """Whether a rule may begin with itself, which only llguidance takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Restricted(Node):
    """What a client's grammar, or a pattern, leaves of `free`. A syntax that cannot say `item` says `free`, and lists
    it. Printers do not see this node: `restricted` and `variants` take it out."""

    item: Node
    free: Node
    unenforced: Unenforced
    """What is lost then."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputLanguage:
    """A grammar: the root, and the rules that it refers to."""

    root: Node
    rules: Mapping[str, Node]
    unenforced: Iterable[Unenforced] = ()
    """What no printer is told."""

    def needed(self) -> OutputLanguage:
        """The same language, without rules that nothing refers to."""
        used = {node.name for node in self.nodes() if isinstance(node, Rule)}
        return OutputLanguage(
            self.root, {name: node for name, node in self.rules.items() if name in used}, self.unenforced
        )

    def nodes(self) -> Iterator[Node]:
        """All nodes that can be reached from the root, each once."""
        seen: set[int] = set()
        todo = [self.root]
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            spend()
            yield node
            if isinstance(node, Rule) and node.name in self.rules:
                todo.append(self.rules[node.name])
            if isinstance(node, Sequence | OneOf):
                todo += node.items
            elif isinstance(node, Repeat | Lexeme | TextOf | Restricted):
                todo.append(node.item)
            elif isinstance(node, Nested):
                todo += [node.root, *node.rules.values()]


def rewritten(node: Node, new: Callable[[Node], Node | None]) -> Node:
    """The node with others in the place of those for which `new` gives one, outermost first. What nothing changes in
    stays the same object."""
    spend()
    changed = new(node)
    if changed is not None:
        return changed
    match node:
        case Sequence(items) | OneOf(items):
            others = tuple(rewritten(item, new) for item in items)
            if all(one is other for one, other in zip(items, others, strict=True)):
                return node
            return sequence(*others) if isinstance(node, Sequence) else OneOf(others)
        case Repeat(item) | Lexeme(item) | TextOf(item):
            other = rewritten(item, new)
            return node if other is item else replace(node, item=other)
    return node


MOST_SPACE = 12
"""As much whitespace as any template writes, and not so much that a model could lose itself in it."""
SPACE = Repeat(chars(" ", "\n", "\t"), 0, MOST_SPACE)
SOME_SPACE = Repeat(chars(" ", "\n", "\t"), 1, MOST_SPACE)


def one_token(ids: Collection[int], text: Node) -> Token:
    """One of these tokens."""
    starts = sorted(id for id in ids if id - 1 not in ids)
    ends = sorted(id for id in ids if id + 1 not in ids)
    return Token(tuple(zip(starts, ends, strict=True)), text)


def alternatives(*items: Node) -> Node:
    """A choice in which the common beginning of all items is written once. (Not the common end: a lexer must see an end
    that may be missing together with what follows it.)"""
    rows = [item.items if isinstance(item, Sequence) else (item,) for item in items]
    shortest = min(map(len, rows))
    same = next((at for at in range(shortest) if any(row[at] != rows[0][at] for row in rows)), shortest)
    return sequence(*rows[0][:same], choice(*(sequence(*row[same:]) for row in rows)))


# --- Languages for printers, which know neither `Restricted` nor `Nested` -------------------------------------------


def restricted(language: OutputLanguage, left_recursion: bool = False) -> OutputLanguage:
    """The language with the grammars of clients. `left_recursion`: the syntax takes rules that begin with
    themselves."""

    def takes(node: Restricted) -> bool:
        inside = OutputLanguage(node, {}).nodes()
        return left_recursion or not any(isinstance(one, Nested) and one.left_recursive for one in inside)

    return _Rewriting(language, takes).run() if _has_any(language) else language


def variants(language: OutputLanguage) -> list[OutputLanguage]:
    """The language with the grammars of clients; then without them, if there are any. A printer takes the first that
    its syntax can express. What the second one loses is among its `unenforced`."""
    without = [_Rewriting(language, lambda _: False).run()] if _has_any(language) else []
    return [restricted(language), *without]


def _has_any(language: OutputLanguage) -> bool:
    return any(isinstance(node, Restricted) for node in language.nodes())


class _Rewriting:
    def __init__(self, language: OutputLanguage, takes: Callable[[Restricted], bool]) -> None:
        self._language, self._takes = language, takes
        self._rules: dict[str, Node] = {}
        self._prefixes: dict[object, str] = {}
        self._unenforced: dict[Unenforced, None] = dict.fromkeys(language.unenforced)

    def run(self) -> OutputLanguage:
        root = rewritten(self._language.root, self._chosen)
        rules = {name: rewritten(node, self._chosen) for name, node in self._language.rules.items()}
        return OutputLanguage(root, {**rules, **self._rules}, tuple(self._unenforced))

    def _chosen(self, node: Node) -> Node | None:
        if not isinstance(node, Restricted):
            return None
        if self._takes(node):
            return rewritten(node.item, self._flat)
        self._unenforced[node.unenforced] = None
        return node.free

    def _flat(self, node: Node) -> Node | None:
        """The rules of what nests become rules of the language, under names that no others have. What is the same in
        several places has them once."""
        if not isinstance(node, Nested):
            return None
        prefix = self._prefixes.setdefault((node.root, *node.rules.items()), f"nested-{len(self._prefixes)}")
        names = {name: f"{prefix}-{at}" for at, name in enumerate(node.rules)}

        def renamed(node: Node) -> Node | None:
            return Rule(names[node.name]) if isinstance(node, Rule) else None

        self._rules.update({names[name]: rewritten(one, renamed) for name, one in node.rules.items()})
        return rewritten(node.root, renamed)
