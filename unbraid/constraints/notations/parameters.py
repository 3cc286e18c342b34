"""The arguments of a call where they are no JSON object: between tags, or as Python writes them.

A strict tool's arguments come in the order of its schema, and each follows its part of it. Otherwise they come in any
order, and only their kinds are held to, so that what is a number by the schema can be read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters, digits
from typing import Any, cast

from ...core.machine.markers import split_whitespace
from ...core.notations import TaggedArguments, xml_text
from ...core.notations.json_text import escape
from ...errors import InvalidTools
from ...schema import patterns
from ...schema.kinds import kinds_of
from ...schema.normal_form import Algebra, AnyOf, Form, Strings, Values, one_pattern
from ..language import (
    NOTHING,
    SPACE,
    Json,
    Lexeme,
    Node,
    Repeat,
    Text,
    TextExcept,
    Unenforced,
    all_but,
    chars,
    choice,
    maybe,
    sequence,
)
from ..schema_grammar import PLAIN_CHAR, in_order, json_text, other_than

LONGEST_KEY = 60
# Escapes that JSON and Python read alike.
_PYTHON_CHAR = choice(PLAIN_CHAR, sequence(Text("\\"), chars(*'"\\bfnrt')))
_SINGLE_QUOTED = choice(all_but("'", "\\", "\x00\x1f"), sequence(Text("\\"), chars(*"'\\bfnrt")))


@dataclass(frozen=True, slots=True)
class Parameters:
    """A tool's parameters."""

    name: str
    schema: Mapping[str, Any]
    strict: bool
    rule: Callable[[Node], Node]
    """Gives a node a name."""
    unenforced: list[Unenforced]

    @property
    def where(self) -> str:
        return f"tool {self.name!r}: parameters"

    @property
    def properties(self) -> Mapping[str, Any]:
        """Those that have a name; what is required has one, whether it is described or not."""
        described = cast(Mapping[str, Any], self.schema.get("properties", {}))
        return {**described, **{key: self.others for key in self.required if key not in described}}

    @property
    def required(self) -> Collection[str]:
        return cast(Collection[str], self.schema.get("required", ()))

    @property
    def others(self) -> object:
        return self.schema.get("additionalProperties", True)

    def json(self) -> Json:
        """All of them as one JSON object."""
        return Json({"type": "object", **self.schema} if self.strict else {"type": "object"}, self.where)

    def kinds(self, key: str | None) -> frozenset[str]:
        return kinds_of(self.schema, key) if key is not None else kinds_of({"additionalProperties": self.others}, "")

    def values(self, key: str | None, kinds: Iterable[str]) -> Json:
        """The values of these kinds that the argument may have; the key None is for those that have no name."""
        where = f"{self.where}.additionalProperties" if key is None else f"{self.where}.properties.{key}"
        return self.typed([self.others if key is None else self.properties.get(key, True)], kinds, where)

    def typed(self, schemas: Sequence[object], kinds: Iterable[str], where: str) -> Json:
        """The values of these kinds that one of these schemas admits, where the tool is strict; otherwise all."""
        schema: dict[str, Any] = {"type": sorted(kinds)}
        if self.strict and schemas:
            own = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
            definitions = {name: self.schema[name] for name in ("$defs", "definitions") if name in self.schema}
            schema = {"allOf": [own, schema], **definitions}
        return Json(schema, where)

    def form(self, key: str | None, kind: str) -> Form:
        value = self.values(key, [kind])
        return Algebra(value.schema, value.where, self.note).root()

    def strings(self, key: str | None, spelled: Callable[[Strings | str], Node | None]) -> list[Node] | None:
        """The strings that the argument may be, each as `spelled` writes it; None where that is any string."""
        form = self.form(key, "string")
        ways: list[Node] = []
        for option in form.options if isinstance(form, AnyOf) else (form,):
            match option:
                case Values(values):
                    written = {value: spelled(value) for value in values}
                    ways += [way for way in written.values() if way is not None]
                    for value, way in written.items():
                        if way is None:
                            raise InvalidTools(f"{self.where}: {value!r} cannot stand between this format's tags")
                case Strings(_, 0, None, ()):
                    return None
                case Strings():
                    way = spelled(option)
                    if way is None:
                        self.note(option.where, "`pattern` is not enforced: it admits the closing tag")
                        return None
                    ways.append(way)
                case _:
                    return None
        return ways

    def words(self, key: str | None) -> list[Node]:
        """The booleans and None that the argument may be, as Python writes them."""
        kinds = self.kinds(key)
        words: list[Node] = [Text("None")] if "null" in kinds else []
        if "boolean" in kinds:
            form = self.form(key, "boolean")
            allowed = form.values if isinstance(form, Values) else (True, False)
            words += [Text(repr(value)) for value in allowed]
        return words

    def note(self, where: str, what: str) -> None:
        self.unenforced.append(Unenforced(where, what))

    def each(
        self,
        argument: Callable[[Node, Node], Node],
        value: Callable[[str | None], Node],
        separator: Node,
        writable: Callable[[str], bool],
        key_char: Callable[[Collection[str]], Node],
        never: Collection[str] = (),
    ) -> Node:
        """All the arguments, each written by `argument` from its key and its value. `writable` says which keys can be
        written at all; `key_char` is a character of a key, but none of these; `never` is what cannot be a key."""
        named: list[tuple[Node, bool]] = []
        for key in self.properties:
            if writable(key):
                named.append((argument(Text(key), value(key)), key in self.required))
            elif self.strict and key in self.required:
                raise InvalidTools(
                    f"{self.where}: {key!r} cannot be written in this format; use letters, digits and `_`"
                )
            else:
                self.note(f"{self.where}.properties.{key}", "cannot be written in this format")
        other = None
        if not self.strict or self.others is not False:
            unnamed = other_than({*never, *self.properties}, key_char, Repeat(key_char(()), 0, LONGEST_KEY))
            other = argument(Lexeme(unnamed), value(None))
        if self.strict:
            for keyword in ("patternProperties", "propertyNames", "minProperties", "maxProperties"):
                if keyword in self.schema:
                    self.note(self.where, f"`{keyword}` is not enforced")
            return in_order(named, other, separator, self.rule)
        any_one = choice(*(item for item, _ in named), *([other] if other is not None else []))
        return maybe(any_one, Repeat(sequence(separator, any_one)))


