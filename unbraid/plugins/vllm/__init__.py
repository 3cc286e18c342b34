"""The vLLM plug-in: `--tool-call-parser unbraid-hermes`, `--reasoning-parser unbraid-qwen3`, and so for all formats.

vLLM calls `register` by itself if unbraid is installed (an entry point of `vllm.general_plugins`). From a checkout,
give it the file `plugin.py`.

    hooks                what the plug-in relies on in vLLM
    parsers              a `ToolParser` and a `ReasoningParser` for each format
    combined_parser      one parser in place of the two, if both are ours
    response_reader      one response, parsed by ids or by text
    reasoning_tokens     where reasoning ends, in token ids
    reasoning_text       reasoning split off as text, for the tool parsers of others
    request_constraints  tools and schemas of a request as constraints
    deltas               events as vLLM's messages

Only `parsers`, `combined_parser`, `request_constraints` and `deltas` import vLLM; the others work without it.
"""

from __future__ import annotations

import importlib
import logging
from importlib.util import find_spec

from ..hooks import broken_hooks
from .hooks import HOOKS, SUPPORTED

_log = logging.getLogger(__name__)


def register() -> None:
    """Make the formats known to vLLM. You can call it again. Raises ImportError if vLLM lacks what is needed."""
    if find_spec("vllm") is None:
        raise ImportError(f"unbraid's plug-in needs vLLM, which is not installed: pip install '{SUPPORTED}'")
    installed = SUPPORTED.installed() or "of an unknown version"
    problems = broken_hooks(HOOKS)
    if problems:
        raise ImportError(
            f"unbraid's plug-in is made for {SUPPORTED}, and this vLLM ({installed}) does not fit: "
            f"{'; '.join(problems)}. Install a vLLM that it is made for, or a newer unbraid"
        )
    if not SUPPORTED.includes(installed):
        _log.warning("unbraid's plug-in was tested with %s; vLLM %s seems to fit", SUPPORTED, installed)
    importlib.import_module(f"{__name__}.parsers").register()
