"""How vLLM makes one parser of two, wrapped, so that two of ours become a `CombinedParser`.

vLLM has no setting for this, so the function that composes parsers is wrapped. It is private since 0.32
(`_compose_parser`); before, `get_parser` did the work. Nothing is loaded here unless a parser of ours was.
"""

from __future__ import annotations

import sys
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Any

from .names import PARSERS, Kind, name_for_vllm


def wrap(module: ModuleType) -> None:
    """Wrap the function in `vllm.parser.parser_manager`. You can call it again."""
    manager = module.ParserManager
    name = "_compose_parser" if hasattr(manager, "_compose_parser") else "get_parser"
    compose = getattr(manager, name)
    if hasattr(compose, "__wrapped__"):
        return

    @wraps(compose)
    def composed(*args: Any, **kwargs: Any) -> Any:
        given = signature(compose).bind(*args, **kwargs)
        for parameter, kind in _KINDS.items():
            given.arguments[parameter] = name_for_vllm(kind, given.arguments.get(parameter))
        made = compose(*given.args, **given.kwargs)
        if made is None or PARSERS not in sys.modules:
            return made
        from .combined_parser import combined

        return combined(made)

    setattr(manager, name, staticmethod(composed))


_KINDS: dict[str, Kind] = {"tool_parser_name": "tools", "reasoning_parser_name": "reasoning"}
