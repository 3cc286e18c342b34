"""A JSON schema as the language of its values, for dialects that have no schemas of their own.

Properties come in the order of the schema, and those that it does not name after them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from . import schema_patterns as patterns
from .language import NOTHING, Chars, Free, Json, Node, Repeat, Rule, Text, choice, maybe, sequence
from .schema_algebra import Algebra, AnyOf, Arrays, Form, Numbers, Objects, Plain, Ref, Strings, Values
from .schemas import Loosened

# The whitespace between the parts of a value: none, a space, or a line break with an indent.
SPACE = maybe(choice(Text(" "), sequence(Repeat(Text("\n"), 1, 2), Repeat(Chars((" ", "\t")), 0, 20))))
_COMMA = sequence(SPACE, Text(","), SPACE)
_COLON = sequence(SPACE, Text(":"), SPACE)
_DIGITS = Repeat(Chars(("09",)))
_INTEGER = sequence(maybe(Text("-")), choice(Text("0"), sequence(Chars(("19",)), _DIGITS)))
_FRACTION = maybe(Text("."), Repeat(Chars(("09",)), 1))
_EXPONENT = maybe(Chars(("e", "E")), maybe(Chars(("+", "-"))), Repeat(Chars(("09",)), 1))
_NUMBER = sequence(_INTEGER, _FRACTION, _EXPONENT)
_HEX = Chars(("09", "af", "AF"))
_ESCAPE = sequence(Text("\\"), choice(Chars(tuple('"\\/bfnrt')), sequence(Text("u"), Repeat(_HEX, 4, 4))))
_CONTROL = "\x00\x1f"
_CHAR = choice(Chars(('"', "\\", _CONTROL), excluded=True), _ESCAPE)
_STRING = sequence(Text('"'), Repeat(_CHAR), Text('"'))
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


@dataclass(frozen=True, slots=True)
class _Strings:
    """How strings are written. Where `without` is given, their text spells none of these."""

    without: tuple[str, ...]

    @property
    def characters(self) -> Node:
        if not self.without:
            return Repeat(_CHAR)
        plain = Free((*self.without, '"', "\\", *map(chr, range(32))))
        return sequence(Repeat(sequence(plain, _ESCAPE)), plain)

    @property
    def quoted(self) -> Node:
        return sequence(Text('"'), self.characters, Text('"'))

    @property
    def name(self) -> str:
        """A prefix for the names of rules."""
        return "json-text" if self.without else "json"


def _any_value(strings: _Strings) -> dict[str, Node]:
    """Rules for any value at all; the first is the value itself."""
    value, object, array = (Rule(f"{strings.name}-{kind}") for kind in ("value", "object", "array"))
    member = sequence(strings.quoted, _COLON, value)
    some = [Text("true"), Text("false"), Text("null")]
    return {
        value.name: choice(object, array, strings.quoted, _NUMBER, *some),
        object.name: sequence(Text("{"), SPACE, maybe(member, Repeat(sequence(_COMMA, member)), SPACE), Text("}")),
        array.name: sequence(Text("["), SPACE, maybe(value, Repeat(sequence(_COMMA, value)), SPACE), Text("]")),
    }


class SchemaNodes:
    """Makes schemas into nodes. The rules that these refer to are collected in `rules`."""

    def __init__(self) -> None:
        self.rules: dict[str, Node] = {}
        self.loosened: list[Loosened] = []
        self._known: dict[str, Node] = {}

    def node(self, value: Json) -> Node:
        key = json.dumps([value.schema, value.without])
        if key not in self._known:
            self._known[key] = _OneSchema(self, value, f"json-{len(self._known)}").root()
        return self._known[key]


class _OneSchema:
    def __init__(self, all: SchemaNodes, value: Json, name: str) -> None:
        self._rules, self._name, self._loosened = all.rules, name, all.loosened
        self._algebra = Algebra(value.schema, value.where, self._note)
        self._refs: dict[str, str] = {}
        self._strings = _Strings(value.without)

    def root(self) -> Node:
        return self._node(self._algebra.root())

    def _note(self, where: str, what: str) -> None:
        self._loosened.append(Loosened(where, what))

    def _rule(self, node: Node) -> Node:
        name = f"{self._name}-{len(self._rules)}"
        self._rules[name] = node
        return Rule(name)

    def _node(self, form: Form) -> Node:
        match form:
            case True:
                rules = _any_value(self._strings)
                self._rules.update(rules)
                return Rule(next(iter(rules)))
            case Plain(_, kind):
                return Text("null") if kind == "null" else choice(Text("true"), Text("false"))
            case Values(values):
                return choice(*(Text(json.dumps(value, ensure_ascii=False)) for value in values))
            case Numbers():
                return self._numbers(form)
            case Strings():
                return sequence(Text('"'), self._characters(form), Text('"'))
            case Arrays():
                return self._array(form)
            case Objects():
                return self._object(form)
            case AnyOf(options):
                return choice(*map(self._node, options))
            case Ref(pointer):
                if pointer not in self._refs:
                    self._refs[pointer] = name = f"{self._name}-ref-{len(self._refs)}"
                    target = self._algebra.target(pointer)
                    assert target is not None
                    self._rules[name] = self._node(target)
                return Rule(self._refs[pointer])
        raise AssertionError(f"nothing satisfies {form}: it should have been refused before")

    def _numbers(self, form: Numbers) -> Node:
        low, high = form.low, form.high
        if form.multiple is not None and form.multiple != 1:
            self._note(form.where, "`multipleOf` is not enforced")
        if form.whole:
            least = None if math.isinf(low) else math.floor(low) + 1 if form.open_low else math.ceil(low)
            most = None if math.isinf(high) else math.ceil(high) - 1 if form.open_high else math.floor(high)
            return _INTEGER if least is None and most is None else integers(least, most)
        if (low != 0 and math.isfinite(low)) or math.isfinite(high) or form.open_low:
            self._note(form.where, "the bounds of numbers with a fraction are not enforced")
        positive = sequence(choice(Text("0"), sequence(Chars(("19",)), _DIGITS)), _FRACTION, _EXPONENT)
        return positive if low >= 0 else _NUMBER

    def _characters(self, form: Strings) -> Node:
        if not form.patterns:
            if not self._strings.without:
                return Repeat(_CHAR, form.least, form.most)
            if form.least or form.most is not None:
                self._note(form.where, "`minLength` and `maxLength` are not enforced")
            return self._strings.characters
        if len(form.patterns) > 1:
            self._note(form.where, "only one of `pattern`, `format` and the patterns combined with it is enforced")
        held = patterns.within(form.patterns[0], form.least, form.most)
        if held is None:
            self._note(form.where, "`minLength` and `maxLength` are not enforced beside a pattern or format")
        return json_text(held or form.patterns[0])

    def _array(self, form: Arrays) -> Node:
        prefix, least = [self._node(item) for item in form.prefix], form.least
        more = max(least - len(prefix), 0), None if form.most is None else max(form.most - len(prefix), 0)
        rest: Node = NOTHING
        if form.items is not False and more[1] != 0:
            item = self._rule(self._node(form.items))
            if prefix:
                rest = Repeat(sequence(_COMMA, item), *more)
            else:
                tail = Repeat(sequence(_COMMA, item), max(more[0] - 1, 0), None if more[1] is None else more[1] - 1)
                rest = sequence(item, tail) if least else maybe(item, tail)
        # An array may end after any item that is not needed.
        for at in reversed(range(len(prefix))):
            rest = sequence(*([_COMMA] if at else []), prefix[at], rest)
            rest = rest if at < least else maybe(rest)
        return sequence(Text("["), SPACE, rest, SPACE, Text("]"))

    def _object(self, form: Objects) -> Node:
        if form.least > len(form.required) or form.most is not None:
            self._note(form.where, "`minProperties` and `maxProperties` are not enforced")
        others = form.others
        if form.matching:
            self._note(form.where, "which names `patternProperties` or `propertyNames` are about is not enforced")
            others = True
        named = [(name, inner) for name, inner in form.properties.items() if inner is not False]
        pairs = [
            (sequence(Text(json.dumps(name, ensure_ascii=False)), _COLON, self._node(inner)), name in form.required)
            for name, inner in named
        ]
        other = None
        if others is not False:
            spelled = [json.dumps(name, ensure_ascii=False)[1:-1] for name in form.properties]
            rest = self._strings.characters
            # Only what begins like a property may go on like a marker; that is left aside.
            key = sequence(Text('"'), other_than(spelled, _other_char, rest), Text('"'))
            other = sequence(key, _COLON, self._node(others))
        return sequence(Text("{"), SPACE, in_order(pairs, other, _COMMA, self._rule), SPACE, Text("}"))


def in_order(
    items: Sequence[tuple[Node, bool]], others: Node | None, comma: Node, rule: Callable[[Node], Node]
) -> Node:
    """These items in this order, as far as they are not needed with gaps, then any number of others."""
    repeated = NOTHING if others is None else Repeat(sequence(comma, others))
    after: Node = repeated
    at_first: Node = NOTHING if others is None else maybe(others, repeated)
    for item, needed in reversed(items):
        # Two rules for each item: one where something stands before it, and one where nothing does.
        here = sequence(comma, item, after)
        first = sequence(item, after)
        after, at_first = (
            rule(here if needed else choice(here, after)),
            first if needed else rule(choice(first, at_first)),
        )
    return at_first


def _other_char(taken: Collection[str]) -> Node:
    return choice(Chars(('"', "\\", _CONTROL, *sorted(taken)), excluded=True), _ESCAPE)


def other_than(words: Iterable[str], other_char: Callable[[Collection[str]], Node], rest: Node) -> Node:
    """What is none of these words: `other_char` is a character but these, `rest` whatever follows it."""
    words = set(words)
    ways: list[Node] = [] if "" in words else [NOTHING]
    heads = {word[0] for word in words if word}
    for head in sorted(heads):
        tails = {word[1:] for word in words if word.startswith(head)}
        ways.append(sequence(Text(head), other_than(tails, other_char, rest)))
    ways.append(sequence(other_char(heads), rest))
    return choice(*ways)


def json_text(node: patterns.Node) -> Node:
    """What a pattern matches, as it is spelled between the quotes of a JSON string."""
    match node:
        case patterns.Chars(ranges):
            return _json_chars(ranges)
        case patterns.Sequence(parts):
            return sequence(*map(json_text, parts))
        case patterns.Choice(options):
            return choice(*map(json_text, options))
        case patterns.Repeat(inner, least, most):
            return Repeat(json_text(inner), least, most)
    return NOTHING


def plain_text(node: patterns.Node) -> Node:
    """What a pattern matches, as it is."""
    match node:
        case patterns.Chars(ranges):
            return _chars(ranges)
        case patterns.Sequence(parts):
            return sequence(*map(plain_text, parts))
        case patterns.Choice(options):
            return choice(*map(plain_text, options))
        case patterns.Repeat(inner, least, most):
            return Repeat(plain_text(inner), least, most)
    return NOTHING


def _chars(ranges: patterns.Ranges) -> Node:
    return Chars(tuple(chr(low) + chr(high) if low < high else chr(low) for low, high in ranges))


def _json_chars(ranges: patterns.Ranges) -> Node:
    if ranges == patterns.EVERY:
        return _CHAR
    plain = patterns.without(ranges, ((0, 31), (34, 34), (92, 92)))
    ways: list[Node] = []
    if plain:
        ways.append(_chars(plain))
    for code in (*range(32), 34, 92):
        if any(low <= code <= high for low, high in ranges):
            short = _SHORT.get(chr(code))
            ways.append(Text(f"\\{short}" if short else f"\\u{code:04x}"))
    return choice(*ways)


def integers(least: int | None, most: int | None) -> Node:
    """The integers in a range, either end of which may be open."""
    ways: list[Node] = []
    if least is None or least < 0:
        # Below zero the order is the other way round.
        far = None if least is None else -least
        near = 1 if most is None or most >= -1 else -most
        ways.append(sequence(Text("-"), _naturals(near, far)))
        if most is None or most >= 0:
            ways.append(Text("-0"))
    if most is None or most >= 0:
        ways.append(_naturals(max(least or 0, 0), most))
    return choice(*ways)


def _naturals(least: int, most: int | None) -> Node:
    digits = len(str(least))
    ways: list[Node] = []
    while most is None or digits <= len(str(most)):
        low = max(least, 10 ** (digits - 1) if digits > 1 else 0)
        if most is None and low == 10 ** (digits - 1):
            ways.append(sequence(Chars(("19",)), _any_digits(digits - 1, None)))
            break
        high = 10**digits - 1 if most is None else min(most, 10**digits - 1)
        ways.append(_same_length(str(low), str(high)))
        digits += 1
    return choice(*ways)


def _same_length(low: str, high: str) -> Node:
    """Numbers of as many digits as these two, from one to the other."""
    if not low:
        return NOTHING
    if low[0] == high[0]:
        return sequence(Text(low[0]), _same_length(low[1:], high[1:]))
    rest = len(low) - 1
    first, last = low[0], high[0]
    ways: list[Node] = []
    if low[1:].strip("0"):
        ways.append(sequence(Text(first), _same_length(low[1:], "9" * rest)))
        first = chr(ord(first) + 1)
    if high[1:].strip("9"):
        ways.append(sequence(Text(last), _same_length("0" * rest, high[1:])))
        last = chr(ord(last) - 1)
    if first <= last:
        ways.append(sequence(Chars((first + last,)), _any_digits(rest, rest)))
    return choice(*ways)


def _any_digits(least: int, most: int | None) -> Node:
    return NOTHING if most == 0 else Repeat(Chars(("09",)), least, most)
