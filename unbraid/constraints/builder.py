"""From a format and a request to the language of the responses that are allowed.

A turn is built in one of three ways, by what the format has: strands between markers (`Strands`), messages with headers
(`HeadedMessages`), or a transcript. Calls are the same in all of them (`calls`).

The language is narrower than what the parser reads. The parser takes what models write by mistake; the constraint
allows what the format's template writes, and what parses back to it without a diagnostic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.compiler.compiler import Program
from ..core.grammar import TranscriptMarkup
from ..errors import UnbraidError
from ..schema.regular import NOTHING, Node, OneOf, Repeat, Verbatim, choice, maybe, sequence
from .calls import CallsBuilder
from .language import SPACE, Lexeme, OutputLanguage, TextExcept, one_token
from .markup import MarkupNodes, trailing_space
from .request import Request


@dataclass(frozen=True, slots=True)
class LazyLanguage:
    """A lazy grammar: what may come from the first call on. Before it the model writes freely."""

    trigger: str
    """The marker that begins a call,"""
    token: int | None
    """and its token, if it is one."""
    language: OutputLanguage


def build(program: Program, request: Request, opened: Sequence[str], header: str) -> OutputLanguage:
    """The language of the output, given the strands that the prompt has left open, or the header that it has begun."""
    markup, format = MarkupNodes(program), program.format
    calls = CallsBuilder(markup, request) if request.calls != "none" and format.tools is not None else None
    if program.headers is not None:
        root = HeadedMessages(markup, request, calls).output(opened, header)
    elif format.transcript is not None:
        root = _transcript(markup, request, format.transcript)
    else:
        root = Strands(markup, request, None if calls is None else calls.block()).output(opened)
    return OutputLanguage(root, {}) if calls is None else OutputLanguage(root, calls.rules, calls.unenforced)


def build_lazy(program: Program, request: Request) -> LazyLanguage | None:
    """The language from the first call on, where nothing before it is constrained."""
    tools = program.format.tools
    if request.calls != "auto" or request.answer is not None or request.reasoning is not None:
        return None
    if program.headers is not None or tools is None or tools.bare:
        return None  # a header may be half in the prompt, and a bracket is no sign of a call
    markup = MarkupNodes(program)
    calls = CallsBuilder(markup, request)
    block = calls.block()
    marker = tools.open.strip()
    # What the call stands in is not known, so text may hold any marker but this one.
    text = TextExcept((marker,))
    more = text if request.one_call else sequence(Repeat(sequence(text, block)), text)
    language = OutputLanguage(sequence(block, more), calls.rules, calls.unenforced)
    return LazyLanguage(marker, markup.tokens.get(marker), language)


CallCount = Literal["none", "any", "some"]
"""How many calls may stand in a stretch of text; never more than one where the request says so."""


class Strands:
    """The output of a format whose strands are told by markers: reasoning, content with calls in it, speech.

    Free text always stands right before the marker that ends it, so that a syntax with a lexer can read both as one
    lexeme. That is why whitespace and optional parts are placed as they are here. `block` is a block of calls, where
    calls may come.
    """

    def __init__(self, markup: MarkupNodes, request: Request, block: Node | None) -> None:
        self._markup, self._request, self._block = markup, request, block
        self._format, self._free, self._marker = markup.format, markup.free, markup.marker

    def output(self, opened: Sequence[str]) -> Node:
        """All of the output, given the strands that the prompt has left open, the innermost last."""
        inside = list(opened)
        parts: list[Node] = []
        reasoning = self._format.reasoning
        if reasoning is not None and inside[-1:] == ["reasoning"]:
            # What the prompt has opened, some models open once more.
            parts += [maybe(self._markup.opening(reasoning)), self._free, self._marker(reasoning.close)]
            inside.pop()
        elif reasoning is not None and self._request.reasoning is not False:
            open, think = self._markup.opening(reasoning), sequence(self._free, self._marker(reasoning.close))
            if self._is_free(inside) and isinstance(open, Verbatim):
                # Free text can begin with the same whitespace.
                open = Lexeme(sequence(SPACE, open))
            else:
                parts.append(SPACE)
            parts.append(sequence(open, think) if self._request.reasoning else maybe(open, think))
        if inside[-1:] == ["speech"]:
            parts.append(self._rest_of_speech())
        else:
            parts.append(self._answered(self._content()))
        if len(inside) > 1:
            raise UnbraidError(
                f"no constraint begins inside {' inside '.join(reversed(inside))}: close it in the prompt"
            )
        return sequence(*parts)

    def _is_free(self, inside: Sequence[str]) -> bool:
        """Whether the output, or what follows the reasoning, begins with free text."""
        return bool(inside) or (self._request.answer is None and self._request.calls != "required")

    def _answered(self, content: Node) -> Node:
        """The content with what may stand around it. Calls at once have nothing around them."""
        answer, request = self._format.answer, self._request
        if answer is None or request.calls == "required":
            return content
        open, close = self._marker(answer.open), self._marker(answer.close)
        if request.answer is not None:
            return choice(content, sequence(SPACE, open, self._content(), maybe(SPACE, close)))
        more = NOTHING if self._block is None or request.one_call else Repeat(sequence(SPACE, self._block))
        around = Lexeme(sequence(SPACE, open)) if isinstance(open, Verbatim) else sequence(SPACE, open)
        closed = _followed(self._content(), close, more, trailing_space(answer.close))
        return choice(content, sequence(around, choice(self._content(), closed)))

    def _content(self) -> Node:
        request = self._request
        if self._block is None and request.answer is None:
            return self._free_with("none")
        if request.calls == "required":
            return self._called()
        if request.answer is not None:
            answer = sequence(SPACE, self._markup.json_answer(*request.answer))
            return answer if self._block is None else choice(answer, self._called())
        return self._free_with("any")

    def _free_with(self, calls: CallCount) -> Node:
        """Free text, with speech and calls in it."""
        ignored = [self._marker(text) for text in self._format.ignored]
        if calls == "none" or self._block is None:
            items = [*self._section("none"), *ignored]
        elif self._request.one_call:
            silent = self._free_with("none")
            called = [sequence(silent, item, silent) for item in (self._block, *self._section("some"))]
            return choice(silent, *called)
        else:
            items = [self._block, *self._section("any"), *ignored]
        if not items:
            return self._free
        return sequence(Repeat(choice(*(sequence(self._free, item) for item in items))), self._free)

    def _called(self) -> Node:
        """Calls at once: only what is spoken may stand around them."""
        assert self._block is not None
        before = [maybe(SPACE, self._marker(text)) for text in self._format.ignored[:1]]
        more = NOTHING if self._request.one_call else Repeat(sequence(SPACE, self._block))
        silent = [sequence(SPACE, section, SPACE, self._block) for section in self._section("none")]
        spoken = [sequence(SPACE, section) for section in self._section("some")]
        return sequence(*before, choice(sequence(SPACE, self._block), *silent, *spoken), more, self._after_calls())

    def _after_calls(self) -> Node:
        assert self._format.tools is not None
        return trailing_space(self._format.tools.close)

    def _section(self, calls: CallCount) -> list[Node]:
        """The spoken sections that there can be; none where the model does not speak."""
        speech = self._format.speech
        if speech is None or not speech.open:
            return []
        open, close = self._marker(speech.open), self._marker(speech.close)
        silent = sequence(open, self._spoken(), close)
        if calls == "none" or self._block is None:
            return [silent]
        called = sequence(open, self._spoken_with_calls(), close)
        return [called] if calls == "some" else [silent, called]

    def _rest_of_speech(self) -> Node:
        """The section that the prompt has opened, and what follows it. At the end of the output it need not close."""
        assert self._format.speech is not None
        request, silent = self._request, self._spoken()
        if not self._format.speech.close:
            return self._spoken_turn()
        close = self._marker(self._format.speech.close)
        after = sequence(silent, close, self._content())
        if request.answer is not None and request.calls != "required":
            return after
        if self._block is None:
            return choice(silent, after)
        called = self._spoken_with_calls()
        if request.calls == "required":
            more = NOTHING if request.one_call else Repeat(sequence(SPACE, self._block))
            return choice(after, called, sequence(called, close, more, self._after_calls()))
        quiet = self._free_with("none" if request.one_call else "any")
        return choice(silent, after, called, sequence(called, close, quiet))

    def _spoken_turn(self) -> Node:
        """Speech that nothing closes: all of the turn is spoken."""
        request = self._request
        if request.answer is not None and request.calls != "required":
            raise UnbraidError(
                f"all that a model of the format {self._format.name!r} writes in such a turn is spoken, and no JSON: "
                "leave `response_format` out, or give `Format.silent()`",
                field="response_format",
            )
        if self._block is None:
            return self._spoken()
        called = self._spoken_with_calls()
        return called if request.calls == "required" else choice(self._spoken(), called)

    def _spoken(self) -> Node:
        """Text and codes in turn. A text that ends with the beginning of a marker is not followed by a code: codes are
        out of band, and the next text would complete the marker."""
        if self._markup.audio is None:
            return self._free
        text = TextExcept(self._markup.markers, clean_end=bool(self._markup.markers))
        return sequence(Repeat(sequence(text, Repeat(self._markup.audio, 1))), self._free)

    def _spoken_with_calls(self) -> Node:
        assert self._block is not None
        more = NOTHING if self._request.one_call else Repeat(sequence(self._spoken(), self._block))
        return sequence(self._spoken(), self._block, more, self._spoken())


def _followed(node: Node, *after: Node) -> Node:
    """A node and what comes after it. The free text that a choice ends with stands right before the marker that ends
    it, since llguidance reads both as one lexeme."""
    return choice(*(sequence(item, *after) for item in _alternatives(node)))


def _alternatives(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, OneOf) else (node,)


class HeadedMessages:
    """The output of a format whose messages have headers: reasoning first, then answers and calls.

    The opening markers of such a format are whole headers. The prompt may have begun the first header, so that one is
    written without the prompt's part of it. `calls` makes blocks of calls, where calls may come.
    """

    def __init__(self, markup: MarkupNodes, request: Request, calls: CallsBuilder | None) -> None:
        self._markup, self._format, self._request, self._calls = markup, markup.format, request, calls
        self._block = None if calls is None else calls.block(markup.spelled)
        assert self._format.answer is not None
        self._answer = self._format.answer
        self._content: Node = markup.free
        self._closed = markup.ending(self._answer.close) if self._answer.close else NOTHING
        if request.answer is not None:
            self._content = sequence(SPACE, markup.json_answer(*request.answer))

    def output(self, opened: Sequence[str], header: str) -> Node:
        """All of the output, given the strands that the prompt has left open, and the part of a header that it has
        begun."""

        assert self._format.headers is not None
        lines = any(close.isspace() for close in self._format.headers.closes)
        """Whether whitespace ends a header. Then it is written as it is."""

        def first(open: str) -> Node:
            rest = open.removeprefix(header)
            if lines:
                return self._markup.spelled(rest)
            return sequence(SPACE if rest[:1].isspace() else NOTHING, self._markup.spelled(rest.lstrip()))

        reasoning = self._format.reasoning
        if reasoning is None:
            return self._after_reasoning(first)
        after = self._after_reasoning(self._markup.spelled)
        thought = sequence(self._markup.free, self._markup.ending(reasoning.close), after)
        if opened:
            return thought
        thought = sequence(first(reasoning.open), thought)
        if self._request.reasoning is None:
            return choice(thought, self._after_reasoning(first))
        return thought if self._request.reasoning else self._after_reasoning(first)

    def _after_reasoning(self, open: Callable[[str], Node]) -> Node:
        """All messages but the reasoning; `open` writes the first header."""
        request, block, closed = self._request, self._block, self._closed
        answer = sequence(open(self._answer.open), self._content)
        if self._calls is None or block is None:
            return self._last(answer)
        called = self._calls.block(open)
        more = NOTHING if request.one_call else Repeat(block)
        if request.calls == "required":
            return sequence(called, more)
        if request.answer is not None:
            return choice(self._last(answer), sequence(called, more))
        if request.one_call:
            return choice(self._last(answer), called, sequence(answer, closed, block))
        later = sequence(self._markup.spelled(self._answer.open), self._content)
        item = choice(sequence(later, closed, block), block)
        some = sequence(choice(sequence(answer, closed, block), called), Repeat(item))
        last = [sequence(some, one) for one in _alternatives(self._last(later))]
        return choice(NOTHING, self._last(answer), some, *last)

    def _last(self, message: Node) -> Node:
        """The output may end with the message or with what closes it."""
        return choice(message, sequence(message, self._closed)) if self._answer.close else message


def _transcript(markup: MarkupNodes, request: Request, transcript: TranscriptMarkup) -> Node:
    """The language, the task, and then text without times or text between times."""
    if request.answer is not None:
        raise UnbraidError(
            f"format {markup.format.name!r} is no JSON: leave `response_format` out", field="response_format"
        )
    tokens = {text: token for token, (_, text) in markup.program.codes.items()}

    def one_of(texts: Iterable[str]) -> Node:
        spelled = [text for text in texts if not tokens or text in tokens]
        node = choice(*map(Verbatim, spelled))
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
