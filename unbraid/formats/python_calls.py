"""Families whose calls are calls in Python."""

from __future__ import annotations

from ..core.grammar import Call, CallList, Calls, Either, Format, Name
from ..core.notations import PythonArguments
from .shapes import NAMED_OBJECT, PARAMETERS_OBJECT, json_list
from .think import THINK_TAGS

_CALL = Call((Name(), "(", PythonArguments(), ")"))
_LIST = CallList(_CALL, open="[", separator=", ", close="]")
_JSON = CallList(Call((PARAMETERS_OBJECT,)), separator="; ")
_LLAMA_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

# The list has no marker around it.
PYTHONIC = Format("pythonic", tools=Calls("[", _LIST, bare=True), ends=_LLAMA_ENDS)
LLAMA_4_PYTHONIC = Format(
    "llama-4-pythonic",
    tools=Calls("[", _LIST, bare=True),
    other_tools=(Calls("<|python_start|>", Either("{", _JSON, _LIST), "<|python_end|>"),),
    ends=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
)
OLMO_3 = Format(
    "olmo-3",
    reasoning=THINK_TAGS,
    tools=Calls("<function_calls>", CallList(_CALL, separator="\n"), "</function_calls>"),
    ends=("<|im_end|>", "<|endoftext|>"),
    calls_in_reasoning=False,
)
LFM2 = Format(
    "lfm2",
    reasoning=THINK_TAGS,
    tools=Calls(
        "<|tool_call_start|>",
        Either("[ {", json_list(), Either("{", CallList(Call((NAMED_OBJECT,)), separator=", "), _LIST)),
        "<|tool_call_end|>",
    ),
    ends=("<|im_end|>", "<|endoftext|>"),
)
