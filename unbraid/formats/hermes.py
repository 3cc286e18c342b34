"""JSON calls in `<tool_call>` tags: Nous Hermes, and Qwen from 2.5 on."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Call, Calls, Format
from .shapes import NAMED_OBJECT
from .think import THINK_TAGS

TOOL_CALL_TAGS = Calls(
    open="\n<tool_call>\n",
    body=Call((NAMED_OBJECT,)),
    close="\n</tool_call>\n",
)
_ENDS = ("<|im_end|>", "<|endoftext|>")

HERMES = Format("hermes", tools=TOOL_CALL_TAGS, ends=_ENDS)
QWEN_2_5 = Format("qwen2.5", tools=TOOL_CALL_TAGS, ends=_ENDS)
QWEN_3 = Format("qwen3", reasoning=THINK_TAGS, tools=TOOL_CALL_TAGS, ends=_ENDS)
# The models that always reason: their templates end the prompt with `<think>\n`.
QWEN_3_THINKING = replace(QWEN_3, name="qwen3-thinking", prompt="<think>\n")
REKA_EDGE = replace(QWEN_3, name="reka-edge", ends=("<sep>",))
