"""Arguments one by one between tags: a string as its bare characters, anything else as JSON.

A bare string ends at its closing tag, so free strings are text without that tag, and without what the parser takes for
the end of a value whose tag was forgotten (`core/notations/value_ends.py`). Where a value may be a string or something
else, every text is a value, and no more can be enforced unless the tag says which kind comes.

With XML's characters (`xml_arguments`), a string may be written in CDATA sections, or as text that begins none. What a
constraint spells out itself is put into a section where it needs one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from ...core.machine.markers import split_whitespace
from ...core.notations import TaggedArguments, XmlArguments, xml
from ...core.notations.value_ends import next_argument
from ...schema.forms import Strings, one_pattern
from ...schema.regular import NOTHING, Node, Repeat, Verbatim, all_but, choice, maybe, sequence
from ..language import SPACE, TextExcept
from .parameters import SPACES, CallContext
from .texts import between

_MOST_ARGUMENTS = 24
"""How many arguments may have a language of their own: each costs a grammar some hundred rules."""


def arguments(notation: TaggedArguments, call: CallContext) -> Node:
    return Tagged(notation, call).arguments()


class Tagged:
    """The arguments of one tool."""

    def __init__(self, notation: TaggedArguments, call: CallContext) -> None:
        self.notation, self.parameters, self._spelled = notation, call.parameters, call.spelled
        self._before, _, rest = notation.open.partition("{key}")
        self._middle, _, self._after = rest.rpartition("{kind}")
        self._lead, close, _ = split_whitespace(notation.close)
        self._trail = self._after[len(self._after.rstrip()) :]
        self._close = self._spelled(close)
        self.following = self._lead + close
        """What stands after a value."""
        self._call = call
        self.not_in_keys = {*"<>", *notation.not_in_keys, *(text[0] for _, text in notation.key_escapes)}
        if not notation.quotes_keys:
            self.not_in_keys |= SPACES

    def arguments(self) -> Node:
        return self.parameters.each(self._argument, self._value, NOTHING, self.notation.can_name, self._key_char)

    # --- How characters are written ------------------------------------------------------------------------------

    def ends(self, key: str | None) -> tuple[str, ...]:
        """What a bare string cannot hold: its closing tag, what begins a further call, the tag of the next argument.
        Where there are many arguments, all strings are one language, without the tag of any."""
        notation, schema = self.notation, self.parameters.schema
        further = (closing.further for closing in self._call.tail if closing.further)
        next = next_argument(schema, key)
        if len(schema.get("properties", ())) > _MOST_ARGUMENTS:
            tags = [notation.next_tag[1]]
        else:
            tags = [notation.tag_of(next)] if next is not None and notation.can_name(next) else []
        return (notation.close.strip(), *further, *tags)

    def any_string(self, ends: tuple[str, ...]) -> list[Node]:
        """Any string, in each form that it may be written in."""
        return [TextExcept(ends)]

    def string(self, text: str, ends: tuple[str, ...]) -> Node | None:
        """A string; None where it cannot be written."""
        return None if any(end in text for end in ends) else Verbatim(text)

    def pattern(self, node: Node, ends: tuple[str, ...]) -> Node | None:
        """The strings of a language; None where they might contain what ends them."""
        return between(node, ends, self.following)

    def not_in_json(self, key: str | None, kinds: Collection[str]) -> tuple[str, ...]:
        """What JSON of these kinds must not contain."""
        return ()

    # --- Arguments -----------------------------------------------------------------------------------------------

    def _argument(self, key: Node, value: Node) -> Node:
        name = Verbatim(self.notation.encoded_key(key.text)) if isinstance(key, Verbatim) else key
        return sequence(SPACE, self._spelled(self._before.lstrip()), name, value)

    def _opened(self, kinds: Iterable[str]) -> Node:
        """The rest of the opening tag, which may say that a value of one of these kinds comes."""
        words = [word for word, named in self.notation.kinds if set(named) & set(kinds)]
        if not words:
            return self._spelled((self._middle + self._after).rstrip())
        kind = choice(*(self._spelled(self.notation.kind.format(word)) for word in words))
        return sequence(self._spelled(self._middle), kind, self._spelled(self._after.rstrip()))

    def _key_char(self, taken: Collection[str]) -> Node:
        return all_but(*self.not_in_keys, "\x00\x1f", *taken)

    def _restricted(self, ends: tuple[str, ...], form: Strings | str) -> Node | None:
        """A constant, or strings with a length or a pattern; None where they might contain what ends them."""
        if isinstance(form, str):
            return self.string(form, ends)
        if form.patterns:
            return self.pattern(one_pattern(form, self.parameters.note), ends)
        if not form.least and form.most is None:
            return choice(*self.any_string(ends))
        return TextExcept(ends, least=form.least, most=form.most, where=form.where)

    def _value(self, key: str | None) -> Node:
        """The rest of the opening tag, the value, and the closing tag."""
        parameters, tag_tells = self.parameters, bool(self.notation.kinds)
        kinds, ends = parameters.kinds(key), self.ends(key)
        others = kinds - {"string"}
        strings = parameters.strings(key, partial(self._restricted, ends)) if "string" in kinds else []
        # Without whitespace of its own after the tag, a lexer cannot tell a string from what else may come.
        told_apart = bool(self._trail) or tag_tells
        if strings and others and (not told_apart or any(isinstance(one, TextExcept) for one in strings)):
            where = parameters.values(key, kinds).where
            parameters.note(where, "what a string may be, or how long, is not enforced beside other types")
            strings = None
        if strings is None and not tag_tells:
            # Every text is a value, however it is read.
            before = sequence(self._opened(kinds), _optional(self._trail))
            after = sequence(_optional(self._lead), self._close)
            return choice(*(sequence(before, one, after) for one in self.any_string(ends)))
        # The tag's own whitespace must be there: the string's would be taken for it.
        opened = sequence(self._opened(["string"]), Verbatim(self._trail))
        options: list[Node] = [
            sequence(opened, one, Verbatim(self._lead), self._close)
            for one in (self.any_string(ends) if strings is None else strings)
        ]
        if others:
            # Templates are written in Jinja, which writes True and None as Python does. Where a string may come, these
            # are strings.
            words = [] if "string" in kinds else parameters.words(key)
            # Each kind that the tag may speak of is an alternative of its own.
            groups = [others & set(kinds) for _, kinds in self.notation.kinds if others & set(kinds)] or [others]
            for some in groups:
                value = replace(parameters.values(key, some), without=self.not_in_json(key, some))
                options.append(sequence(self._opened(some), SPACE, choice(value, *words), SPACE, self._close))
        return choice(*options)


def _optional(text: str) -> Node:
    return maybe(Verbatim(text)) if text else NOTHING


def xml_arguments(notation: XmlArguments, call: CallContext) -> Node:
    return _Xml(notation, call).arguments()


class _Xml(Tagged):
    def __init__(self, notation: XmlArguments, call: CallContext) -> None:
        super().__init__(notation, call)
        self.not_in_keys |= {xml.AMPERSAND}

    def ends(self, key: str | None) -> tuple[str, ...]:
        return (*super().ends(key), xml.SECTION_OPEN, xml.AMPERSAND)

    def any_string(self, ends: tuple[str, ...]) -> list[Node]:
        open, close = xml.SECTION_OPEN, xml.SECTION_CLOSE
        section = sequence(Verbatim(open), TextExcept((close,)), Verbatim(close))
        text = TextExcept(tuple(end for end in ends if end != xml.AMPERSAND))
        return [text, Repeat(section, 1)]

    def string(self, text: str, ends: tuple[str, ...]) -> Node:
        return Verbatim(xml.encode(text))

    def pattern(self, node: Node, ends: tuple[str, ...]) -> Node | None:
        """As text without entities, or in one section."""
        open, close = xml.SECTION_OPEN, xml.SECTION_CLOSE
        plain, inside = super().pattern(node, ends), between(node, (close,), close)
        ways = [plain, None if inside is None else sequence(Verbatim(open), inside, Verbatim(close))]
        nodes = [way for way in ways if way is not None]
        return choice(*nodes) if nodes else None

    def not_in_json(self, key: str | None, kinds: Collection[str]) -> tuple[str, ...]:
        return () if {"array", "object"}.isdisjoint(kinds) else self.ends(key)
