"""Errors between messages and a prompt. Their messages are for the client, or for whoever chose the template."""

from __future__ import annotations

from ..errors import UnbraidError


class PromptError(UnbraidError):
    """Base of the errors of prompts and templates."""


class InvalidMessages(PromptError):
    """The messages are wrong; the error says which one (`messages[2]`) and why."""

    field = "messages"


class PromptTooLarge(PromptError):
    """The text is too long for the model's context. It is refused before it is tokenized."""

    field = "messages"


class TemplateError(PromptError):
    """Base of the errors of templates."""


class TemplateRefused(TemplateError):
    """The template itself refuses these messages (`raise_exception`), in its own words."""


class TemplateBroken(TemplateError):
    """The template has a mistake, or is not made for these messages."""

    field = "messages"

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class TemplateTooMuch(TemplateError):
    """The template is too large, writes too much or runs too long (`TemplateLimits`)."""


class TemplateNotFound(TemplateError):
    """There is no template where one was looked for."""


_LONGEST = 1_000


def clip(text: str) -> str:
    """A template's own words, cut to a length that fits an error message."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class DetectionError(UnbraidError):
    """The template or response_template cannot be judged; the error says why."""
