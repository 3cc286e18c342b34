"""Liquid AI's LFM2: calls as a list of Python calls."""

from __future__ import annotations

from ..core.grammar import Call, CallList, Calls, Format, Name, PythonArguments

LFM2 = Format(
    "lfm2",
    tools=Calls(
        open="<|tool_call_start|>",
        body=CallList(Call((Name(), "(", PythonArguments(), ")")), open="[", separator=", ", close="]"),
        close="<|tool_call_end|>",
    ),
    ends=("<|im_end|>", "<|endoftext|>"),
)
