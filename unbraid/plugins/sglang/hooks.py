"""What the plug-in relies on in SGLang: the table, and the versions that it was tested with.

SGLang keeps its detectors in two dictionaries, to which ours are added. It calls `finish` on a detector at the end of a
stream since 0.5.21; before that, what a parser holds back would be lost. Before 0.5.23 it asks no detector where a
request has no tools, nor whether a call was cut off, and it reads no `response_template`.
"""

from __future__ import annotations

from ..hooks import Hook, Supported

SUPPORTED = Supported("SGLang", "0.5.21", "0.5.24")

_CALLS = "sglang.srt.function_call.function_call_parser"
_REASONING = "sglang.srt.parser.reasoning_parser"

HOOKS = (
    *(Hook("sglang.srt.entrypoints.openai.protocol", name) for name in ("Function", "Tool")),
    Hook("sglang.srt.environ", "envs.SGLANG_FORWARD_UNKNOWN_TOOLS"),
    Hook("sglang.srt.function_call.base_format_detector", "StructuralTag"),
    *(Hook(_CALLS, f"FunctionCallParser.{name}") for name in ("ToolCallParserEnum", "parse_stream_chunk")),
    Hook(_CALLS, "FunctionCallParser.parse_stream_end"),
    *(Hook(_REASONING, f"ReasoningParser.{name}") for name in ("DetectorMap", "parse_stream_chunk")),
    Hook(_REASONING, "ReasoningParser.parse_stream_end"),
    Hook("sglang.srt.function_call.core_types", "ToolCallItem", accepts=("tool_index", "name", "parameters")),
    Hook("sglang.srt.function_call.core_types", "StreamingParseResult", accepts=("normal_text", "calls")),
    Hook(_REASONING, "StreamingParseResult", accepts=("normal_text", "reasoning_text")),
    Hook(
        "sglang.srt.function_call.base_format_detector",
        "BaseFormatDetector.parse_streaming_increment",
        ("self", "new_text", "tools"),
    ),
    Hook(
        "sglang.srt.function_call.base_format_detector",
        "BaseFormatDetector.detect_and_parse",
        ("self", "text", "tools"),
    ),
    Hook(_REASONING, "BaseReasoningFormatDetector.detect_and_parse", ("self", "text")),
    Hook(_REASONING, "BaseReasoningFormatDetector.parse_streaming_increment", ("self", "new_text")),
)
"""Checked when the plug-in is installed."""

SERVER_HOOKS = (Hook("sglang.srt.server_args", "ServerArgs.resolve_once", ("self",)),)
"""What else it relies on, in a module that is slow to import: looked at when the server imports it (`registration`)."""
