"""Arguments as one object with bare keys, and strings between quotes of their own: `{key:<quote>text<quote>,n:1}`.

Values inside of values are written alike, so this notation has its own grammar of schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ...core.notations import BareArguments
from ...core.notations.bare import is_bare_key
from ...errors import InvalidTools
from ...schema.forms import Note, Objects, Strings, one_pattern
from ...schema.regular import Node, Repeat, Verbatim, all_but, choice, maybe, sequence
from ..language import SPACE, Json, Lexeme, TextExcept, Unenforced
from ..schema_grammar import SchemaGrammar, ValueGrammar, other_than
from .parameters import LONGEST_KEY, SPACES, CallContext
from .texts import between, restricted_pattern

_NOT_IN_KEYS = (*":=,{}[]()<>\"'", "\x00\x1f")
_KEY = sequence(all_but(*_NOT_IN_KEYS, " "), Repeat(all_but(*_NOT_IN_KEYS), 0, LONGEST_KEY))


class _BareValues(SchemaGrammar):
    """Makes schemas into the language of their values in this notation."""

    def __init__(
        self, quote: str, marker: Callable[[str], Node], rules: dict[str, Node], unenforced: list[Unenforced]
    ) -> None:
        super().__init__()
        self.rules, self.unenforced = rules, unenforced
        self.prefix = f"bare-{len(rules)}"
        self.quote = quote
        self.mark = marker(quote)

    def one(self, value: Json, name: str) -> ValueGrammar:
        return _BareSchema(self, value, name)

    def quoted(self, inside: Node) -> Node:
        return sequence(self.mark, inside, self.mark)

    def string(self, form: Strings, note: Note) -> Node | None:
        """Strings with a length or a pattern; None where they might contain the closing quote."""
        if not form.patterns:
            return self.quoted(TextExcept((self.quote,), least=form.least, most=form.most, where=form.where))
        inside = between(one_pattern(form, note), (self.quote,), self.quote)
        return None if inside is None else self.quoted(inside)

    def key(self, name: str) -> Node:
        return Verbatim(name) if is_bare_key(name) else self.quoted(Verbatim(name))

    def other_key(self, names: Collection[str]) -> Node:
        """A key that is none of these."""
        if names:
            return Lexeme(other_than(names, _key_char, Repeat(_key_char(()), 0, LONGEST_KEY)))
        return choice(maybe(Lexeme(_KEY)), self.quoted(TextExcept((self.quote,))))


class _BareSchema(ValueGrammar):
    def __init__(self, all: _BareValues, value: Json, name: str) -> None:
        super().__init__(all, value, name)
        self._bare = all

    def _word(self, value: object) -> Node:
        if value is None:
            return choice(Verbatim("None"), Verbatim("null"))
        if not isinstance(value, str):
            return super()._word(value)
        if self._bare.quote in value:
            raise InvalidTools(f"{self._where}: {value!r} cannot stand between this format's quotes")
        return self._bare.quoted(Verbatim(value)) if value else sequence(self._bare.mark, self._bare.mark)

    def _string(self, form: Strings) -> Node:
        node = self._bare.string(form, self._note)
        assert node is not None, "a pattern does not nest"
        free = replace(form, patterns=())
        return restricted_pattern(form, node, self._bare.string(free, self._note)) if form.patterns else node

    def _key(self, name: str) -> Node:
        return self._bare.key(name)

    def _other_name(self, form: Objects) -> Node:
        return self._bare.other_key(form.properties)


def _key_char(taken: Collection[str]) -> Node:
    return all_but(*_NOT_IN_KEYS, *SPACES, *taken)


def arguments(notation: BareArguments, call: CallContext) -> Node:
    parameters, quote = call.parameters, notation.quote
    if quote not in call.values:
        call.values[quote] = _BareValues(quote, call.marker, call.rules, parameters.unenforced)
    values = call.values[quote]
    assert isinstance(values, _BareValues)

    def argument(key: Node, value: Node) -> Node:
        return sequence(values.key(key.text) if isinstance(key, Verbatim) else key, SPACE, Verbatim(":"), SPACE, value)

    def string(form: Strings | str) -> Node | None:
        assert isinstance(form, Strings)
        return values.string(form, parameters.note)

    def value(key: str | None) -> Node:
        if parameters.input is not None and (strings := parameters.strings(key, string)):
            return choice(*strings)
        return values.node(parameters.values(key, parameters.kinds(key)))

    separator = sequence(SPACE, Verbatim(","), SPACE)
    inside = parameters.each(argument, value, separator, notation.can_name, _key_char)
    return sequence(SPACE, Verbatim("{"), SPACE, inside, SPACE, Verbatim("}"))
