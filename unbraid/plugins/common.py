"""What both plug-ins need: the format that the environment chooses, the tools of a request, blocks of reasoning."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from ..caching import LruCache
from ..core.events import Reasoning
from ..core.grammar import Format
from ..core.tools import Tools
from ..errors import UnbraidError

CALLS_IN_REASONING = "UNBRAID_CALLS_IN_REASONING"
"""The environment variable that says whether calls in reasoning are calls: `yes` or `no`; without it each format
decides. Engines pass no options on to their parsers, but the processes that they start inherit the environment."""
_WORDS = {"": None, "auto": None, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def as_chosen(format: Format) -> Format:
    """The format as the environment wants it."""
    word = os.environ.get(CALLS_IN_REASONING, "").lower()
    if word not in _WORDS:
        raise UnbraidError(f"{CALLS_IN_REASONING} is yes, no or auto, not {word!r}")
    return format.with_calls_in_reasoning(_WORDS[word])


KEPT = 64
"""So many different lists of tools are kept,"""
LONGEST = 100_000
"""none of which is written in more characters."""

_PLAIN = (dict, str, bool, type(None))
Read = Callable[[Sequence[Any]], Tools]


def cached_by_content(read: Read) -> Read:
    """`read`, which must depend on the tools alone, called once for equal tools.

    An engine asks several times for the tools of a request, and clients send the same tools with every request of a
    conversation. Reading them means checking and repairing their schemas, which takes longer than many a delta.

    Tools are equal if their content is equal as text (`repr`): `1`, `1.0` and `True` are equal to Python, but not to a
    schema. What is kept is a copy, so it does not change with the request that it was read from. Tools that nest too
    deep to be copied are read every time.
    """
    kept: LruCache[str, Tools] = LruCache(KEPT)

    @wraps(read)
    def cached(definitions: Sequence[Any]) -> Tools:
        try:
            content = repr([_content(tool) for tool in definitions])
        except RecursionError:
            return read(definitions)
        tools = kept.get(content)
        if tools is not None:
            return tools
        tools = read(definitions)
        if len(content) <= LONGEST:
            with suppress(RecursionError):
                kept[content] = tools = tools.copy()
        return tools

    return cached


def _content(value: Any) -> Any:
    """All that there is in a tool: the values of models, by their names."""
    kind = type(value)
    if kind is list:
        return [_content(item) for item in value]
    if kind in _PLAIN or (state := getattr(value, "__dict__", None)) is None:
        return value
    return kind, {name: _content(item) for name, item in state.items()}, getattr(value, "model_extra", None)


class ReasoningBlocks:
    """Says where a block of reasoning begins that follows another one.

    Where the output is messages with headers, each may hold a block of its own. Engines have one field for all
    reasoning of a reply. Two blocks in it are told apart by a line break, as the engines' own parsers do it; otherwise
    the last word of one would be glued to the first word of the next.
    """

    def __init__(self, format: Format) -> None:
        self._joins = format.headers is not None and not format.reasoning_in_content
        self._end: int | None = None
        """Where the reasoning ended that came last."""

    def before(self, event: Reasoning) -> str:
        """What stands between this piece of reasoning and the one before it."""
        gap = self._joins and self._end is not None and event.start > self._end
        self._end = event.end
        return "\n" if gap else ""
