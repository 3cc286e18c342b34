"""The vLLM plug-in: `--tool-call-parser unbraid-hermes`, `--reasoning-parser unbraid-qwen3`, and so for all formats.

vLLM calls `register` by itself if unbraid is installed (an entry point of `vllm.general_plugins`), in each of its
processes. So `register` loads next to nothing: vLLM's tables of names are changed when vLLM loads them, and ours is
filled when somebody asks for a name of ours. From a checkout, give vLLM the file `plugin.py`.

    names                what vLLM knows our parsers by
    hooks                what the plug-in relies on in vLLM
    versions             what differs between the versions of vLLM
    parsers              a `ToolParser` and a `ReasoningParser` for each format
    combined_parser      one parser in place of the two, if both are ours
    response_reader      one response, parsed by ids or by text
    reasoning_tokens     where reasoning ends, in token ids
    reasoning_text       reasoning split off as text, for the tool parsers of others
    request_constraints  tools and schemas of a request as constraints
    deltas               events as vLLM's messages

Only `versions`, `parsers`, `combined_parser`, `request_constraints` and `deltas` import vLLM; the others work without
it.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from types import ModuleType

from ..later import when_imported
from .names import register_names

_log = logging.getLogger(__name__)


def register(*, required: bool = False) -> None:
    """Have vLLM know our parsers. You can call it again.

    required: raise ImportError if this vLLM does not fit. By default the problem is logged when somebody asks for
        one of our names, and vLLM goes on without the plug-in: it calls this for everyone who has unbraid installed.
    """
    if required:
        problem = _problem()
        if problem is not None:
            raise ImportError(problem)
    register_names(_problem)
    when_imported("vllm.parser.parser_manager", _wrap)


def _problem() -> str | None:
    """Why the plug-in cannot work here; None if it can."""
    from ..hooks import broken_hooks
    from .hooks import HOOKS, SUPPORTED

    if "vllm" not in sys.modules and find_spec("vllm") is None:
        return f"unbraid's plug-in needs vLLM, which is not installed: pip install '{SUPPORTED}'"
    installed = SUPPORTED.installed() or "of an unknown version"
    problems = broken_hooks(HOOKS)
    if problems:
        return (
            f"unbraid's plug-in is made for {SUPPORTED}, and this vLLM ({installed}) does not fit: "
            f"{'; '.join(problems)}. Install a vLLM that it is made for, or a newer unbraid"
        )
    if not SUPPORTED.includes(installed):
        _log.warning("unbraid's plug-in was tested with %s; vLLM %s seems to fit", SUPPORTED, installed)
    return None


def _wrap(manager: ModuleType) -> None:
    """Have vLLM make one parser of two that are ours. The wrapper loads nothing unless one of ours is there."""
    from .composing import wrap

    wrap(manager)
