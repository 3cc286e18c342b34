"""A client's grammar, read into the language of the texts that follow it: a regular node where nothing nests, and
`Nested` otherwise.

Recursion that is only repetition becomes repetition: `list: list "," item | item` is `item ("," item)*`, and so with
operators before, after and between operands. Rules that do not nest are then put into those that use them. How large
that makes a rule is counted before it is done; what would be too large or too deep stays a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache

from ...core.custom_tools import Grammar
from ...errors import InvalidTools, Place
from ...metering import spend
from ...schema.patterns import BadPattern, UnsupportedPattern, parse_whole
from ...schema.regular import Node, OneOf, Repeat, Sequence, Verbatim, choice, sequence
from ..language import Nested, OutputLanguage, Rule, rewritten
from . import BadGrammar, UnsupportedGrammar
from .lark import START, read_lark

_MOST_SIZE = 10_000
"""How many nodes a rule may have with others in it and with repeated parts written out,"""
_MOST_HEIGHT = 60
"""and how deep they may be in each other."""


def read_grammar(grammar: Grammar, field: Place) -> Node:
    """A regular node, or `Nested`. Raises `InvalidTools` about that field where it is no grammar, and
    `UnsupportedGrammar` where it is one that is not supported."""
    try:
        return _read(grammar)
    except UnsupportedPattern as problem:
        raise UnsupportedGrammar(str(problem)) from None
    except UnsupportedGrammar:
        raise
    except (BadGrammar, BadPattern) as problem:
        raise InvalidTools(field, f": {problem}") from None


@lru_cache(maxsize=256)
def _read(grammar: Grammar) -> Node:
    definition = grammar.definition
    if any("\ud800" <= char < "\ue000" for char in definition):
        raise BadGrammar("half of a surrogate pair is no character")
    if grammar.syntax == "lark":
        return reduce(read_lark(definition), START)
    return reduce({START: parse_whole(definition)}, START)


def reduce(rules: Mapping[str, Node], start: str) -> Node:
    """The language of a rule. Raises `BadGrammar` where a rule is missing, too large, or never ends."""
    repeating = {name: _as_repetition(name, rules[name]) for name in _reachable(rules, start)}
    ending = _growing(repeating, _ends)
    if never := [name for name in repeating if name not in ending]:
        raise BadGrammar(f"`{never[0]}` never comes to an end: each of its alternatives needs another of it")
    together = _put_together(repeating)
    if not _references(together[start]):
        return together[start]
    kept = {name: together[name] for name in _reachable(together, start)}
    return Nested(Rule(start), kept, _left_recursive(kept))


def _reachable(rules: Mapping[str, Node], start: str) -> list[str]:
    names = {start: None}
    todo = [start]
    while todo:
        for name in _references(rules[todo.pop()]):
            if name not in rules:
                raise BadGrammar(f"`{name}` is used and not defined")
            if name not in names:
                names[name] = None
                todo.append(name)
    return list(names)


def _references(node: Node) -> set[str]:
    return {one.name for one in OutputLanguage(node, {}).nodes() if isinstance(one, Rule)}


# --- Repetition ----------------------------------------------------------------------------------------------------


def _as_repetition(name: str, node: Node) -> Node:
    """A rule without references to itself, where these only repeat: it is an operand, with operators before it, after
    it and between it and the next."""
    me = Rule(name)
    operands: list[Node] = []
    before: list[Node] = []
    after: list[Node] = []
    between: list[Node] = []
    for option in node.items if isinstance(node, OneOf) else (node,):
        items = option.items if isinstance(option, Sequence) else (option,)
        if items == (me,):
            continue
        left, right = items[:1] == (me,), items[-1:] == (me,)
        inner = sequence(*items[left : len(items) - right])
        if name in _references(inner):
            return node
        ways = {(False, False): operands, (False, True): before, (True, False): after, (True, True): between}
        ways[left, right].append(inner)
    if not operands:
        return node
    operand = sequence(*([Repeat(choice(*before))] if before else []), choice(*operands))
    more = [*after, *(sequence(operator, operand) for operator in between)]
    return sequence(operand, Repeat(choice(*more))) if more else operand


# --- Rules in each other -------------------------------------------------------------------------------------------


def _put_together(rules: Mapping[str, Node]) -> dict[str, Node]:
    """The rules, with those in them that do not lead to themselves."""
    inner_first, nesting = _in_order({name: _references(node) for name, node in rules.items()})
    done: dict[str, Node] = {}
    sizes: dict[str, tuple[int, int]] = {}

    def put(node: Node) -> Node | None:
        return done[node.name] if isinstance(node, Rule) and node.name in sizes else None

    for name in (*inner_first, *nesting):
        size, height = _measured(rules[name], sizes)
        if size > _MOST_SIZE and _measured(rules[name], {})[0] > _MOST_SIZE:
            raise UnsupportedGrammar(
                f"`{name}` is too large: it may have {_MOST_SIZE} parts, counting what is repeated"
            )
        if size > _MOST_SIZE or height > _MOST_HEIGHT:
            done[name] = rules[name]
            continue
        done[name] = rewritten(rules[name], put)
        if name not in nesting:
            sizes[name] = size, height
    return done


def _in_order(references: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """The rules that lead to no circle, each after those that it refers to; and the others."""
    users: dict[str, list[str]] = {}
    left = {name: len(used) for name, used in references.items()}
    for name, used in references.items():
        for one in used:
            users.setdefault(one, []).append(name)
    todo = [name for name, count in left.items() if not count]
    order: list[str] = []
    while todo:
        order.append(todo.pop())
        for user in users.get(order[-1], ()):
            left[user] -= 1
            if not left[user]:
                todo.append(user)
    return order, [name for name in references if left[name]]


def _measured(node: Node, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """How many nodes it has, with these rules in it, and how deep they are."""
    spend()
    match node:
        case Rule(name):
            return sizes.get(name, (1, 1))
        case Verbatim(text):
            return len(text), 1
        case Sequence(items) | OneOf(items):
            inside = [_measured(item, sizes) for item in items]
            return sum(size for size, _ in inside) + 1, max((height for _, height in inside), default=0) + 1
        case Repeat(item, least, most):
            size, height = _measured(item, sizes)
            return size * max(least, most or 0, 1) + 1, height + 1
    return 1, 1


# --- What is known of rules by fixpoints ---------------------------------------------------------------------------


def _growing(rules: Mapping[str, Node], holds: Callable[[Node, Collection[str]], bool]) -> set[str]:
    """The rules for which something holds, if it may be known of rules in them only after it is known of those."""
    names: set[str] = set()
    size = -1
    while size < len(names):
        size = len(names)
        names.update(name for name, node in rules.items() if name not in names and holds(node, names))
    return names


def _ends(node: Node, rules: Collection[str]) -> bool:
    """Whether it comes to an end, if these rules do."""
    return _holds(node, rules, lambda _: True)


def _may_be_empty(node: Node, rules: Collection[str]) -> bool:
    """Whether it may be the empty text, if these rules may."""
    return _holds(node, rules, lambda leaf: isinstance(leaf, Verbatim) and not leaf.text)


def _holds(node: Node, rules: Collection[str], of_leaf: Callable[[Node], bool]) -> bool:
    """Whether something holds of all that must come, if it holds of these rules."""
    spend()
    match node:
        case Rule(name):
            return name in rules
        case Sequence(items):
            return all(_holds(item, rules, of_leaf) for item in items)
        case OneOf(items):
            return any(_holds(item, rules, of_leaf) for item in items)
        case Repeat(item, least):
            return least == 0 or _holds(item, rules, of_leaf)
    return of_leaf(node)


def _left_recursive(rules: Mapping[str, Node]) -> bool:
    """Whether a rule may begin with itself."""
    empty = _growing(rules, _may_be_empty)
    _, circles = _in_order({name: set(_first_rules(node, empty)) for name, node in rules.items()})
    return bool(circles)


def _first_rules(node: Node, empty: Collection[str]) -> Iterator[str]:
    match node:
        case Rule(name):
            yield name
        case Sequence(items):
            for item in items:
                yield from _first_rules(item, empty)
                if not _may_be_empty(item, empty):
                    break
        case OneOf(items):
            for item in items:
                yield from _first_rules(item, empty)
        case Repeat(item):
            yield from _first_rules(item, empty)
