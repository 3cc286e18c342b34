"""What you choose for the plug-ins by environment variables: engines pass no options on to their parsers.

`UNBRAID_CALLS_IN_REASONING` is `yes` or `no`; without it each format decides. Processes that an engine starts inherit
it.
"""

from __future__ import annotations

import os

from ..core.grammar import Format
from ..errors import UnbraidError

CALLS_IN_REASONING = "UNBRAID_CALLS_IN_REASONING"
_WORDS = {"": None, "auto": None, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def as_chosen(format: Format) -> Format:
    """The format as the environment wants it."""
    word = os.environ.get(CALLS_IN_REASONING, "").lower()
    if word not in _WORDS:
        raise UnbraidError(f"{CALLS_IN_REASONING} is yes, no or auto, not {word!r}")
    return format.with_calls_in_reasoning(_WORDS[word])
