"""The language of a turn whose strands are told by markers: reasoning, content with calls in it, speech.

Free text always stands right before the marker that ends it, so that a syntax with a lexer can read both as one
lexeme. That is why whitespace and optional parts are placed as they are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..errors import UnbraidError
from ..schema.regular import NOTHING, Node, Repeat, Text, choice, maybe, sequence
from .language import SPACE, Lexeme, TextExcept
from .markup import Markup, trailing_space
from .request import Request

Quota = Literal["none", "any", "some"]
"""How many calls may stand in a stretch of text; never more than one where the request says so."""


class Strands:
    """Makes the output that a request allows. `block` is a block of calls, where calls may come."""

    def __init__(self, markup: Markup, request: Request, block: Node | None) -> None:
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
            if self._is_free(inside) and isinstance(open, Text):
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
        around = Lexeme(sequence(SPACE, open)) if isinstance(open, Text) else sequence(SPACE, open)
        # Free text stands right before the marker that ends it.
        closed = sequence(self._content(), close, more, trailing_space(answer.close))
        return choice(content, sequence(around, choice(self._content(), closed)))

    def _content(self) -> Node:
        request = self._request
        if self._block is None and request.answer is None:
            return self._written("none")
        if request.calls == "required":
            return self._called()
        if request.answer is not None:
            answer = sequence(SPACE, self._markup.json_answer(*request.answer))
            return answer if self._block is None else choice(answer, self._called())
        return self._written("any")

    def _written(self, calls: Quota) -> Node:
        """Free text, with speech and calls in it."""
        ignored = [self._marker(text) for text in self._format.ignored]
        if calls == "none" or self._block is None:
            items = [*self._section("none"), *ignored]
        elif self._request.one_call:
            silent = self._written("none")
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

    def _section(self, calls: Quota) -> list[Node]:
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
        quiet = self._written("none" if request.one_call else "any")
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
