"""Arguments as elements, one inside another: an object has an element for each member, an array one for each item.

Elements nest as deep as values do, so those that can hold others are rules. Where a value may be a string, every text
is one, and only the types of what is inside are enforced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...core.notations import ElementArguments
from ...core.notations.elements import is_element_name
from ...schema.forms import Strings, one_pattern
from ...schema.kinds import ITEMS, STRING, keys_inside, kinds_among, schemas_inside
from ...schema.regular import NOTHING, Node, Repeat, Verbatim, all_but, choice, sequence
from ..language import SPACE, Lexeme, Rule, TextExcept
from ..schema_grammar import other_than
from .parameters import LONGEST_KEY, CallContext
from .texts import between

_NESTING = frozenset({"array", "object"})
_UNNAMED = "\x00"
"""A name that no element has."""


def arguments(notation: ElementArguments, call: CallContext) -> Node:
    return _Elements(notation, call).all()


class _Elements:
    def __init__(self, notation: ElementArguments, call: CallContext) -> None:
        self.parameters, self.rules = call.parameters, call.rules
        self.item = notation.item
        self.begin = f"{notation.mark}<"
        self.mark = call.marker(self.begin)
        self.not_in_text = (notation.mark,)
        """What no text contains: there the whitespace after the mark would say whether a tag comes."""
        self.taken = {text.removeprefix(self.begin).strip("/>") for text in call.following}
        """What no element can be called."""
        self.known: dict[tuple[str | None, tuple[int, ...]], Node] = {}

    def all(self) -> Node:
        def argument(key: Node, value: Node) -> Node:
            return sequence(SPACE, self.mark, key, Verbatim(">"), value)

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
            parameters.note(where, "only the types of what is inside are enforced")
        strings = parameters.strings(key, self._string) if STRING in kinds else []
        if strings and kinds != {STRING} and any(isinstance(one, TextExcept) for one in strings):
            parameters.note(where, "the length of a string is not enforced beside other types")
            strings = None
        if strings is None:
            return self._element(key, schemas)
        scalars: list[Node] = []
        if some := kinds - {STRING} - _NESTING:
            scalars = [parameters.values(key, some), *([] if STRING in kinds else parameters.words(key))]
        return self._options(key, schemas, kinds, strings, scalars)

    def _element(self, name: str | None, schemas: Sequence[object]) -> Node:
        """What stands in an element that one of these schemas is about, and its closing tag: that of this name, or,
        where no schema knows the name, any."""
        kinds = kinds_among(self.parameters.schema, schemas)
        if not kinds & _NESTING:
            return self._content(name, schemas, kinds)
        key = name, tuple(map(id, schemas))
        if key not in self.known:
            rule = f"element-{len(self.rules)}"
            self.rules[rule] = NOTHING
            self.known[key] = Rule(rule)  # which is found inside it
            self.rules[rule] = self._content(name, schemas, kinds)
        return self.known[key]

    def _content(self, name: str | None, schemas: Sequence[object], kinds: frozenset[str]) -> Node:
        scalars: list[Node] = []
        if STRING not in kinds and (some := kinds - _NESTING):
            scalars = [self.parameters.typed(schemas, some, self.parameters.where)]
        # Where a string may come, every text is a value, however it is read.
        return self._options(name, schemas, kinds, [TextExcept(self.not_in_text)] if STRING in kinds else [], scalars)

    def _options(
        self,
        name: str | None,
        schemas: Sequence[object],
        kinds: frozenset[str],
        strings: Iterable[Node],
        scalars: Sequence[Node],
    ) -> Node:
        close = sequence(self.mark, *([Verbatim(f"/{name}>")] if name is not None else self._any_close()))
        options = [self._with_close(string, close) for string in strings]
        if scalars:
            options.append(sequence(SPACE, choice(*scalars), SPACE, close))
        # An empty element is an empty text, where it may be one.
        least = 1 if STRING in kinds else 0
        options += [sequence(Repeat(member, least), close) for member in self._members(schemas, kinds)]
        return choice(*options)

    def _with_close(self, string: Node, close: Node) -> Node:
        """A string and the tag after it. What is free is read together with that in one piece: it may begin like the
        tags of members."""
        both = sequence(string, close)
        return Lexeme(both) if isinstance(string, TextExcept) and isinstance(self.mark, Verbatim) else both

    def _any_close(self) -> tuple[Node, ...]:
        return Verbatim("/"), self._other_name(()), Verbatim(">")

    def _members(self, schemas: Sequence[object], kinds: frozenset[str]) -> list[Node]:
        """An element of an array, and one of an object."""
        options: list[Node] = []
        if "array" in kinds:
            options.append(self._opened(Verbatim(self.item), self._element(self.item, self._inside(schemas, ITEMS))))
        if "object" in kinds:
            # Where it may be both, items tell an array.
            taken = self.taken | ({self.item} if "array" in kinds else set())
            names = [name for name in keys_inside(self.parameters.schema, schemas) if is_element_name(name)]
            named = [name for name in names if name not in taken]
            members = [self._opened(Verbatim(name), self._element(name, self._inside(schemas, name))) for name in named]
            members.append(
                self._opened(self._other_name({*names, *taken}), self._element(None, self._inside(schemas, None)))
            )
            options.append(choice(*members))
        return options

    def _opened(self, name: Node, inside: Node) -> Node:
        return sequence(self.mark, name, Verbatim(">"), inside)

    def _other_name(self, names: Collection[str]) -> Node:
        """A name that is none of these."""
        return Lexeme(other_than({*names, *self.taken}, _name_char, Repeat(_name_char(()), 0, LONGEST_KEY)))

    def _inside(self, schemas: Sequence[object], key: str | None) -> list[object]:
        """None is for the members that have no name."""
        return schemas_inside(self.parameters.schema, schemas, _UNNAMED if key is None else key)

    def _string(self, form: Strings | str) -> Node | None:
        """A constant, or strings with a length or a pattern; None where they might contain a tag."""
        if isinstance(form, str):
            return None if self.not_in_text[0] in form else Verbatim(form)
        if not form.patterns:
            return TextExcept(self.not_in_text, least=form.least, most=form.most, where=form.where)
        return between(one_pattern(form, self.parameters.note), self.not_in_text, self.begin)


def _name_char(taken: Collection[str]) -> Node:
    # With `=`, a name could be the tag that a call begins with.
    return all_but("<", ">", '"', "/", "=", "\x00\x1f", *taken)
