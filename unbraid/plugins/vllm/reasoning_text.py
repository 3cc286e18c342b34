"""Reasoning split off as text, up to the first words of content or the first call.

Only for our reasoning parser beside a tool parser of vLLM's own: that one reads the rest as the model wrote it, so
nothing after the reasoning may be parsed or dropped. What it takes for a call, nobody here knows. So the mark that
opens calls ends the reasoning, even where our format would not find a call behind it: otherwise a call in reasoning
that is not closed would be lost.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.events import Content, Diagnostic, Event, Markup, Reasoning
from ...core.grammar import Format
from ...parsing import Parser, parse


class ReasoningPrefix:
    """Parses text as long as it is reasoning. From the first words of content on, text is passed on unread."""

    def __init__(self, format: Format, prompt: str | None) -> None:
        assert format.reasoning is not None
        self.over = False
        """Whether content or a call has begun."""
        self._calls = "" if format.tools is None else format.tools.open.strip()
        reasoning_only = replace(format, tools=None, other_tools=(), versions=())
        self._parser = Parser(reasoning_only, prompt=prompt, keep_message=False, markup=True)
        node = format.reasoning
        open = node.open.removesuffix(node.label)
        self._markers = tuple(text.strip() for text in ("", node.open, open, node.label, node.close))
        self._held = ""
        """Text that was not passed on."""
        self._done = 0
        """The position of its first character."""
        self._waiting: list[Event] = []
        """Events of that text."""

    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning in the next piece of text, and the content."""
        if self.over:
            return "", text
        self._held += text
        return self._split(self._parser.feed(text), over=False)

    def finish(self) -> tuple[str, str]:
        """What is left at the end of the output."""
        return ("", "") if self.over else self._split(self._parser.finish(), over=True)

    def _split(self, events: list[Event], *, over: bool) -> tuple[str, str]:
        begins = self._held.find(self._calls) if self._calls else -1
        if begins < 0:
            begins = len(self._held) if over else len(self._held) - _beginning(self._held, self._calls)
        limit = self._done + begins
        """What follows may be a call."""
        reasoning: list[str] = []
        content: list[str] = []
        self._waiting += events
        while self._waiting:
            event = self._waiting[0]
            if isinstance(event, Reasoning):
                reasoning.append(self._take(min(event.end, limit)))
                if event.end > limit:
                    self._waiting[0] = Reasoning(event.text[limit - event.start :], limit, event.end)
                    break
            elif isinstance(event, Content) and event.start == event.end:  # the marker of the prompt, put back
                content.append(event.text)
            elif isinstance(event, Content) and event.text.isspace():
                content.append(self._take(event.end))
            elif isinstance(event, Markup) and event.text.strip() in self._markers:
                self._take(event.end)
            elif not isinstance(event, Diagnostic):
                self.over = True
                content.append(self._held)
                return "".join(reasoning), "".join(content)
            del self._waiting[0]
        if self._calls and self._held.startswith(self._calls):
            self.over = True
            content.append(self._held)
        return "".join(reasoning), "".join(content)

    def _take(self, to: int) -> str:
        """The held text up to a position."""
        taken, self._held = self._held[: to - self._done], self._held[to - self._done :]
        self._done = to
        return taken


def without_answer_markers(format: Format, content: str) -> str:
    """A whole answer without the markers around it. (Where there are headers, the tool parser needs them.)"""
    if format.answer is None or format.headers is not None:
        return content
    return parse(Format("answer", answer=format.answer), content).content


def _beginning(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size])), 0)
