"""Requests: their tools, and the constraint that holds the output to them.

vLLM enforces a grammar from the first token on, or from the end of the reasoning on if it has a reasoning parser. Our
constraint covers the reasoning as well, so vLLM is told not to wait (`_grammar_from_parser`); `/v1/responses` has no
such switch, and there the constraint begins after the reasoning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import vllm.envs as envs
import vllm.sampling_params as _sampling
import vllm.tool_parsers.utils as _utils
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from ...constraints import constraint
from ...constraints.printers import VLLMSyntax
from ...core.grammar import Format
from ...core.tools import Tools
from ...engines.vllm.server import structured_outputs
from ...errors import UnbraidError
from ..common import all_strict, cached_by_content, following_schemas, only_named
from .response_reader import marker_pieces, program_of, special_tokens, vocabulary_of

SYNTAX = "UNBRAID_VLLM_SYNTAX"
"""The environment variable that chooses the syntax of the grammars; `VLLMEngine` explains the choices."""


def tools_of(request: Any, own: Sequence[Any] = ()) -> Tools:
    """The functions that the model may call: those of the request, or `own`, those that the parser was made with; only
    the one that `tool_choice` names, where it names one. In `/v1/responses`, vLLM also shows custom tools and tools in
    namespaces to the model as functions."""
    sent = getattr(request, "tools", None)
    if sent and request.tool_choice == "none":
        return Tools([])
    tools = _read_tools(sent or own)
    named = _named(request.tool_choice) if sent else None
    return tools.only([named]) if named is not None and named in tools else tools


@cached_by_content
def _read_tools(tools: Sequence[Any]) -> Tools:
    return Tools([tool.model_dump() for tool in function_tools(tools)])


def show_markers(request: Any, format: Format, tokenizer: Any) -> None:
    """Have vLLM write the format's markers into the text, which will be parsed, and no spaces around them."""
    vocabulary = vocabulary_of(tokenizer)
    program = program_of(format, vocabulary)
    special = special_tokens(tokenizer)
    markers = program.token_placeholders.keys() - program.ends | program.codes.keys()
    if vocabulary is None or not special.isdisjoint(markers | marker_pieces(format, vocabulary, special)):
        request.skip_special_tokens = False
        if hasattr(request, "spaces_between_special_tokens"):
            request.spaces_between_special_tokens = False


def constrain(request: Any, format: Format, tokenizer: Any, *, reasoning_parser: bool, strict_level: int = 0) -> None:
    """Constrain the output to what the request asks of its calls, if it asks for anything.

    reasoning_parser: whether vLLM has one. It then enforces nothing before the reasoning ends.
    strict_level: vLLM's `--tool-strict-level`: 1 constrains calls always, and the names of arguments between tags;
        2 the arguments too.
    """
    tools = tools_of(request)
    choice = _choice(request.tool_choice)
    if not tools and choice not in ("auto", "none"):
        refuse_without_functions(request.tools or [])
    outputs = request.extract_structured_outputs()
    answer = _answer(outputs) if choice == "auto" else None
    if not tools or not (choice != "auto" or answer or _constrains_auto(request, tools, strict_level)):
        return
    if choice == "auto" and outputs is not None and answer is None:
        return  # a regular expression or the like leaves no room for calls
    # The constraint covers the reasoning, so that it also holds a model that does not reason. If vLLM cannot be told to
    # apply it from the start, it covers only what follows the reasoning.
    whole = format.reasoning is not None and hasattr(request, "_grammar_from_parser")
    after_reasoning = reasoning_parser and not whole

    def outputs_for(tools: Tools) -> StructuredOutputsParams:
        grammar = constraint(
            format,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=request.parallel_tool_calls,
            reasoning=False if after_reasoning else None,
            response_format=answer,
            vocabulary=vocabulary_of(tokenizer),
            prompt="" if after_reasoning else None,
        )
        return StructuredOutputsParams(**structured_outputs(grammar, _syntax()))

    if choice != "auto":
        request.structured_outputs = following_schemas(outputs_for, tools)
    else:
        level = only_named(tools) if strict_level == 1 else tools
        request.structured_outputs = outputs_for(all_strict(tools) if strict_level > 1 else level)
    if whole:
        request._grammar_from_parser = True
    # The constraint includes the answer's schema. The two APIs have different names for it.
    if "response_format" in type(request).model_fields:
        request.response_format = None
    else:
        request.text = None


def _constrains_auto(request: Any, tools: Tools, strict_level: int) -> bool:
    """Whether optional calls are constrained."""
    strict = strict_level > 0 or any(map(tools.strict, tools))
    return (strict and envs.VLLM_ENFORCE_STRICT_TOOL_CALLING) or request.parallel_tool_calls is False


def _choice(choice: Any) -> str | Mapping[str, Any]:
    """The `tool_choice` of either API as `unbraid.constraint` takes it."""
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    name = _named(choice)
    return "auto" if name is None else {"type": "function", "function": {"name": name}}


def _named(choice: Any) -> str | None:
    """The function that a `tool_choice` names."""
    name = getattr(getattr(choice, "function", choice), "name", None)
    return name if isinstance(name, str) else None


def _answer(outputs: Any) -> dict[str, Any] | None:
    """The `response_format` of a request for JSON; None for other requests."""
    if outputs is None:
        return None
    if outputs.json_object:
        return {"type": "json_object"}
    if outputs.json is None:
        return None
    check_nesting(outputs.json)
    schema = json.loads(outputs.json) if isinstance(outputs.json, str) else outputs.json
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _syntax() -> VLLMSyntax:
    wanted = os.environ.get(SYNTAX) or "structural_tag"
    if wanted not in get_args(VLLMSyntax):
        raise UnbraidError(f"{SYNTAX} is one of {', '.join(get_args(VLLMSyntax))}, not {wanted!r}")
    return cast(VLLMSyntax, wanted)


# --- What only some versions of vLLM have ------------------------------------------------------------------------


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
