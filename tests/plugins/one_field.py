"""What unbraid says, as an engine's reply holds it: one field for all reasoning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import unbraid
from unbraid import Format, Reasoning
from unbraid.core.message import Fold
from unbraid.plugins.common import ReasoningBlocks, settled


def parse(format: Format, output: str | list[int], *, whole: bool = False, **options: Any) -> unbraid.Message:
    """The message, with a line break between two blocks of reasoning. whole: as a reply that is not streamed."""
    parser = unbraid.Parser(format, **options)
    events = parser.feed(output) if isinstance(output, str) else parser.feed_tokens(output)
    blocks, fold = ReasoningBlocks(format), Fold()
    last = parser.finish()
    for event in settled(events, last, ended=False) if whole else [*events, *last]:
        if isinstance(event, Reasoning):
            event = replace(event, text=blocks.before(event) + event.text)
        fold.add_one(event)
    return fold.message()
