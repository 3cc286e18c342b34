"""Blocks of reasoning: where the output is messages with headers, each may hold a block of its own.

Engines have one field for all reasoning of a reply. Two blocks in it are told apart by a line break, as the engines'
own parsers do it; otherwise the last word of one would be glued to the first word of the next.
"""

from __future__ import annotations

from ..core.events import Reasoning
from ..core.grammar import Format


class Blocks:
    """Says where a block begins that follows another one."""

    def __init__(self, format: Format) -> None:
        self._joins = format.headers is not None and not format.reasoning_in_content
        self._end: int | None = None
        """Where the reasoning ended that came last."""

    def before(self, event: Reasoning) -> str:
        """What stands between this piece of reasoning and the one before it."""
        gap = self._joins and self._end is not None and event.start > self._end
        self._end = event.end
        return "\n" if gap else ""
