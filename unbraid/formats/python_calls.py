"""Families whose calls are calls in Python, or dicts of Python's."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Call, CallList, Calls, Either, Format, Maybe, Name
from ..core.notations import PythonArguments, PythonDict
from .shapes import NAMED_OBJECT, PARAMETERS_OBJECT, THINK_TAGS, TOOL_CALL_TAGS, json_list

_CALL = Call((Name(), "(", PythonArguments(), ")"))
_LIST = CallList(_CALL, open="[", separator=", ", close="]")
_JSON = CallList(Call((PARAMETERS_OBJECT,)), separator="; ")
_LLAMA_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

# The list has no marker around it; some models write one.
_MARKED = Calls("<|python_start|>", Either("{", _JSON, _LIST), "<|python_end|>")
_TAGGED = Calls("<|python_tag|>", Either("{", _JSON, _LIST))
PYTHONIC = Format("pythonic", tools=Calls("[", _LIST, bare=True), other_tools=(_MARKED, _TAGGED), ends=_LLAMA_ENDS)
# Gemma 3, as its vendor shows it: in a fence, and printed. The fence is part of the list, as in Command R's.
_PRINTED = Call((Maybe("print(", written=False), Name(), "(", PythonArguments(), ")", Maybe(")", written=False)))
GEMMA_3 = Format(
    "gemma-3",
    tools=Calls("[", _LIST, bare=True),
    other_tools=(
        Calls(
            "```tool_code\n",
            Either("[", replace(_LIST, close="]\n```"), CallList(_PRINTED, separator="\n", close="\n```")),
        ),
    ),
    ends=("<end_of_turn>", "<eos>"),
)
LLAMA_4_PYTHONIC = Format(
    "llama-4-pythonic",
    tools=Calls("[", _LIST, bare=True),
    other_tools=(_MARKED,),
    ends=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
)
OLMO_3 = Format(
    "olmo-3",
    reasoning=THINK_TAGS,
    tools=Calls("<function_calls>", CallList(_CALL, separator="\n"), "</function_calls>"),
    ends=("<|im_end|>", "<|endoftext|>"),
    calls_in_reasoning=False,
)
# SmolLM3 has two kinds of tools: JSON in tags, and Python in tags of its own. Code that is more than calls is text.
SMOLLM_3 = Format(
    "smollm-3",
    reasoning=THINK_TAGS,
    tools=TOOL_CALL_TAGS,
    other_tools=(Calls("\n<code>\n", CallList(_CALL, separator="\n"), "\n</code>\n"),),
    ends=("<|im_end|>", "<|end_of_text|>"),
)
LFM2 = Format(
    "lfm2",
    reasoning=THINK_TAGS,
    tools=Calls(
        "<|tool_call_start|>",
        Either("[ {", json_list(), Either("{", CallList(Call((NAMED_OBJECT,)), separator=", "), _LIST)),
        "<|tool_call_end|>",
        echoed=True,
    ),
    ends=("<|im_end|>", "<|endoftext|>"),
)

# Sarashina prints the list of calls as Python does. Where special tokens are skipped, its marker is missing.
_DICT = Call(("{", "'name'", ": ", "'", Name(), "'", ", ", "'arguments'", ": ", PythonDict(), "}"))
_DICTS = Either('[ { "', json_list(), CallList(_DICT, open="[", separator=", ", close="]"))
SARASHINA = Format(
    "sarashina",
    tools=Calls("<|tool_calls|>", _DICTS),
    other_tools=(Calls("[", _DICTS, bare=True),),
    ends=("</s>",),
)
