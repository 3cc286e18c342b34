"""The system prompt: a text or text blocks.

Some clients write lines at its very beginning that are meant for Anthropic's service and not for the model: Claude Code
a billing header, `x-anthropic-billing-header: cc_version=…`. Such a line changes from request to request. At the
beginning of a prompt it would keep an engine from finding anything of the conversation in its cache, so the rule is:
lines that are headers by the name of `x-anthropic-…`, before any other text of the system prompt, are left out of the
prompt. Wherever else they stand, they are text.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import ApiError

_HEADERS = re.compile(r"(?:x-anthropic-[\w-]+:[^\n]*(?:\n+|\Z))+", re.IGNORECASE)


def system_parts(system: object, where: str = "system") -> list[tuple[dict[str, Any], str]]:
    """The text blocks of a system prompt as parts of a content, each with its place."""
    if isinstance(system, str):
        system, places = [{"type": "text", "text": system}], [where]
    elif isinstance(system, list):
        places = [f"{where}[{at}]" for at in range(len(system))]
    else:
        raise ApiError(400, f"{where} must be a string or a list of text blocks", param=where)
    return [({"type": "text", "text": _text(block, place)}, place) for block, place in zip(system, places, strict=True)]


def for_the_model(parts: list[tuple[dict[str, Any], str]]) -> list[tuple[dict[str, Any], str]]:
    """The parts without the headers that stand first."""
    for at, (part, place) in enumerate(parts):
        found = _HEADERS.match(part["text"])
        rest = part["text"][found.end() :] if found else part["text"]
        if rest:
            return [({**part, "text": rest}, place), *parts[at + 1 :]]
    return []


def _text(block: object, where: str) -> str:
    if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
        raise ApiError(400, f"{where} must be a text block: a type of `text`, and a text", param=where)
    return str(block["text"])
