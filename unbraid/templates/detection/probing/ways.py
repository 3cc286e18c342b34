"""Ways to give a template a turn: where templates look for reasoning, and the variables that turn it on and off.

Reasoning has no agreed place in a message. `CompiledTemplate.render` gives it under the three usual names at once. Some
templates read it from other fields, from parts of the content, or from blocks. What a template does not mention is not
tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_FIELDS = ("thought", "thoughts", "tool_plan", "chain_of_thought", "thinking_content")
_PARTS = ("thinking", "reasoning", "thought")
"""Parts of the content: `{"type": "thinking", "thinking": …}`."""
UNREAD = "qzunread"
"""A word in each part and block. A template that writes it does not read the form: it writes all of it as it is."""

_ON: dict[str, Any] = {
    **dict.fromkeys(("enable_thinking", "thinking", "add_thoughts", "preserve_thinking", "keep_past_thinking"), True),
    **dict.fromkeys(("skip_thinking", "drop_thinking", "clear_thinking", "truncate_history_thinking"), False),
}
_OFF: dict[str, Any] = dict.fromkeys(("enable_thinking", "thinking"), False)
_LEVELS: dict[bool, dict[str, Any]] = {
    True: {"reasoning_effort": "high", "thinking_mode": "enabled"},
    False: {"reasoning_effort": "none", "thinking_mode": "disabled"},
}
"""Words in place of true and false. Templates that know other words raise; then they are asked without."""


def messages_with_reasoning(message: dict[str, Any], reasoning: str, source: str) -> Iterator[dict[str, Any]]:
    """The message with its reasoning in each place where the template may look for it, the usual one first."""
    yield {**message, "reasoning_content": reasoning}
    for field in _FIELDS:
        if _mentions(source, field):
            yield {**message, field: reasoning}
    content = message["content"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for kind in _PARTS:
        if f"'{kind}'" in source or f'"{kind}"' in source:
            yield {**message, "content": [{"type": kind, kind: reasoning, UNREAD: True}, *parts]}
    if _mentions(source, "blocks"):
        blocks = [{"type": "thoughts", "text": reasoning}, *({**part, "type": "response"} for part in parts)]
        yield {**message, "content": {"blocks": blocks, UNREAD: True}}


def switches(source: str, on: bool) -> Iterator[Mapping[str, Any]]:
    """Variables that turn reasoning on or off, as far as the template mentions them: first all, then without those that
    it may refuse."""
    plain = {name: value for name, value in (_ON if on else _OFF).items() if _mentions(source, name)}
    levels = {name: value for name, value in _LEVELS[on].items() if _mentions(source, name)}
    if levels:
        yield {**plain, **levels}
    if plain:
        yield plain


def _mentions(source: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", source) is not None
