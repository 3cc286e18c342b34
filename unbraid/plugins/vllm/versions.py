"""What differs between the versions of vLLM that the plug-in works with: the same functions for all of them.

`HOOKS` lists what all versions have. What only some have is here, with a stand-in for the others.

    0.30  no `--tool-strict-level`
    0.31  no `get_function_tools`: requests have functions only
          no `set_prompt_token_ids`: nobody says where a whole reply begins (`combined_parser` looks at the reply)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vllm.sampling_params as _sampling
import vllm.tool_parsers.utils as _utils
from vllm.exceptions import VLLMValidationError


def function_tools(tools: Sequence[Any]) -> Sequence[Any]:
    """The functions that the model is shown. Since 0.32 custom tools and tools in namespaces are shown as functions."""
    get = getattr(_utils, "get_function_tools", None)
    return get(tools) if get is not None else [tool for tool in tools if getattr(tool, "type", None) == "function"]


def refuse_without_functions(tools: Sequence[Any]) -> None:
    """Raise vLLM's own error if a call is required and there is nothing to call."""
    if not function_tools(tools):
        raise VLLMValidationError(
            "tool_choice requires a function call, but tools contains no function tool the model can call.",
            parameter="tool_choice",
        )


def strict_level(parser: Any) -> int:
    """`--tool-strict-level`: 1 constrains calls always, 2 their arguments too."""
    return int(getattr(parser, "tool_strict_level", 0))


def check_nesting(schema: Any) -> None:
    """Raise vLLM's own error for a schema that is nested too deeply. Before 0.32 it had no limit, and failed."""
    check = getattr(_sampling, "check_json_nesting", None)
    if check is not None:
        check(schema)
