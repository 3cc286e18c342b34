"""Qwen3-Coder: calls whose arguments stand between tags."""

from __future__ import annotations

from ..core.grammar import Call, Calls, Format, Name, TaggedArguments

QWEN_3_CODER = Format(
    "qwen3-coder",
    tools=Calls(
        open="\n<tool_call>\n",
        body=Call(
            (
                "<function=",
                Name(),
                ">\n",
                TaggedArguments(open="<parameter={key}>\n", close="\n</parameter>\n"),
                "</function>",
            )
        ),
        close="\n</tool_call>\n",
    ),
    ends=("<|im_end|>", "<|endoftext|>"),
)
