"""Families whose calls are JSON objects, in tags or after a marker."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, CallIds, CallList, Calls, Citations, Either, Format, Name
from ..core.notations import Arguments, JsonCall
from .shapes import NAMED_OBJECT, PARAMETERS_OBJECT, THINK_TAGS, TOOL_CALL_TAGS, TYPED_OBJECT, json_list

# JSON in `<tool_call>` tags: Nous Hermes, and Qwen from 2.5 on.
_ENDS = ("<|im_end|>", "<|endoftext|>")
HERMES = Format("hermes", tools=TOOL_CALL_TAGS, ends=_ENDS)
QWEN_2_5 = Format("qwen2.5", tools=TOOL_CALL_TAGS, ends=_ENDS)
QWEN_3 = Format("qwen3", reasoning=THINK_TAGS, tools=TOOL_CALL_TAGS, ends=_ENDS)
# The models that always reason: their templates end the prompt with `<think>\n`.
QWEN_3_THINKING = replace(QWEN_3, name="qwen3-thinking", prompt="<think>\n")
# Qwen2.5-Coder is given Qwen2.5's template, and puts calls between the tags in which that shows the tools.
QWEN_25_CODER = replace(
    QWEN_2_5,
    name="qwen2.5-coder",
    other_tools=(
        Calls(
            "\n<tools>\n",
            Either("[", json_list(), CallList(Call((NAMED_OBJECT,)), separator="\n")),
            "\n</tools>\n",
        ),
    ),
)
EXAONE_4 = replace(
    QWEN_3,
    name="exaone-4",
    tools=replace(TOOL_CALL_TAGS, open="\n<tool_call>", close="</tool_call>\n"),
    ends=("[|endofturn|]", "<|endofturn|>"),
)
REKA_EDGE = replace(QWEN_3, name="reka-edge", ends=("<sep>",))

_ONE = Call((NAMED_OBJECT,))

LONGCAT = Format(
    "longcat",
    reasoning=Between("<longcat_think>\n", "\n</longcat_think>\n"),
    tools=Calls("<longcat_tool_call>\n", _ONE, "\n</longcat_tool_call>\n"),
    ends=("</longcat_s>",),
    calls_in_reasoning=False,
)

# Granite 3: a list after a marker, and nothing at its end.
_GRANITE_SENTENCES = Between(
    "Here is my thought process:",
    "Here is my response:",
    also=(("Here's my thought process:", "Here's my response:"), ("<think>", "</think>")),
)
GRANITE_3 = Format(
    "granite-3",
    reasoning=_GRANITE_SENTENCES,
    tools=Calls("<|tool_call|>", json_list(TYPED_OBJECT), also=("<tool_call>",)),
    ignored=("<response>", "</response>"),
    ends=("<|end_of_text|>",),
    calls_in_reasoning=False,
)
GRANITE_4 = Format("granite-4", tools=TOOL_CALL_TAGS, ends=("<|end_of_text|>",))
GRANITE_20B = Format("granite-20b-fc", tools=Calls("<function_call> ", _ONE), ends=("<|endoftext|>",))

ERNIE_45 = Format(
    "ernie-4.5",
    reasoning=Between("<think>\n", "\n</think>\n\n"),
    answer=Between("<response>\n", "\n</response>\n"),
    tools=TOOL_CALL_TAGS,
    ends=("</s>",),
    prompt="<think>\n",
    calls_in_reasoning=False,
)

JAMBA = Format("jamba", tools=Calls("<tool_calls>", json_list(), "</tool_calls>"), ends=("<|eom|>",))
HUNYUAN_A13B = Format(
    "hunyuan-a13b",
    reasoning=Between("<think>\n", "\n</think>\n"),
    answer=Between("<answer>\n", "\n</answer>"),
    tools=Calls("<tool_calls>", json_list(), "</tool_calls>"),
    ends=("<|eos|>", "<｜hy_place▁holder▁no▁2｜>"),  # the second, of the dense models
    calls_in_reasoning=False,
)
APRIEL = Format(
    "apriel",
    reasoning=Between(
        "Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n", also=(("<thinking>", "</thinking>"),)
    ),
    tools=Calls("\n<tool_calls>", json_list(), "</tool_calls>\n"),
    ignored=("\n[END FINAL RESPONSE]\n",),
    ends=("<|end|>",),
)
# From 1.6 on, the prompt ends with the sentence that opens the reasoning.
APRIEL_16 = replace(APRIEL, name="apriel-1.6", prompt="Here are my reasoning steps:\n")
MINIMAX_M1 = Format(
    "minimax-m1",
    reasoning=THINK_TAGS,
    tools=Calls("<tool_calls>\n", CallList(_ONE, separator="\n"), "\n</tool_calls>"),
    ends=("<end_of_sentence>",),
    calls_in_reasoning=False,
)
NEMOTRON_NANO_2 = Format(
    "nemotron-nano-v2",
    reasoning=THINK_TAGS,
    tools=Calls("\n<TOOLCALL>", json_list(), "</TOOLCALL>"),
    ends=("<SPECIAL_12>",),
    calls_in_reasoning=False,
)

INTERNLM = Format(
    "internlm",
    reasoning=THINK_TAGS,
    tools=Calls(
        "<|action_start|><|plugin|>\n",
        Call((PARAMETERS_OBJECT,)),
        "<|action_end|>\n",
        also=("<|action_start|> <|plugin|>\n",),
    ),
    ends=("<|im_end|>",),
    calls_in_reasoning=False,
)

# The call is a message of its own: the one before it ends, and its role is `function call`.
GIGACHAT_3 = Format(
    "gigachat-3",
    tools=Calls("function call<|role_sep|>\n", _ONE, also=("function call <|role_sep|>\n", "<|function_call|>")),
    ignored=("<|message_sep|>\n\n",),
    ends=("</s>",),
)

PHI_4_MINI = Format(
    "phi-4-mini",
    tools=Calls("functools", json_list()),
    other_tools=(Calls("<|tool_call|>", json_list(), "<|/tool_call|>"),),
    ends=("<|end|>", "<|endoftext|>"),
)

# Each call is an object with one key, the function's name.
APERTUS = Format(
    "apertus",
    reasoning=Between("<|inner_prefix|>", "<|inner_suffix|>"),
    tools=Calls(
        "<|tools_prefix|>",
        CallList(Call(("{", '"', Name(), '"', ": ", Arguments(), "}")), open="[", separator=", ", close="]"),
        "<|tools_suffix|>",
    ),
    ends=("<|assistant_end|>",),
    reasoning_again=True,  # thoughts and responses are blocks, in any order
)

# Cohere's older models name the documents at both ends, the newer ones calls and their results where it closes.
_CITATIONS = Citations(tags=("<co>", "</co>"), opens=("<co:", "</co:"), close=">", inside=r"[\s\d,:\[\]]*")
_COHERE_CALL = JsonCall(name="tool_name", arguments=("parameters", "arguments"), id="tool_call_id", id_first=True)
_COHERE = Format(
    "",
    reasoning=Between("<|START_THINKING|>", "<|END_THINKING|>"),
    tools=Calls(
        "<|START_ACTION|>",
        Either(
            "{",
            first=Call((_COHERE_CALL,)),
            second=CallList(Call((_COHERE_CALL,)), open="[\n    ", separator=",\n    ", close="\n]"),
        ),
        "<|END_ACTION|>",
    ),
    citations=_CITATIONS,
    ends=("<|END_OF_TURN_TOKEN|>",),
    call_ids=CallIds(prefix="", length=9),
    calls_in_reasoning=False,
)
_RESPONSE, _TEXT = ("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")
COHERE_COMMAND_3 = replace(_COHERE, name="cohere-command-3", answer=Between(*_RESPONSE, also=(_TEXT,)))
COHERE_COMMAND_4 = replace(_COHERE, name="cohere-command-4", answer=Between(*_TEXT, also=(_RESPONSE,)))
# The fence is part of the list, so that it need not be told from the one that opens it.
COMMAND_R = Format(
    "command-r",
    tools=Calls(
        "\nAction:\n```json\n",
        replace(json_list(JsonCall(name="tool_name", arguments=("parameters",))), close="\n]```"),
        also=("\nAction: ```json\n", "\nAction:```json\n", "\nAction:\n\n```json\n"),
    ),
    citations=_CITATIONS,
    ends=("<|END_OF_TURN_TOKEN|>",),
)

# No marker but the JSON itself; some write one, and some write several calls.
_LLAMA_CALLS = CallList(Call((PARAMETERS_OBJECT,)), separator="; ")
LLAMA_3 = Format(
    "llama-3",
    tools=Calls("{", _LLAMA_CALLS, bare=True),
    other_tools=(Calls("<|python_tag|>", _LLAMA_CALLS), Calls("<|python_start|>", _LLAMA_CALLS, "<|python_end|>")),
    ends=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|eot|>", "<|eom|>"),
)
XLAM = Format(
    "xlam",
    reasoning=THINK_TAGS,
    tools=Calls("[", json_list(), bare=True),
    other_tools=(
        Calls("```json", replace(json_list(), close="]\n```")),
        Calls("<tool_call>", Either("[", json_list(), _ONE), "</tool_call>"),
        Calls("[TOOL_CALLS]", Either("[", json_list(), _ONE)),
    ),
    ends=("<|eot_id|>", "<|im_end|>"),
    calls_in_reasoning=False,
)
FIREFUNCTION_2 = Format("firefunction-v2", tools=Calls(" functools", json_list()), ends=("<|eot_id|>",))
FUNCTIONARY_31 = Format(
    "functionary-v3.1",
    tools=Calls("<function=", Call((Name(), ">", Arguments())), "</function>"),
    ends=("<|eom_id|>", "<|eot_id|>"),
)
TRINITY = replace(HERMES, name="trinity", reasoning=THINK_TAGS, calls_in_reasoning=False)
