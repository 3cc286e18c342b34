"""The markup of a format as nodes: markers as text or tokens, free text without them, audio codes.

Free text must contain no marker. As a token a marker is no text; spelled out it would fool those who read only the
text. So all markers of the format are forbidden words, whether they are tokens or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core import grammar
from ..core.compiler.compiler import Program, pieces
from ..core.machine.markers import marked_parts
from ..schema.keywords import Schema
from ..schema.regular import NOTHING, Node, Repeat, Verbatim, choice, maybe, sequence
from .language import Json, TextExcept, one_token
from .schema_grammar import integers


class MarkupNodes:
    """The markup of one format, for text or for one vocabulary."""

    def __init__(self, program: Program) -> None:
        self.program, self.format = program, program.format
        self.tokens = {program.spellings[char]: token for token, char in program.token_placeholders.items()}
        """The markers that are tokens."""
        format = self.format
        # Whitespace may stand between a mark and its tag: the mark alone is too much.
        markers = dict.fromkeys(
            marked_parts(marker)[0].removesuffix(format.optional_end) for marker in _markers(format)
        )
        inner = program.inner_tags.values()
        markers |= dict.fromkeys(tag for tag in inner if not any(one in tag or tag in one for one in markers))
        if format.speech is not None:
            spelled = (format.speech.code.partition("{}")[0], *format.speech.out_of_band)
            markers |= dict.fromkeys(text for text in spelled if text)
        if format.transcript is not None:
            markers[format.transcript.tag.partition("{}")[0]] = None
        self.markers = tuple(markers)
        """All that free text must not contain."""
        self.free = TextExcept(self.markers)
        self.audio = _audio(program)
        """A frame of audio codes with what stands around it, or padding; None where there is neither."""

    def marker(self, text: str) -> Node:
        """A marker without the whitespace around it."""
        return self.spelled(text.strip())

    def ending(self, text: str) -> Node:
        """What ends a message, with the whitespace that may come after it."""
        trail = text[len(text.rstrip()) :]
        return sequence(self.marker(text), maybe(Verbatim(trail)) if trail else NOTHING)

    def opening(self, around: grammar.Between) -> Node:
        """What opens a strand. A label belongs to it with its whitespace: without, the text would begin with it."""
        return self.spelled(around.open.lstrip()) if around.label else self.marker(around.open)

    def spelled(self, text: str) -> Node:
        """MarkupNodes as it is written, with its tokens."""
        parts = pieces(text, self.tokens.__contains__)
        return sequence(
            *(one_token([self.tokens[one]], Verbatim(one)) if is_token else Verbatim(one) for one, is_token in parts)
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
    return maybe(Verbatim(trail)) if trail else NOTHING


def _markers(format: grammar.Format) -> Iterable[str]:
    """All that opens or closes something, or is markup of its own."""
    if format.headers is not None:
        headers = format.headers
        yield from filter(None, map(str.strip, (*headers.opens, *headers.closes, *headers.ends)))
        return
    for around in (format.reasoning, format.answer):
        if around is not None:
            for pair in ((around.open.removesuffix(around.label), around.close), *around.also):
                yield from (text.strip() for text in pair if text)
    for tools in (format.tools, *format.other_tools):
        if tools is not None:
            yield from (text.strip() for text in (tools.open, *tools.also, *tools.closes) if text)
    if format.speech is not None:
        yield from (text.strip() for text in (format.speech.open, format.speech.close) if text)
    yield from (text.strip() for text in format.ignored)


def _audio(program: Program) -> Node | None:
    """What is out of band in speech, one after the other: a run of frames between its markers, or padding."""
    speech = program.format.speech
    if speech is None:
        return None
    tokens = {text: token for token, (_, text) in program.codes.items() if text}

    def silent(text: str) -> Node:
        return one_token([tokens[text]], Verbatim(text)) if text in tokens else Verbatim(text)

    frame = sequence(*_frame(program, speech))
    run: list[Node] = [frame] if frame != NOTHING else []
    if any(speech.around):
        open, close = map(silent, speech.around)
        run = [sequence(open, *(Repeat(frame, 1) for frame in run), close)]
    items = [*run, *map(silent, speech.padding)]
    return choice(*items) if items else None


def _frame(program: Program, speech: grammar.SpeechMarkup) -> Iterable[Node]:
    """One code of each codebook. Codes from a head of their own are not in the output."""
    if not speech.code and (speech.first_token is None or program.vocabulary is None):
        return
    size = speech.codes // speech.codebooks
    before, _, after = speech.code.partition("{}")
    for first in range(0, speech.codes, size):
        spelled: Node = NOTHING
        if speech.code:
            spelled = sequence(Verbatim(before), integers(first, first + size - 1), Verbatim(after))
        if program.vocabulary is None:
            yield spelled
        else:
            codes = range(first, first + size)
            yield one_token({token for token, (code, _) in program.codes.items() if code in codes}, spelled)
