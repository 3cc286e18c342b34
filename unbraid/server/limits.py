"""How much one request may have: one table, and one check that every API's requests pass.

Every request for a chat becomes a `ChatTask` (`generation.task`), which checks itself here: those of chat, Responses,
Messages, realtime and `/v1/chat/completions/render`. A list counts as it is in the task, so tools count wherever a
dialect lets them stand. Routes that take messages or tools and make no task (`/v1/parse`, `/v1/tokenize`, derender)
call `check_limits` themselves. Sizes in bytes, times and rates are settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized

from ..errors import Place, UnbraidError

MOST: Mapping[str, int] = {
    "messages": 100_000,  # as many as Anthropic's API takes
    "tools": 512,
    "items": 2_000,  # of a realtime conversation, which the server keeps
}
"""How many entries a list may have."""


def check_limits(**lists: Sized | None) -> None:
    """Raises `UnbraidError` about a list that is longer than `MOST` says."""
    for name, entries in lists.items():
        if entries is not None and len(entries) > MOST[name]:
            raise UnbraidError(Place(name), f": there are {len(entries)}, and {MOST[name]} are the most in one request")
