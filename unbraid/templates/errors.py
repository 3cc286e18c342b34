"""What can go wrong between messages and a prompt. The messages are for the client, or for who chose the template."""

from __future__ import annotations

from ..errors import UnbraidError


class PromptError(UnbraidError):
    """Base of what can go wrong with a prompt."""


class InvalidMessages(PromptError):
    """Messages that no template could be given; the error says which one (`messages[2]`) and why."""

    field = "messages"


class PromptTooLarge(PromptError):
    """Text that no context could hold, seen before it is cut into tokens."""

    field = "messages"


class TemplateError(PromptError):
    """Base of what can go wrong with a template."""


class TemplateRefused(TemplateError):
    """The template itself says that it does not take these messages (`raise_exception`), in its own words."""


class TemplateBroken(TemplateError):
    """The template has a mistake in it, or is not made for what it was given."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class TemplateTooMuch(TemplateError):
    """The template is too large, writes too much or runs for too long."""


class TemplateNotFound(TemplateError):
    """No template where one was looked for."""


_LONGEST = 1_000


def clipped(words: str) -> str:
    """What a template says, which may be a book."""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
