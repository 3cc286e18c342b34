"""What a request asks of the output, in words that vLLM enforces."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, cast, get_args

import vllm.envs as envs
from vllm.sampling_params import StructuredOutputsParams
from vllm.tool_parsers.utils import get_function_tools, require_function_tools

from ...constraints import constraint
from ...core.grammar import Format
from ...core.tools import Tools
from ...engines.vllm.server import Dialect, structured_outputs
from ...errors import UnbraidError
from .response_reader import program_of, special_tokens, vocabulary_of

DIALECT = "UNBRAID_VLLM_DIALECT"
"""The environment variable that says how constraints are told to vLLM; `VLLMEngine` says why one would change it."""


def tools_of(request: Any) -> Tools:
    """The functions that the request lets the model call: those that vLLM tells it of. In `/v1/responses`, tools that
    take a text (`custom`) and those in namespaces are shown to it as functions, too."""
    if request.tool_choice == "none":
        return Tools([])
    return Tools([tool.model_dump() for tool in get_function_tools(request.tools or [])])


def show_markers(request: Any, format: Format, tokenizer: Any) -> None:
    """Where text is read, the markers have to be in it."""
    vocabulary = vocabulary_of(tokenizer)
    program = program_of(format, vocabulary)
    markers = program.token_placeholders.keys() - program.ends | program.codes.keys()
    if vocabulary is None or not special_tokens(tokenizer).isdisjoint(markers):
        request.skip_special_tokens = False


def constrain(request: Any, format: Format, tokenizer: Any, *, reasoning_parser: bool, strict_level: int = 0) -> None:
    """Hold the output to what the request asks of its calls, where it asks for something.

    reasoning_parser: whether vLLM has one. It then enforces nothing before the reasoning is over.
    strict_level: vLLM's `--tool-strict-level`: 1 for calls that are always constrained, 2 for their arguments too.
    """
    tools = tools_of(request)
    choice = _choice(request.tool_choice)
    if not tools and choice not in ("auto", "none"):
        require_function_tools(request.tools or [])  # which says that no call can be made
    given = request.extract_structured_outputs()
    answer = _answer(given) if choice == "auto" else None
    if not tools or not (choice != "auto" or answer or _constrains_auto(request, tools, strict_level)):
        return
    if choice == "auto" and given is not None and answer is None:
        return  # a regular expression or the like was asked for, which leaves no room for calls
    # Our constraint begins with the reasoning, so that a model which does not reason is held to it as well. Where vLLM
    # cannot be told so, the constraint is for what follows the reasoning.
    whole = format.reasoning is not None and hasattr(request, "_grammar_from_parser")
    after_reasoning = reasoning_parser and not whole
    made = constraint(
        format,
        tools=_all_strict(tools) if strict_level > 1 else tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning=False if after_reasoning else None,
        response_format=answer,
        vocabulary=vocabulary_of(tokenizer),
        prompt="" if after_reasoning else None,
    )
    request.structured_outputs = StructuredOutputsParams(**structured_outputs(made, _dialect()))
    if whole:
        request._grammar_from_parser = True
    # What the constraint says now; OpenAI's two interfaces have different names for it.
    if "response_format" in type(request).model_fields:
        request.response_format = None
    else:
        request.text = None


def _constrains_auto(request: Any, tools: Tools, strict_level: int) -> bool:
    """Whether calls are constrained that need not be made."""
    strict = strict_level > 0 or any(map(tools.strict, tools))
    return (strict and envs.VLLM_ENFORCE_STRICT_TOOL_CALLING) or request.parallel_tool_calls is False


def _choice(choice: Any) -> str | Mapping[str, Any]:
    """vLLM's `tool_choice`, for chats and responses, as `unbraid.constraint` takes it."""
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    name = getattr(getattr(choice, "function", choice), "name", None)
    return "auto" if name is None else {"type": "function", "function": {"name": name}}


def _answer(given: Any) -> dict[str, Any] | None:
    """The JSON that was asked for as an answer."""
    if given is None:
        return None
    if given.json_object:
        return {"type": "json_object"}
    if given.json is None:
        return None
    schema = json.loads(given.json) if isinstance(given.json, str) else given.json
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _all_strict(tools: Tools) -> Tools:
    return Tools([{"name": name, "parameters": tools[name], "strict": True} for name in tools])


def _dialect() -> Dialect:
    wanted = os.environ.get(DIALECT) or "structural_tag"
    if wanted not in get_args(Dialect):
        raise UnbraidError(f"{DIALECT} is one of {', '.join(get_args(Dialect))}, not {wanted!r}")
    return cast(Dialect, wanted)
