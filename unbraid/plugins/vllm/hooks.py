"""What the plug-in relies on in vLLM: the table, and the versions that it was tested with.

vLLM lets a plug-in register parsers, but does not promise what parsers are asked. The plug-in also takes the place of
its tables of names, and wraps the function that composes parsers (`registration` does both), since there is no public
way to be known without being loaded, or to read a response once instead of twice. When vLLM changes one of these, the
log says which; then change the plug-in, the table and the bound.

The table has what all supported versions have. What only some have is looked up where it is used:

    0.30  no `--tool-strict-level`
    0.31  no `get_function_tools`: requests have functions only
          no `set_prompt_token_ids`: nobody says where a whole reply begins (`combined_parser` looks at the reply)
"""

from __future__ import annotations

from ..hooks import Hook, Supported

SUPPORTED = Supported("vLLM", "0.30", "0.33")

_DELTA = ("previous_text", "current_text", "delta_text", "previous_token_ids", "current_token_ids", "delta_token_ids")


def _methods(module: str, kind: str, **methods: tuple[str, ...]) -> tuple[Hook, ...]:
    """The methods of a class that the plug-in overrides, with their parameters."""
    return tuple(Hook(module, f"{kind}.{name}", ("self", *parameters)) for name, parameters in methods.items())


def _names(module: str, *names: str) -> tuple[Hook, ...]:
    return tuple(Hook(module, name) for name in names)


_TOOL_PARSER = "vllm.tool_parsers.abstract_tool_parser"
_REASONING_PARSER = "vllm.reasoning.abs_reasoning_parsers"
_PARSER = "vllm.parser.abstract_parser"
_PROTOCOL = "vllm.entrypoints.generate.base.protocol"

HOOKS = (
    # How vLLM makes one parser of a reasoning parser and a tool parser, and what it asks of the result
    Hook(
        "vllm.parser.parser_manager",
        "ParserManager.get_parser",
        accepts=("tool_parser_name", "reasoning_parser_name", "enable_auto_tools", "model_name", "is_harmony"),
    ),
    *_methods(
        _PARSER,
        "DelegatingParser",
        parse=("model_output", "request", "enable_auto_tools", "model_output_token_ids"),
        parse_delta=("delta_text", "delta_token_ids", "request", "prompt_token_ids", "finished"),
        adjust_request=("request",),
        count_reasoning_tokens=("token_ids",),
    ),
    *_names(_PARSER, *(f"DelegatingParser.{name}_parser_cls" for name in ("tool", "reasoning"))),
    Hook("vllm.parser.harmony", "HarmonyParser"),
    Hook("vllm.parser.metrics", "record_tool_parser_invocation", accepts=("is_tool_called", "is_streaming", "request")),
    # What it asks of a tool parser
    *_methods(
        _TOOL_PARSER,
        "ToolParser",
        __init__=("tokenizer", "tools"),
        adjust_request=("request",),
        extract_tool_calls=("model_output", "request"),
        extract_tool_calls_streaming=(*_DELTA, "request"),
        get_remaining_unstreamed_args=(),
    ),
    *_names(_TOOL_PARSER, "ToolParser.supports_required_and_named", "ToolParser.engine_based_streaming"),
    *_names(_TOOL_PARSER, "ToolParserManager.tool_parsers", "ToolParserManager.lazy_parsers"),
    # What it asks of a reasoning parser
    *_methods(
        _REASONING_PARSER,
        "ReasoningParser",
        is_reasoning_end=("input_ids",),
        is_reasoning_end_streaming=("input_ids", "delta_ids"),
        extract_content_ids=("input_ids",),
        count_reasoning_tokens=("token_ids",),
        adjust_initial_state_from_prompt=("prompt_token_ids",),
        adjust_request=("request",),
        extract_reasoning=("model_output", "request"),
        extract_reasoning_streaming=_DELTA,
        has_engine_confirmed_reasoning_end=(),
    ),
    *_names(_REASONING_PARSER, *(f"ReasoningParser.reasoning_{side}_str" for side in ("start", "end"))),
    *_names(_REASONING_PARSER, "ReasoningParser.engine_based_streaming"),
    *_names(_REASONING_PARSER, *(f"ReasoningParserManager.{name}" for name in ("reasoning_parsers", "lazy_parsers"))),
    # What parsers return
    Hook(_PROTOCOL, "DeltaMessage", accepts=("content", "reasoning", "tool_calls")),
    Hook(_PROTOCOL, "DeltaToolCall", accepts=("id", "type", "index", "function")),
    Hook(_PROTOCOL, "DeltaFunctionCall", accepts=("name", "arguments")),
    Hook(_PROTOCOL, "FunctionCall", accepts=("id", "name", "arguments")),
    Hook(_PROTOCOL, "ToolCall", accepts=("id", "function")),
    Hook(_PROTOCOL, "ExtractedToolCallInformation", accepts=("tools_called", "tool_calls", "content")),
    # How requests are constrained
    Hook("vllm.sampling_params", "StructuredOutputsParams", accepts=("regex", "grammar", "structural_tag")),
    Hook("vllm.tool_parsers.utils", "Tool"),
    Hook("vllm.exceptions", "VLLMValidationError", accepts=("parameter",)),
    Hook("vllm.envs", "VLLM_ENFORCE_STRICT_TOOL_CALLING"),
)
"""Checked when the plug-in is loaded."""

_REQUEST = (
    *("tools", "tool_choice", "parallel_tool_calls", "structured_outputs", "include_reasoning", "skip_special_tokens"),
    *("stop", "include_stop_str_in_output"),
)
REQUEST_HOOKS = (
    Hook(
        "vllm.entrypoints.openai.chat_completion.protocol",
        "ChatCompletionRequest",
        accepts=(*_REQUEST, "response_format"),
    ),
    Hook("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest.extract_structured_outputs"),
    Hook("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest", accepts=(*_REQUEST, "text")),
    Hook("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest.extract_structured_outputs"),
)
"""What is read and changed in requests. Only the tests check these: their modules are slow to import."""
