"""Arguments as in a Python call: `key=value, …`, the values Python's literals; or a dict of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from string import ascii_letters, digits

from ...core.json_text import escape
from ...schema.forms import Strings, one_pattern
from ...schema.regular import Node, Repeat, Verbatim, all_but, chars, choice, sequence
from ..language import SPACE, Lexeme
from ..schema_grammar import PLAIN_CHAR
from .parameters import CallContext
from .texts import in_quotes

# Escapes that JSON and Python read alike.
_CHAR = choice(PLAIN_CHAR, sequence(Verbatim("\\"), chars(*'"\\bfnrt')))
_SINGLE_QUOTED = choice(all_but("'", "\\", "\x00\x1f"), sequence(Verbatim("\\"), chars(*"'\\bfnrt")))


def dictionary(notation: object, call: CallContext) -> Node:
    """A dict of Python's, its strings in the quotes that JSON has too."""
    return sequence(SPACE, call.parameters.json(python=True))


def arguments(notation: object, call: CallContext) -> Node:
    parameters = call.parameters
    separator = sequence(SPACE, Verbatim(","), SPACE)

    def quoted(characters: Node) -> Node:
        return Lexeme(sequence(Verbatim('"'), characters, Verbatim('"')))

    def argument(key: Node, value: Node) -> Node:
        return sequence(key, Verbatim("="), value)

    def key_char(taken: Collection[str]) -> Node:
        return chars(*(letter for letter in f"{ascii_letters}{digits}_" if letter not in taken))

    def string(form: Strings | str) -> Node:
        if isinstance(form, str):
            return quoted(Verbatim(escape(form)))
        if form.patterns:
            return in_quotes(one_pattern(form, parameters.note))
        return quoted(Repeat(_CHAR, form.least, form.most))

    def value(key: str | None) -> Node:
        kinds = parameters.kinds(key)
        options: list[Node] = []
        if "string" in kinds:
            strings = parameters.strings(key, string)
            options += strings or [quoted(Repeat(_CHAR))]
            if strings is None:
                options.append(Lexeme(sequence(Verbatim("'"), Repeat(_SINGLE_QUOTED), Verbatim("'"))))
        if others := kinds - {"string"}:
            options.append(replace(parameters.values(key, others), python=True))
        return choice(*options)

    return sequence(SPACE, parameters.each(argument, value, separator, str.isidentifier, key_char, never=("",)), SPACE)
