"""From a format and a request to the language of the responses that are allowed.

A turn is built in one of three ways, by what the format has: strands between markers (`strands`), messages with headers
(`headers`), or a transcript (here). Calls are the same in all of them (`calls`).

The language is narrower than what the parser reads. The parser takes what models write by mistake; the constraint
allows what the format's template writes, and what parses back to it without a diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.compiler.compiler import Program
from ..core.grammar import TranscriptMarkup
from ..errors import UnbraidError
from ..schema.regular import Node, Repeat, Text, choice, sequence
from .calls import CallsBuilder
from .headers import HeadedMessages
from .language import Language, TextExcept, one_token
from .markup import Markup
from .request import Request
from .strands import Strands


@dataclass(frozen=True, slots=True)
class LazyLanguage:
    """A lazy grammar: what may come from the first call on. Before it the model writes freely."""

    trigger: str
    """The marker that begins a call,"""
    token: int | None
    """and its token, if it is one."""
    language: Language


def build(program: Program, request: Request, opened: Sequence[str], header: str) -> Language:
    """The language of the output, given the strands that the prompt has left open, or the header that it has begun."""
    markup, format = Markup(program), program.format
    calls = CallsBuilder(markup, request) if request.calls != "none" and format.tools is not None else None
    if program.headers is not None:
        root = HeadedMessages(markup, request, calls).output(opened, header)
    elif format.transcript is not None:
        root = _transcript(markup, request, format.transcript)
    else:
        root = Strands(markup, request, None if calls is None else calls.block()).output(opened)
    return Language(root, {}) if calls is None else Language(root, calls.rules, calls.unenforced)


def build_lazy(program: Program, request: Request) -> LazyLanguage | None:
    """The language from the first call on, where nothing before it is constrained."""
    tools = program.format.tools
    if request.calls != "auto" or request.answer is not None or request.reasoning is not None:
        return None
    if program.headers is not None or tools is None or tools.bare:
        return None  # a header may be half in the prompt, and a bracket is no sign of a call
    markup = Markup(program)
    calls = CallsBuilder(markup, request)
    block = calls.block()
    marker = tools.open.strip()
    # What the call stands in is not known, so text may hold any marker but this one.
    text = TextExcept((marker,))
    more = text if request.one_call else sequence(Repeat(sequence(text, block)), text)
    language = Language(sequence(block, more), calls.rules, calls.unenforced)
    return LazyLanguage(marker, markup.tokens.get(marker), language)


def _transcript(markup: Markup, request: Request, transcript: TranscriptMarkup) -> Node:
    """The language, the task, and then text without times or text between times."""
    if request.answer is not None:
        raise UnbraidError(
            f"format {markup.format.name!r} is no JSON: leave `response_format` out", field="response_format"
        )
    tokens = {text: token for token, (_, text) in markup.program.codes.items()}

    def one_of(texts: Iterable[str]) -> Node:
        spelled = [text for text in texts if not tokens or text in tokens]
        node = choice(*map(Text, spelled))
        return one_token([tokens[text] for text in spelled], node) if tokens else node

    tag = transcript.tag.format
    if not transcript.times:
        return sequence(one_of(map(tag, transcript.languages)), markup.free)
    time = one_of(map(transcript.time, range(transcript.times)))
    return sequence(
        one_of(map(tag, transcript.languages)),
        one_of(map(tag, transcript.tasks)),
        choice(sequence(one_of([tag(transcript.timeless)]), markup.free), Repeat(sequence(time, markup.free))),
    )
