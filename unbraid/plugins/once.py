"""Once: the tools of requests, read once for as long as they stay the same.

An engine asks several times for the tools of a request, and clients send the same tools with every request of a
conversation. Reading them means checking and repairing their schemas, which takes longer than many a delta.

What was read is found again by the content of the tools, not by their identity: a tool that somebody changes is another
one. The content is compared as text (`repr`), because `1`, `1.0` and `True` are equal to Python, but not to a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from ..caching import LruCache
from ..core.tools import Tools

KEPT = 64
"""So many different lists of tools are kept,"""
LONGEST = 100_000
"""none of which is written in more characters."""

_PLAIN = (dict, str, bool, type(None))
Read = Callable[[Sequence[Any]], Tools]


def once_for_content(read: Read) -> Read:
    """`read`, which reads the same tools once, and must depend on nothing else. What is kept is a copy, so it does not
    change with the request that it was read from. Tools that nest too deep to be copied are read every time."""
    kept: LruCache[str, Tools] = LruCache(KEPT)

    @wraps(read)
    def found(tools: Sequence[Any]) -> Tools:
        try:
            content = repr([_content(tool) for tool in tools])
        except RecursionError:
            return read(tools)
        known = kept.get(content)
        if known is not None:
            return known
        known = read(tools)
        if len(content) <= LONGEST:
            with suppress(RecursionError):
                kept[content] = known = known.copy()
        return known

    return found


def _content(value: Any) -> Any:
    """All that there is in a tool: the values of models, by their names."""
    kind = type(value)
    if kind is list:
        return [_content(item) for item in value]
    if kind in _PLAIN or (state := getattr(value, "__dict__", None)) is None:
        return value
    return kind, {name: _content(item) for name, item in state.items()}, getattr(value, "model_extra", None)
