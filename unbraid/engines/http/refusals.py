"""A server's refusal, its status and text, as one of the errors of `engines.base`.

Servers differ in their statuses and in where their errors keep the text. Most say only in words that a prompt is too
long, or that a queue is full. So the words are matched; they are those of vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

import re

from ..base import EngineBusy, EngineDown, EngineError, EngineFailed, Generation, PromptTooLong, Unsupported

_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|max_model_len|maximum model length|longer than the model|prompt is too long", re.I
)
_FULL = re.compile(r"queue is full|currently busy|backlog limit|too many requests|overloaded", re.I)

_CONTEXT_SIZE = re.compile(
    r"(?:context[ _](?:length|size|window)|max_model_len|maximum model length)[^\d]{0,40}(\d+)", re.I
)
_PROMPT_SIZE = re.compile(
    r"(\d+) input tokens|(\d+)(?: tokens)? (?:in|from|of) the (?:input|messages|prompt)|prompt of (\d+)|"
    r"request \((\d+) tokens\)",
    re.I,
)


def refusal(status: int, message: str, retry_after: float | None = None) -> EngineError:
    """The error that a status and a message mean. Its `status` is the server's."""
    error: EngineError
    if status in (429, 502, 503, 504):
        kind = EngineBusy if status == 429 or _FULL.search(message) else EngineDown
        error = kind(message, 1.0 if retry_after is None else retry_after)
    elif status >= 500:
        error = EngineFailed(message)
    elif status == 413 or (status in (400, 422) and _TOO_LONG.search(message)):
        error = PromptTooLong(message)
    elif status in (400, 405, 415, 422):
        error = Unsupported(message)
    else:
        error = EngineError(f"{message} (status {status})")
    error.status = status
    return error


def error_text(error: object) -> tuple[str, int | None]:
    """Message and status of a server's error, which is an object with both, or a text."""
    if not isinstance(error, dict):
        return str(error), None
    status = next((error[key] for key in ("code", "status", "status_code") if isinstance(error.get(key), int)), None)
    return str(error.get("message") or error.get("detail") or error), status


def too_long_field(request: Generation, context: int | None, message: str = "") -> str:
    """The field of `request` that makes it too long: `max_tokens` if the prompt alone would fit. Numbers that are
    unknown here may be in the server's message."""
    if request.max_tokens is None:
        return "prompt"
    size = _said(_PROMPT_SIZE, message) if isinstance(request.prompt, str) else len(request.prompt)
    context = context or _said(_CONTEXT_SIZE, message)
    if context is None:
        return "prompt"
    if size is None:
        return "max_tokens" if request.max_tokens >= context else "prompt"
    return "prompt" if size >= context else "max_tokens"


def _said(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    return None if match is None else int(next(filter(None, match.groups())))
