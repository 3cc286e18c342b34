"""Reasoning split off as text, up to the first words of content.

Only for our reasoning parser beside a tool parser of vLLM's own: that one reads the rest as the model wrote it, so
nothing after the reasoning may be parsed or dropped.
"""

from __future__ import annotations

from ...core.events import Content, Diagnostic, Event, Markup, Reasoning
from ...core.grammar import Format
from ...parsing import Parser


class ReasoningPrefix:
    """Parses text as long as it is reasoning. From the first words of content on, text is passed on unread."""

    def __init__(self, format: Format, prompt: str | None) -> None:
        assert format.reasoning is not None
        self.over = False
        """Whether content has begun."""
        self._parser = Parser(format, prompt=prompt, keep_message=False, markup=True)
        self._markers = ("", format.reasoning.open.strip(), format.reasoning.close.strip())
        self._held = ""
        self._held_at = 0

    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning in the next piece of text, and the content."""
        if self.over:
            return "", text
        self._held += text
        return self._split(self._parser.feed(text))

    def finish(self) -> tuple[str, str]:
        """What is left at the end of the output."""
        return ("", "") if self.over else self._split(self._parser.finish())

    def _split(self, events: list[Event]) -> tuple[str, str]:
        reasoning: list[str] = []
        content: list[str] = []
        done = self._held_at
        for event in events:
            match event:
                case Diagnostic():
                    continue
                case Reasoning(text):
                    reasoning.append(text)
                case Markup(text) if text.strip() in self._markers:
                    pass
                case Content(text) if text.isspace():
                    content.append(text)
                case _:
                    self.over = True
                    content.append(self._held[done - self._held_at :])
                    break
            done = event.end
        self._held, self._held_at = self._held[done - self._held_at :], done
        return "".join(reasoning), "".join(content)
