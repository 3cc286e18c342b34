"""The vLLM plug-in: `--tool-call-parser unbraid-hermes`, `--reasoning-parser unbraid-qwen3`, and so for all formats.

vLLM calls `register` by itself if unbraid is installed (an entry point of `vllm.general_plugins`), in each of its
processes. So `register` loads next to nothing: vLLM's tables of names are changed when vLLM loads them, and ours is
filled when somebody asks for a name of ours. From a checkout, give vLLM the file `plugin.py`.

    registration.py         the names that vLLM knows our parsers by, and how it makes one parser of two
    hooks.py                what the plug-in relies on in vLLM
    parsers.py              a `ToolParser` and a `ReasoningParser` for each format
    combined_parser.py      one parser in place of the two, if both are ours
    response_reader.py      one response, parsed by ids or by text
    reasoning.py            where reasoning ends, in token ids and in text
    request_constraints.py  tools and schemas of a request as constraints
    deltas.py               events as vLLM's messages, and counted in its metrics
    plugin.py               the file to give to vLLM if unbraid is not installed

Only `parsers`, `combined_parser`, `request_constraints` and `deltas` import vLLM; the others work without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..hooks import when_imported
from .registration import register_names, wrap_composing


def register(*, required: bool = False) -> None:
    """Have vLLM know our parsers. You can call it again.

    required: raise ImportError if this vLLM does not fit. By default that is raised for whoever asks for a parser of
        ours, and vLLM goes on for all others: it calls this for everyone who has unbraid installed.
    """
    if required and (problem := _problem()) is not None:
        raise ImportError(problem)
    register_names(_problem)
    when_imported("vllm.parser.parser_manager", wrap_composing)


def _problem() -> str | None:
    """Why the plug-in cannot work here; None if it can."""
    from .hooks import HOOKS, SUPPORTED

    return SUPPORTED.problem(HOOKS, _self_test)


def _self_test() -> Iterable[str]:
    from .combined_parser import self_test

    return self_test()