def tagged(
    parameters: Parameters, tags: TaggedArguments, marker: Callable[[str], Node], following: Iterable[str]
) -> Node:
    """Arguments between tags. `following` is what may stand after the last one."""
    before, _, rest = tags.open.partition("{key}")
    middle, _, after = rest.rpartition("{kind}")
    lead, text, _ = split_whitespace(tags.close)
    trail = after[len(after.rstrip()) :]
    # All that ends a bare string: the closing tag, or what comes next where that is forgotten.
    ends = (text, before.strip(), *following)
    every: list[Node] = [TextExcept(ends)]
    if tags.escaped:
        # Sections, or text that begins none; what is an entity in it is read as one.
        open, close = xml_text.SECTION_OPEN, xml_text.SECTION_CLOSE
        every = [TextExcept((*ends, open)), Repeat(sequence(Text(open), TextExcept((close,)), Text(close)), 1)]
        ends = (*ends, open, xml_text.AMPERSAND)

    closing = marker(text)

    def argument(key: Node, value: Node) -> Node:
        if tags.escaped and isinstance(key, Text):
            key = Text(xml_text.encode_attribute(key.text))
        return sequence(SPACE, marker(before.lstrip()), key, value)

    barred = {"<", ">", (middle + after).strip()[0], *(xml_text.AMPERSAND if tags.escaped else ())}

    def opened(kinds: Iterable[str]) -> Node:
        """The rest of the opening tag, which may say that a value of one of these kinds comes."""
        words = [word for word, said in tags.kinds if set(said) & set(kinds)]
        if not words:
            return marker((middle + after).rstrip())
        return sequence(
            marker(middle), choice(*(marker(tags.kind.format(word)) for word in words)), marker(after.rstrip())
        )

    def key_char(taken: Collection[str]) -> Node:
        return all_but(*barred, "\x00\x1f", *taken)

    def string(form: Strings | str) -> Node | None:
        """A string that is held to something, or what a pattern matches; None where it might hold what ends it."""
        if isinstance(form, str):
            form = xml_text.encode(form) if tags.escaped else form
            return None if any(end in form for end in ends) and not tags.escaped else Text(form)
        if not form.patterns:
            return TextExcept(ends, least=form.least, most=form.most, where=form.where)
        pattern = one_pattern(form, parameters.note)
        return None if patterns.may_hold(pattern, {end[0] for end in ends}) else Lexeme(pattern)

    def value(key: str | None) -> Node:
        kinds = parameters.kinds(key)
        others = kinds - {"string"}
        held = parameters.strings(key, string) if "string" in kinds else []
        # Without whitespace of its own after the tag, a lexer cannot tell a string from what else may come.
        if held and others and (any(isinstance(way, TextExcept) for way in held) or not (trail or tags.kinds)):
            where = parameters.values(key, kinds).where
            parameters.note(where, "what a string may be, or how long, is not enforced beside other types")
            held = None
        if held is None and not tags.kinds:
            # Every text is a value, however it is read.
            around = sequence(opened(kinds), _maybe_text(trail)), sequence(_maybe_text(lead), closing)
            return choice(*(sequence(around[0], way, around[1]) for way in every))
        # The tag's own whitespace must be there: the string's would be taken for it.
        strings = every if held is None else held
        ways = [sequence(opened(["string"]), Text(trail), way, Text(lead), closing) for way in strings]
        if others:
            # Templates are written in Jinja, which writes True and None as Python does. Where a string may come, these
            # are strings.
            words = [] if "string" in kinds else parameters.words(key)
            # Each kind that the tag may speak of has a way of its own.
            said = [others & set(kinds) for _, kinds in tags.kinds if others & set(kinds)] or [others]
            for some in said:
                values = choice(replace(parameters.values(key, some), without=unescaped(some)), *words)
                ways.append(sequence(opened(some), SPACE, values, SPACE, closing))
        return choice(*ways)

    def unescaped(kinds: Collection[str]) -> tuple[str, ...]:
        """What JSON of these kinds must not spell."""
        return ends if tags.escaped and not {"array", "object"}.isdisjoint(kinds) else ()

    def fits(key: str) -> bool:
        return not any(char < " " or (char in barred and not tags.escaped) for char in key)

    return parameters.each(argument, value, NOTHING, fits, key_char)


