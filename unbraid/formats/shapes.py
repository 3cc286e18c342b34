"""Shapes that many families share: the tags around reasoning, JSON calls; and the formats that have reasoning alone."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, CallList, Calls, Format
from ..core.notations import JsonCall

THINK_TAGS = Between("<think>\n", "\n</think>\n\n")

THINK = Format("think", reasoning=THINK_TAGS, ends=("<|im_end|>", "<|endoftext|>"))
# Kimi-VL and Kimi's first thinking models.
KIMI_VL = Format("kimi-vl", reasoning=Between("◁think▷", "◁/think▷"), ends=("<|im_end|>",))

NAMED_OBJECT = JsonCall(arguments=("arguments", "parameters"))
"""`{"name": …, "arguments": {…}}`."""
TYPED_OBJECT = replace(NAMED_OBJECT, by_schema=True)
"""The same, of families whose engine reads `"3"` as the schema says."""
PARAMETERS_OBJECT = JsonCall(arguments=("parameters", "arguments"))
"""The same, with the arguments called `parameters`."""
TOOL_CALL_TAGS = Calls("\n<tool_call>\n", Call((NAMED_OBJECT,)), "\n</tool_call>\n")


def lone(calls: Calls) -> Calls:
    """The same calls where a model forgets the section around them, or only what opens it."""
    body = calls.body
    assert isinstance(body, Call | CallList)
    first, *parts = (body.call if isinstance(body, CallList) else body).parts
    assert isinstance(first, str)
    lead = calls.open[: -len(calls.open.lstrip())][-1:] or (body.separator if isinstance(body, CallList) else "")
    return Calls(lead + first, Call(tuple(parts)), calls.close, close_written=False, also_close=calls.also_close)


def json_list(call: JsonCall = NAMED_OBJECT) -> CallList:
    """A JSON array of calls."""
    return CallList(Call((call,)), open="[", separator=", ", close="]")
