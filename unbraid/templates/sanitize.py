"""Sanitised input: text that UTF-8 can hold, and JSON of plain types only.

Everything that comes from a client passes through here before a template sees it, for two reasons. A lone surrogate
is no text, and the marks of `control_tokens` are lone surrogates: input without any cannot forge a mark. And a template
can reach the attributes of what it is given, so it gets plain `str`, `dict`, `list`, numbers and nothing else.
"""

from __future__ import annotations

import re
from typing import Any

_surrogates = re.compile("[\ud800-\udfff]").sub


def sanitize_text(text: str) -> str:
    """The text with U+FFFD in the place of each lone surrogate."""
    return text if text.isascii() else _surrogates("\ufffd", text)


def sanitize(value: Any) -> Any:
    """JSON with every string sanitised. An object of another type becomes a text that names the type."""
    if isinstance(value, str):
        return sanitize_text(str(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {sanitize(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item) for item in value]
    return f"<{type(value).__name__}>"
