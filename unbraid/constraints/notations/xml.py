"""Arguments between tags whose characters are XML: entities, and CDATA sections.

A string may be written in sections, or as text that begins none. What a constraint spells out itself is put into a
section where it needs one.
"""

from __future__ import annotations

from collections.abc import Collection

from ...core.notations import XmlArguments, xml
from ...schema.regular import Node, Repeat, Text, choice, sequence
from ..language import TextExcept
from .context import CallContext
from .tagged import Tagged
from .texts import between


def arguments(notation: XmlArguments, call: CallContext) -> Node:
    return _Xml(notation, call).arguments()


class _Xml(Tagged):
    def __init__(self, notation: XmlArguments, call: CallContext) -> None:
        super().__init__(notation, call)
        self._text_ends = (*self.ends, xml.SECTION_OPEN)
        self.ends = (*self._text_ends, xml.AMPERSAND)
        self.not_in_keys |= {xml.AMPERSAND}

    def any_string(self) -> list[Node]:
        open, close = xml.SECTION_OPEN, xml.SECTION_CLOSE
        section = sequence(Text(open), TextExcept((close,)), Text(close))
        return [TextExcept(self._text_ends), Repeat(section, 1)]

    def string(self, text: str) -> Node:
        return Text(xml.encode(text))

    def pattern(self, node: Node) -> Node | None:
        """As text without entities, or in one section."""
        open, close = xml.SECTION_OPEN, xml.SECTION_CLOSE
        plain, inside = super().pattern(node), between(node, (close,), close)
        ways = [plain, None if inside is None else sequence(Text(open), inside, Text(close))]
        found = [way for way in ways if way is not None]
        return choice(*found) if found else None

    def not_in_json(self, kinds: Collection[str]) -> tuple[str, ...]:
        return () if {"array", "object"}.isdisjoint(kinds) else self.ends
