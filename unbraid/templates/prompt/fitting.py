"""Prompts that fit: of a conversation that is too long, the latest turns.

A turn is a message of the user with all that follows it, so a call never loses its result. System messages at the
beginning stay, and so does the last turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import PromptTooLarge
from .builder import Prompt

_AT_THE_START = ("system", "developer")


def fitting(
    build: Callable[[Sequence[Mapping[str, Any]]], Prompt], messages: Sequence[Mapping[str, Any]], most: int
) -> Prompt:
    """The prompt of as many of the latest turns as have at most `most` tokens. If not even the last one does, its
    prompt: the engine says that it is too long."""
    begin = next((at for at, message in enumerate(messages) if message.get("role") not in _AT_THE_START), len(messages))
    starts = [at for at in range(begin, len(messages)) if at == begin or messages[at].get("role") == "user"]
    dropped, least, last = 0, 1, len(starts) - 1
    best: Prompt | None = None
    while dropped <= last:  # all of it first, then by halves
        prompt = _tried(build, [*messages[:begin], *messages[starts[dropped] :]], most)
        if prompt is None:
            least = dropped + 1
        else:
            best, last = prompt, dropped - 1
        if least > last:
            break
        dropped = (least + last) // 2
    return best or build([*messages[:begin], *messages[starts[-1] :]] if starts else messages)


def _tried(
    build: Callable[[Sequence[Mapping[str, Any]]], Prompt], messages: Sequence[Mapping[str, Any]], most: int
) -> Prompt | None:
    """The prompt, if it fits."""
    try:
        prompt = build(messages)
    except PromptTooLarge:
        return None
    return prompt if prompt.ids is None or len(prompt.ids) <= most else None
