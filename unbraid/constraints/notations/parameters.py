"""The parameters of one tool, for notations that write arguments one by one.

The arguments of a strict tool come in the order of its schema, and each follows its part of the schema. Otherwise they
come in any order, and only their kinds are enforced: what is a number by the schema can then be read as one. A schema
that admits no other arguments than it names is taken at its word either way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...core.custom_tools import INPUT
from ...core.notations.base import Closing
from ...errors import InvalidTools
from ...schema.forms import AnyOf, Form, Strings, Values
from ...schema.kinds import kinds_among, kinds_of
from ...schema.normal_form import Normalizer
from ...schema.regular import ANY, NOTHING, Node, Repeat, Verbatim, choice, maybe, sequence
from ..language import Json, Lexeme, Restricted, Unenforced
from ..schema_grammar import SchemaGrammar, in_order, only_member, other_than
from .texts import in_quotes, restricted_pattern

LONGEST_KEY = 60
SPACES = frozenset({" ", "\x7f\xa0", "\u1680", "\u2000\u200a", "\u2028\u2029", "\u202f", "\u205f", "\u3000"})
"""Whitespace, as ranges of characters: what would be trimmed off a key."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """A tool's parameters. Tools with the same parameters share the arguments of one of them."""

    name: str
    schema: Mapping[str, Any]
    strict: bool
    rule: Callable[[Node], Node]
    """Makes a node a rule, and returns the reference to it."""
    unenforced: list[Unenforced]
    input: Node | None = None
    """The language of a custom tool's input, where it has a grammar."""

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

    def json(self, python: bool = False) -> Node:
        """All of them as one JSON object; with `python`, as a dict of Python's."""
        if self.input is not None:
            return only_member(INPUT, self.restricted(in_quotes(self.input), in_quotes(Repeat(ANY))))
        schema = {"type": "object", **self.schema} if self.strict else {"type": "object"}
        return Json(schema, self.where, python=python)

    def restricted(self, item: Node, free: Node) -> Node:
        """A custom tool's input by its grammar, and without one."""
        return Restricted(item, free, Unenforced(f"tool {self.name!r}: format", "the grammar is not enforced"))

    def kinds(self, key: str | None) -> frozenset[str]:
        return kinds_of(self.schema, key) if key is not None else kinds_among(self.schema, [self.others])

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
        return Normalizer(value.schema, value.where, self.note).root()

    def strings(self, key: str | None, spelled: Callable[[Strings | str], Node | None]) -> list[Node] | None:
        """The strings that the argument may be, each as `spelled` writes it; None where that is any string."""
        if self.input is not None and key == INPUT:
            return self._input(spelled)
        form = self.form(key, "string")
        options: list[Node] = []
        for part in form.options if isinstance(form, AnyOf) else (form,):
            match part:
                case Values(values):
                    nodes = {value: spelled(value) for value in values}
                    options += [node for node in nodes.values() if node is not None]
                    for value, node in nodes.items():
                        if node is None:
                            raise InvalidTools(f"{self.where}: {value!r} cannot stand between this format's tags")
                case Strings(_, 0, None, ()):
                    return None
                case Strings():
                    node = spelled(part)
                    if node is None:
                        self.note(part.where, "`pattern` is not enforced: it admits the closing tag")
                        return None
                    options.append(restricted_pattern(part, node, spelled(replace(part, patterns=()))))
                case _:
                    return None
        return options

    def _input(self, spelled: Callable[[Strings | str], Node | None]) -> list[Node] | None:
        assert self.input is not None
        item, free = (spelled(Strings(self.where, 0, None, patterns)) for patterns in ((self.input,), ()))
        if item is None or free is None:
            what = "the grammar is not enforced: it nests, and admits the closing tag"
            self.note(f"tool {self.name!r}: format", what)
            return None
        return [self.restricted(item, free)]

    def words(self, key: str | None) -> list[Node]:
        """The booleans and None that the argument may be, as Python writes them."""
        kinds = self.kinds(key)
        words: list[Node] = [Verbatim("None")] if "null" in kinds else []
        if "boolean" in kinds:
            form = self.form(key, "boolean")
            allowed = form.values if isinstance(form, Values) else (True, False)
            words += [Verbatim(repr(value)) for value in allowed]
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
                named.append((argument(Verbatim(key), value(key)), key in self.required))
            elif self.strict and key in self.required:
                raise InvalidTools(
                    f"{self.where}: {key!r} cannot be written in this format; use letters, digits and `_`"
                )
            else:
                self.note(f"{self.where}.properties.{key}", "cannot be written in this format")
        other = None
        if self.others is not False or (not self.strict and "patternProperties" in self.schema):
            unnamed = other_than({*never, *self.properties}, key_char, Repeat(key_char(()), 0, LONGEST_KEY))
            other = argument(Lexeme(unnamed), value(None))
        if self.strict:
            for keyword in ("patternProperties", "propertyNames", "minProperties", "maxProperties"):
                if keyword in self.schema:
                    self.note(self.where, f"`{keyword}` is not enforced")
            return in_order(named, other, separator, self.rule)
        if not named and other is None:
            return NOTHING
        any_one = choice(*(item for item, _ in named), *([other] if other is not None else []))
        return maybe(any_one, Repeat(sequence(separator, any_one)))


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call, to one of several tools that take the same arguments."""

    names: list[str]
    """The names of the tools."""
    parameters: Parameters
    following: list[str]
    """What may stand right after the arguments."""
    tail: tuple[Closing, ...]
    """What closes the call after its arguments."""
    tools: list[str]
    """The names of all tools."""
    spelled: Callable[[str], Node]
    """Markup with its whitespace, as text and tokens."""
    marker: Callable[[str], Node]
    """Markup without whitespace around it."""
    call_id: Node
    """An id that the model makes up."""
    rules: dict[str, Node]
    """The rules of the language; a notation may add some."""
    values: dict[str, SchemaGrammar]
    """Grammars of values that all calls share. A notation puts its own here."""
