"""JSON schemas as grammar rules, for the grammar syntaxes that have no schemas of their own.

A schema in normal form becomes nodes of the language: one method of `ValueGrammar` for each form. Properties come in
the order of the schema, and those that it does not name after them. Whitespace stands after an item and before its
comma, so that the next character always says what comes.

Notations that write values in another way than JSON (`notations/bare.py`) override how strings and keys are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Seq
from functools import partial

from ..errors import InvalidSchema, Place
from ..metering import spend, working_on
from ..schema.forms import (
    ANYTHING,
    AnyOf,
    Arrays,
    Form,
    NullOrBoolean,
    Number,
    Numbers,
    Objects,
    Ref,
    Strings,
    Values,
    any_of,
    is_finite,
    one_pattern,
)
from ..schema.normal_form import Normalizer
from ..schema.regular import (
    ANY,
    NOTHING,
    Chars,
    Node,
    OneOf,
    Repeat,
    Sequence,
    Verbatim,
    all_but,
    among,
    chars,
    choice,
    maybe,
    sequence,
    without,
)
from .language import Json, Lexeme, Rule, TextExcept, Unenforced

# The whitespace between the parts of a value: none, a space, or a line break with an indent.
SPACE = Lexeme(maybe(choice(Verbatim(" "), sequence(Repeat(Verbatim("\n"), 1, 2), Repeat(chars(" ", "\t"), 0, 20)))))
MOST_JSON_SPACE = 22
"""How many characters that has at most, for converters that only count."""
_COMMA = sequence(SPACE, Verbatim(","), SPACE)
_COLON = sequence(SPACE, Verbatim(":"), SPACE)
_DIGIT = chars("09")
_NATURAL = choice(Verbatim("0"), sequence(chars("19"), Repeat(_DIGIT)))
_FRACTION = maybe(Verbatim("."), Repeat(_DIGIT, 1))
_EXPONENT = maybe(chars("e", "E"), maybe(chars("+", "-")), Repeat(_DIGIT, 1))
_HEX = chars("09", "af", "AF")
_UNICODE = sequence(Verbatim("u"), Repeat(_HEX, 4, 4))
# What stands in a string with a backslash before it, and what that is; and those that must be written so.
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MUST = {letter: char for letter, char in _SHORT.items() if letter != "/"}
_ESCAPE = sequence(Verbatim("\\"), choice(chars(*_SHORT), _UNICODE))
PLAIN_CHAR = all_but('"', "\\", "\x00\x1f")
_CHAR = choice(PLAIN_CHAR, _ESCAPE)
_PYTHON = {"true": "True", "false": "False", "null": "None"}
# How many parts are put into each other before they get a rule of their own, so that nothing nests too deep.
_STEPS = 8
# A rule for each of its characters keeps other names from being this one.
_LONGEST_NAME = 60


class SchemaGrammar:
    """Makes schemas into nodes, each schema once. The rules that these refer to are collected in `rules`."""

    prefix = "json"
    """What the names of the rules begin with."""

    def __init__(self) -> None:
        self.rules: dict[str, Node] = {}
        self.unenforced: list[Unenforced] = []
        self.places: dict[str, str] = {}
        """The part of a schema that each of the rules says."""
        self.anything: dict[tuple[object, ...], Node] = {}
        self._known: dict[str, Node] = {}

    def copy(self) -> SchemaGrammar:
        """The same rules to go on with."""
        grammar = SchemaGrammar()
        grammar.rules, grammar.places, grammar.unenforced = (
            self.rules.copy(),
            self.places.copy(),
            self.unenforced.copy(),
        )
        grammar.anything, grammar._known = self.anything.copy(), self._known.copy()
        return grammar

    def node(self, value: Json) -> Node:
        key = json.dumps([value.schema, value.without, value.python])
        if key not in self._known:
            try:
                self._known[key] = self.one(value, f"{self.prefix}-{len(self._known)}").root()
            except RecursionError:
                raise InvalidSchema(Place(text=value.where), " nests too deep; put what is deep into `$defs`") from None
        return self._known[key]

    def one(self, value: Json, name: str) -> ValueGrammar:
        return ValueGrammar(self, value, name)


class ValueGrammar:
    """Makes one schema into a node."""

    def __init__(self, all: SchemaGrammar, value: Json, name: str) -> None:
        self._all, self._rules, self._name = all, all.rules, name
        self._normalizer = Normalizer(value.schema, value.where, self._note)
        self._refs: dict[str, Node | None] = {}
        self._where, self._without = value.where, value.without
        self._spelling = value.without, value.python
        self._words = _PYTHON if value.python else {}
        self._place = value.where
        """The part that a node is being made of."""

    def root(self) -> Node:
        node = self._node(self._normalizer.root())
        if node is None:
            raise InvalidSchema(Place(text=self._where), " contradicts itself: no value satisfies all of it")
        return node

    def _note(self, where: str, what: str) -> None:
        self._all.unenforced.append(Unenforced(where, what))

    def _rule(self, node: Node) -> Node:
        if isinstance(node, Rule):
            return node
        name = f"{self._name}-{len(self._rules)}"
        self._rules[name] = node
        self._all.places[name] = self._place
        return Rule(name)

    def _node(self, form: Form) -> Node | None:
        """None where nothing satisfies the form."""
        spend()
        match form:
            case True:
                return self._anything()
            case False:
                return None
            case NullOrBoolean(_, kind):
                return choice(*map(self._word, (None,) if kind == "null" else (True, False)))
            case Values(values):
                spend(len(values))
                return choice(*map(self._word, values))
            case Numbers():
                return Lexeme(self._numbers(form))
            case Strings():
                return self._string(form)
            case Arrays():
                return self._inside(form.where, partial(self._array, form))
            case Objects():
                return self._inside(form.where, partial(self._object, form))
            case AnyOf(options):
                nodes = [node for node in map(self._node, options) if node is not None]
                return choice(*nodes) if nodes else None
            case Ref(pointer):
                return self._target(pointer)

    def _inside(self, where: str, make: Callable[[], Node | None]) -> Node | None:
        """What is made of a part of the schema."""
        before, self._place = self._place, where or self._place
        working_on(self._place)
        try:
            return make()
        finally:
            self._place = before

    def _word(self, value: object) -> Node:
        text = json.dumps(value, ensure_ascii=False)
        return Verbatim(self._words.get(text, text))

    def _anything(self) -> Node:
        rules = self._all.anything
        if self._spelling not in rules:
            name = f"{self._all.prefix}-any-{len(rules)}"
            rules[self._spelling] = Rule(name)  # which is found inside it
            self._rules[name] = choice(*(node for node in map(self._node, ANYTHING) if node is not None))
        return rules[self._spelling]

    def _target(self, pointer: str) -> Node | None:
        if pointer not in self._refs:
            name = f"{self._name}-ref-{len(self._refs)}"
            self._refs[pointer] = Rule(name)
            target = self._normalizer.target(pointer)
            assert target is not None, "nothing is being made any more"
            node = self._node(target)
            if node is None:
                self._refs[pointer] = None
            else:
                self._rules[name] = node
                self._all.places[name] = self._place
        return self._refs[pointer]

    def _numbers(self, form: Numbers) -> Node:
        low, high = form.low, form.high
        if form.multiple is not None:
            self._note(form.where, "`multipleOf` is not enforced")
        if form.whole:
            return integers(self._end("minimum", low, form.where), self._end("maximum", high, form.where))
        if (low != 0 and is_finite(low)) or is_finite(high) or form.open_low:
            self._note(form.where, "the bounds of numbers with a fraction are not enforced")
        return sequence(*([] if low >= 0 else [maybe(Verbatim("-"))]), _NATURAL, _FRACTION, _EXPONENT)

    def _end(self, key: str, bound: Number, where: str) -> int | None:
        """One end of a range of integers, if it has one that a grammar can say."""
        if is_finite(bound) and abs(bound) >= _LARGEST:
            self._note(where, f"`{key}` is not enforced: it has more than 100 digits")
            return None
        return int(bound) if is_finite(bound) else None

    def _string(self, form: Strings) -> Node:
        return _quoted(self._characters(form))

    def _key(self, name: str) -> Node:
        return Verbatim(json.dumps(name, ensure_ascii=False))

    def _characters(self, form: Strings) -> Node:
        if self._without and not form.patterns:
            if form.least or form.most is not None:
                self._note(form.where, "`minLength` and `maxLength` are not enforced")
            plain = TextExcept((*self._without, '"', "\\", *map(chr, range(32))))
            return sequence(Repeat(sequence(plain, _ESCAPE)), plain)
        return json_text(one_pattern(form, self._note))

    def _array(self, form: Arrays) -> Node | None:
        prefix: list[Node] = []
        for inner in (*form.prefix, form.items):
            node = self._node(inner)
            if node is None:
                break
            prefix.append(node)
        least, most = form.least, form.most
        comma = sequence(Verbatim(","), SPACE)
        rest: Node = NOTHING
        if len(prefix) > len(form.prefix):
            item = sequence(self._rule(prefix.pop()), SPACE)
            fewest, more = max(least - len(prefix), 0), None if most is None else most - len(prefix)
            if prefix:
                rest = Repeat(sequence(comma, item), fewest, more)
            else:
                tail = Repeat(sequence(comma, item), max(fewest - 1, 0), None if more is None else more - 1)
                rest = sequence(item, tail) if least else maybe(item, tail)
        elif len(prefix) < least:
            return None
        # An array may end after any item that is not needed.
        for at in reversed(range(len(prefix))):
            rest = sequence(*([comma] if at else []), prefix[at], SPACE, rest)
            rest = rest if at < least else maybe(rest)
            if at % _STEPS == _STEPS - 1:
                rest = self._rule(rest)
        # Whitespace comes after the items, so that the next character decides: a comma or the end.
        return sequence(Verbatim("["), SPACE, rest, Verbatim("]"))

    def _object(self, form: Objects) -> Node | None:
        if form.least > len(form.required) or form.most is not None:
            self._note(form.where, "`minProperties` and `maxProperties` are not enforced")
        if form.matching:
            self._note(form.where, "which names `patternProperties` or `propertyNames` are about is not enforced")
        pairs: list[tuple[Node, bool]] = []
        for name, inner in form.properties.items():
            value = self._node(inner)
            if value is not None:
                pairs.append((sequence(self._key(name), _COLON, value), name in form.required))
            elif name in form.required:
                return None
        value = self._node(any_of([form.others, *(inner for _, inner in form.matching)]))
        other = None if value is None else sequence(self._other_name(form), _COLON, value)
        return sequence(Verbatim("{"), spaced(in_order(pairs, other, _COMMA, self._rule)), SPACE, Verbatim("}"))

    def _other_name(self, form: Objects) -> Node:
        # Only what begins like a property may go on like a marker; that is left aside.
        rest = self._characters(Strings("", 0, None, ()))
        if not form.properties:
            return _quoted(rest)
        for name in form.properties:
            if len(name) > _LONGEST_NAME:
                self._note(f"{form.where}.properties.{name}", "may come again, with any value, as another property")
        spelled = (tuple(map(_spelled, name)) for name in form.properties if len(name) <= _LONGEST_NAME)
        return _quoted(other_than(spelled, _other_char, rest))


def only_member(key: str, value: Node) -> Node:
    """An object with this member and no other."""
    return sequence(
        Verbatim("{"), SPACE, Verbatim(json.dumps(key, ensure_ascii=False)), _COLON, value, SPACE, Verbatim("}")
    )


def _quoted(characters: Node) -> Node:
    return Lexeme(sequence(Verbatim('"'), characters, Verbatim('"')))


def spaced(node: Node) -> Node:
    """The node with whitespace before it, unless it is empty."""
    match node:
        case Repeat(item, 0, 1):
            return maybe(SPACE, item)
        case OneOf(items):
            return choice(*(item if item is NOTHING else spaced(item) for item in items))
    return node if node is NOTHING else sequence(SPACE, node)


def in_order(items: Seq[tuple[Node, bool]], others: Node | None, comma: Node, rule: Callable[[Node], Node]) -> Node:
    """These items in this order, without some of those that are not needed, then any number of others.

    What comes after an item is the same whether that is the first or not, so that there are two rules for each.
    """
    others = None if others is None else rule(others)
    after: Node = NOTHING if others is None else Repeat(sequence(comma, others))
    options: list[Node] = [NOTHING if others is None else maybe(others, after)]
    needed_first = next((at for at, (_, needed) in enumerate(items) if needed), len(items))
    for at in reversed(range(len(items))):
        spend()
        item, needed = items[at]
        if 0 < at <= needed_first:
            item, after = rule(item), after if after is NOTHING else rule(after)
        if needed:
            options.clear()
        options.insert(0, sequence(item, after))
        before = sequence(comma, item)
        after = sequence(before if needed else maybe(before), after)
    return choice(*options)


def other_than(words: Iterable[Seq[str]], other_char: Callable[[Collection[str]], Node], rest: Node) -> Node:
    """A grammar for "any text except these words", built as a trie. `other_char` gives any character but some; `rest`
    is what may follow a character that is in no word."""
    words = set(words)
    spend(1 + len(words))
    options: list[Node] = [NOTHING] if all(words) else []
    heads = {word[0] for word in words if word}
    for head in sorted(heads):
        tails = {word[1:] for word in words if word and word[0] == head}
        options.append(sequence(Verbatim(head), other_than(tails, other_char, rest)))
    other = other_char(heads)
    if other != Chars(()):
        options.append(sequence(other, rest))
    return choice(*options)


def _other_char(taken: Collection[str]) -> Node:
    """A character of a string but these, which are spelled as in JSON."""
    plain = among(without(PLAIN_CHAR.members, chars(*(char for char in taken if len(char) == 1)).ranges))
    short = chars(*(letter for letter in _SHORT if f"\\{letter}" not in taken))
    return choice(plain, sequence(Verbatim("\\"), choice(short, _UNICODE)))


def _spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def json_text(node: Node) -> Node:
    """What a pattern matches, as it is spelled between the quotes of a JSON string. `\\/` and `\\u0041` are left to
    where any character will do: the same string has a plainer spelling."""
    spend()
    match node:
        case Verbatim(text):
            return Verbatim(_spelled(text))
        case Chars():
            return _json_chars(node)
        case Sequence(items):
            return sequence(*map(json_text, items))
        case OneOf(items):
            return choice(*map(json_text, items))
        case Repeat(item, least, most):
            return Repeat(json_text(item), least, most)
    raise AssertionError(node)


def _json_chars(node: Chars) -> Node:
    if node == ANY:
        return _CHAR
    options: list[Node] = []
    if plain := without(node.members, PLAIN_CHAR.ranges):
        options.append(among(plain))
    if short := [letter for letter, char in _MUST.items() if node.holds(char)]:
        options.append(sequence(Verbatim("\\"), chars(*short)))
    for high in "01":
        codes = {digit: chr(int(high + digit, 16)) for digit in "0123456789abcdef"}
        digits = [digit for digit, char in codes.items() if node.holds(char) and char not in _MUST.values()]
        if digits:
            options.append(sequence(Verbatim(f"\\u00{high}"), chars(*digits, *map(str.upper, digits))))
    return choice(*options)


_LARGEST = 10**100


def integers(least: int | None, most: int | None) -> Node:
    """The integers in a range, either end of which may be open."""
    if least is None and most is None:
        return sequence(maybe(Verbatim("-")), _NATURAL)
    options: list[Node] = []
    if least is None or least < 0:
        # Below zero the order is the other way round.
        far = None if least is None else -least
        near = 1 if most is None or most >= -1 else -most
        options.append(sequence(Verbatim("-"), _naturals(near, far)))
        if most is None or most >= 0:
            options.append(Verbatim("-0"))
    if most is None or most >= 0:
        options.append(_naturals(max(least or 0, 0), most))
    return choice(*options)


def _naturals(least: int, most: int | None) -> Node:
    digits = len(str(least))
    options: list[Node] = []
    while most is None or digits <= len(str(most)):
        low = max(least, 10 ** (digits - 1) if digits > 1 else 0)
        if most is None and low == 10 ** (digits - 1):
            options.append(sequence(chars("19"), Repeat(_DIGIT, digits - 1)))
            break
        high = 10**digits - 1 if most is None else min(most, 10**digits - 1)
        options.append(_same_length(str(low), str(high)))
        digits += 1
    return choice(*options)


def _same_length(low: str, high: str) -> Node:
    """Numbers of as many digits as these two, from one to the other."""
    if not low:
        return NOTHING
    if low[0] == high[0]:
        return sequence(Verbatim(low[0]), _same_length(low[1:], high[1:]))
    rest = len(low) - 1
    first, last = low[0], high[0]
    options: list[Node] = []
    if low[1:].strip("0"):
        options.append(sequence(Verbatim(first), _same_length(low[1:], "9" * rest)))
        first = chr(ord(first) + 1)
    if high[1:].strip("9"):
        options.append(sequence(Verbatim(last), _same_length("0" * rest, high[1:])))
        last = chr(ord(last) - 1)
    if first <= last:
        options.append(sequence(chars(first + last), *([Repeat(_DIGIT, rest, rest)] if rest else [])))
    return choice(*options)
