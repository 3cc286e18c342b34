"""The markup of a format as nodes: markers as text or tokens, free text without them, audio codes.

Free text must contain no marker. As a token a marker is no text; spelled out it would fool those who read only the
text. So all markers of the format are forbidden words, whether they are tokens or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core import grammar
from ..core.compiler.compiler import pieces
from ..core.compiler.program import Program
from ..schema.regular import NOTHING, Node, Text, choice, maybe, sequence
from ..schema.types import Schema
from .language import Json, TextExcept, one_token
from .schema_grammar import integers


class Markup:
    """The markup of one format, for text or for one vocabulary."""

    def __init__(self, program: Program) -> None:
        self.program, self.format = program, program.format
        self.tokens = {program.spellings[char]: token for token, char in program.token_placeholders.items()}
        """The markers that are tokens."""
        format = self.format
        markers = dict.fromkeys(_markers(format))
        if format.speech is not None:
            markers |= dict.fromkeys((format.speech.code.partition("{}")[0], *format.speech.padding))
        if format.transcript is not None:
            markers[format.transcript.tag.partition("{}")[0]] = None
        self.markers = tuple(markers)
        """All that free text must not contain."""
        self.free = TextExcept(self.markers)
        self.codes = _code_node(program)
        """An audio code, or padding, where the format has speech."""

    def marker(self, text: str) -> Node:
        """A marker without the whitespace around it."""
        return self.spelled(text.strip())

    def spelled(self, text: str) -> Node:
        """Markup as it is written, with its tokens."""
        found = pieces(text, self.tokens.__contains__)
        return sequence(
            *(one_token([self.tokens[one]], Text(one)) if is_token else Text(one) for one, is_token in found)
        )

    def json_answer(self, schema: Schema, where: str) -> Node:
        """An answer in JSON. In the content, a marker that is no token is a marker, even inside a JSON string."""
        without = [marker for marker in self.markers if marker not in self.tokens]
        if (citations := self.format.citations) is not None:
            without += [*citations.tags, *citations.opens]
        return Json(schema, where, without=tuple(without))


def trailing_space(close: str) -> Node:
    """Whitespace at the end of the output: what the closing marker has of its own. More would be content, and a weak
    model that has nothing else to write would fill up all that it is allowed."""
    trail = close[len(close.rstrip()) :]
    return maybe(Text(trail)) if trail else NOTHING


def _markers(format: grammar.Format) -> Iterable[str]:
    """All that opens or closes something, or is markup of its own."""
    if format.headers is not None:
        headers = format.headers
        yield from (text for text in (*headers.opens, *headers.closes, *headers.ends) if text.strip())
        return
    for around in (format.reasoning, format.answer):
        if around is not None:
            for pair in ((around.open, around.close), *around.also):
                yield from (text.strip() for text in pair if text)
    for tools in (format.tools, *format.other_tools):
        if tools is not None:
            yield from (text.strip() for text in (tools.open, *tools.also, *tools.closes) if text)
    if format.speech is not None:
        yield from (format.speech.open.strip(), format.speech.close.strip())
    yield from (text.strip() for text in format.ignored)


def _code_node(program: Program) -> Node | None:
    """One audio code, or padding."""
    speech = program.format.speech
    if speech is None:
        return None
    before, _, after = speech.code.partition("{}")
    spelled = choice(sequence(Text(before), integers(0, speech.codes - 1), Text(after)), *map(Text, speech.padding))
    if program.vocabulary is None:
        return spelled
    return one_token(program.codes.keys(), spelled)