def _maybe_text(text: str) -> Node:
    return maybe(Text(text)) if text else NOTHING


def python(parameters: Parameters) -> Node:
    """Arguments as in a Python call."""
    separator = sequence(SPACE, Text(","), SPACE)
    quote = Text('"')

    def argument(key: Node, value: Node) -> Node:
        return sequence(key, Text("="), value)

    def key_char(taken: Collection[str]) -> Node:
        return chars(*(letter for letter in f"{ascii_letters}{digits}_" if letter not in taken))

    def string(form: Strings | str) -> Node:
        if isinstance(form, str):
            return Text(escape(form))
        if form.patterns:
            return json_text(one_pattern(form, parameters.note))
        return Repeat(_PYTHON_CHAR, form.least, form.most)

    def value(key: str | None) -> Node:
        kinds = parameters.kinds(key)
        ways: list[Node] = []
        if "string" in kinds:
            held = parameters.strings(key, string)
            ways += [Lexeme(sequence(quote, way, quote)) for way in held or [Repeat(_PYTHON_CHAR)]]
            if held is None:
                ways.append(Lexeme(sequence(Text("'"), Repeat(_SINGLE_QUOTED), Text("'"))))
        if others := kinds - {"string"}:
            ways.append(replace(parameters.values(key, others), python=True))
        return choice(*ways)

    return sequence(SPACE, parameters.each(argument, value, separator, str.isidentifier, key_char, never=("",)), SPACE)
