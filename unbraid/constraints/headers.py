"""The language of a turn that consists of messages with headers: reasoning first, then answers and calls.

The opening markers of such a format are whole headers. The prompt may have begun the first one, so that one is written
without what the prompt has of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..schema.regular import NOTHING, Node, Repeat, choice, maybe, sequence
from .calls import CallsBuilder
from .language import SPACE
from .markup import Markup
from .request import Request


class HeadedMessages:
    """Makes the output that a request allows. `calls` makes blocks of calls, where calls may come."""

    def __init__(self, markup: Markup, request: Request, calls: CallsBuilder | None) -> None:
        self._markup, self._format, self._request, self._calls = markup, markup.format, request, calls
        self._block = None if calls is None else calls.block()
        assert self._format.answer is not None
        self._answer = self._format.answer
        self._content: Node = markup.free
        self._closed = markup.marker(self._answer.close) if self._answer.close else NOTHING
        if request.answer is not None:
            self._content = sequence(SPACE, markup.json_answer(*request.answer))

    def output(self, opened: Sequence[str], header: str) -> Node:
        """All of the output, given the strands that the prompt has left open, and the part of a header that it has
        begun."""

        def first(open: str) -> Node:
            rest = open.removeprefix(header)
            return sequence(SPACE if rest[:1].isspace() else NOTHING, self._markup.spelled(rest.lstrip()))

        reasoning = self._format.reasoning
        if reasoning is None:
            return self._after_reasoning(first)
        after = self._after_reasoning(self._markup.spelled)
        thought = sequence(self._markup.free, self._markup.marker(reasoning.close), after)
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
        some = sequence(choice(sequence(answer, closed, block), called), Repeat(item), maybe(self._last(later)))
        return choice(NOTHING, self._last(answer), some)

    def _last(self, message: Node) -> Node:
        """The output may end with the message or with what closes it."""
        return choice(message, sequence(message, self._closed)) if self._answer.close else message
