"""Arguments as elements, one inside another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ...core.notations import ElementArguments
from ...core.notations.elements import is_element_name
from ...schema import patterns
from ...schema.kinds import ITEMS, STRING, keys_inside, kinds_among, schemas_inside
from ...schema.normal_form import Strings, one_pattern
from ..language import NOTHING, SPACE, Lexeme, Node, Repeat, Rule, Text, TextExcept, all_but, choice, sequence
from ..schema_grammar import other_than
from .parameters import LONGEST_KEY, Parameters

_NESTING = frozenset({"array", "object"})
_UNNAMED = "\x00"
"""A name that no element has."""


def elements(
    parameters: Parameters,
    notation: ElementArguments,
    marker: Callable[[str], Node],
    following: Collection[str],
    rules: dict[str, Node],
) -> Node:
    """All the arguments. `following` is what may stand after the last one; `rules` is where rules are kept."""
    return _Elements(parameters, notation, marker, following, rules).all()


class _Elements:
    def __init__(
        self,
        parameters: Parameters,
        notation: ElementArguments,
        marker: Callable[[str], Node],
        following: Collection[str],
        rules: dict[str, Node],
    ) -> None:
        self.parameters = parameters
        self.item = notation.item
        self.begin = f"{notation.mark}<"
        self.mark = marker(self.begin)
        self.rules = rules
        self.taken = {text.removeprefix(self.begin).strip("/>") for text in following}
        """What no element can be called."""
        self.known: dict[tuple[str | None, tuple[int, ...]], Node] = {}

    def all(self) -> Node:
        def argument(key: Node, value: Node) -> Node:
            return sequence(SPACE, self.mark, key, Text(">"), value)

        def writable(key: str) -> bool:
            return is_element_name(key) and key not in self.taken

        return self.parameters.each(argument, self._argument, NOTHING, writable, _name_char, self.taken)

    def _argument(self, key: str | None) -> Node:
        """What stands in the element of an argument, and its closing tag."""
        parameters = self.parameters
        schemas = self._inside([parameters.schema], key)
        kinds = kinds_among(parameters.schema, schemas)
        where = parameters.values(key, kinds).where
        if parameters.strict and kinds & _NESTING:
            parameters.note(where, "what is inside is held to its types alone")
        held = parameters.strings(key, self._string) if STRING in kinds else []
        if held and kinds != {STRING} and any(isinstance(way, TextExcept) for way in held):
            parameters.note(where, "the length of a string is not enforced beside other types")
            held = None
        if held is None:
            return self._element(key, schemas)
        scalars: list[Node] = []
        if some := kinds - {STRING} - _NESTING:
            scalars = [parameters.values(key, some), *([] if STRING in kinds else parameters.words(key))]
        return self._ways(key, schemas, kinds, held, scalars)

    def _element(self, name: str | None, schemas: Sequence[object]) -> Node:
        """What stands in an element that one of these schemas is about, and its closing tag: that of this name, or,
        where no schema knows the name, any."""
        kinds = kinds_among(self.parameters.schema, schemas)
        if not kinds & _NESTING:
            return self._content(name, schemas, kinds)
        known = name, tuple(map(id, schemas))
        if known not in self.known:
            rule = f"element-{len(self.rules)}"
            self.rules[rule] = NOTHING
            self.known[known] = Rule(rule)  # which is found inside it
            self.rules[rule] = self._content(name, schemas, kinds)
        return self.known[known]

    def _content(self, name: str | None, schemas: Sequence[object], kinds: frozenset[str]) -> Node:
        scalars: list[Node] = []
        if STRING not in kinds and (some := kinds - _NESTING):
            scalars = [self.parameters.typed(schemas, some, self.parameters.where)]
        # Where a string may come, every text is a value, however it is read.
        return self._ways(name, schemas, kinds, [TextExcept((self.begin,))] if STRING in kinds else [], scalars)

    def _ways(
        self,
        name: str | None,
        schemas: Sequence[object],
        kinds: frozenset[str],
        strings: Iterable[Node],
        scalars: Sequence[Node],
    ) -> Node:
        close = sequence(self.mark, *([Text(f"/{name}>")] if name is not None else self._any_close()))
        ways = [self._with_close(string, close) for string in strings]
        if scalars:
            ways.append(sequence(SPACE, choice(*scalars), SPACE, close))
        # An empty element is an empty text, where it may be one.
        least = 1 if STRING in kinds else 0
        ways += [sequence(Repeat(member, least), close) for member in self._members(schemas, kinds)]
        return choice(*ways)

    def _with_close(self, string: Node, close: Node) -> Node:
        """A string and the tag after it. What is free is read together with that in one piece: it may begin like the
        tags of members."""
        both = sequence(string, close)
        return Lexeme(both) if isinstance(string, TextExcept) and isinstance(self.mark, Text) else both

    def _any_close(self) -> tuple[Node, ...]:
        return Text("/"), self._other_name(()), Text(">")

    def _members(self, schemas: Sequence[object], kinds: frozenset[str]) -> list[Node]:
        """An element of an array, and one of an object."""
        ways: list[Node] = []
        if "array" in kinds:
            ways.append(self._opened(Text(self.item), self._element(self.item, self._inside(schemas, ITEMS))))
        if "object" in kinds:
            # Where it may be both, items tell an array.
            taken = self.taken | ({self.item} if "array" in kinds else set())
            names = [name for name in keys_inside(self.parameters.schema, schemas) if is_element_name(name)]
            named = [name for name in names if name not in taken]
            members = [self._opened(Text(name), self._element(name, self._inside(schemas, name))) for name in named]
            members.append(
                self._opened(self._other_name({*names, *taken}), self._element(None, self._inside(schemas, None)))
            )
            ways.append(choice(*members))
        return ways

    def _opened(self, name: Node, inside: Node) -> Node:
        return sequence(self.mark, name, Text(">"), inside)

    def _other_name(self, names: Collection[str]) -> Node:
        """A name that is none of these."""
        return Lexeme(other_than({*names, *self.taken}, _name_char, Repeat(_name_char(()), 0, LONGEST_KEY)))

    def _inside(self, schemas: Sequence[object], key: str | None) -> list[object]:
        """None is for the members that have no name."""
        return schemas_inside(self.parameters.schema, schemas, _UNNAMED if key is None else key)

    def _string(self, form: Strings | str) -> Node | None:
        """A string that is held to something, or what a pattern matches; None where it might hold a tag."""
        if isinstance(form, str):
            return None if self.begin in form else Text(form)
        if not form.patterns:
            return TextExcept((self.begin,), least=form.least, most=form.most, where=form.where)
        pattern = one_pattern(form, self.parameters.note)
        return None if all(patterns.may_hold(pattern, char) for char in self.begin) else Lexeme(pattern)


def _name_char(taken: Collection[str]) -> Node:
    return all_but("<", ">", '"', "/", "\x00\x1f", *taken)
