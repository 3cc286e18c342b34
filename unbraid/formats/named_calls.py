"""Families whose calls are a name, then the arguments: as JSON, or with bare keys (Gemma).

Mistral's calls are named since tokenizer v11; before, they are a JSON list.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, CallId, CallIds, CallList, Calls, Either, Format, Maybe, Name, NameInId
from ..core.notations import Arguments, BareArguments, JsonCall
from .shapes import THINK_TAGS, TOOL_CALL_TAGS, lone

_KIMI_CALL = Call(
    (
        "<|tool_call_begin|>",
        NameInId("functions.", ":"),
        "<|tool_call_argument_begin|>",
        Arguments(by_schema=True),
        "<|tool_call_end|>",
    )
)
_KIMI = Calls(
    "<|tool_calls_section_begin|>",
    CallList(_KIMI_CALL),
    "<|tool_calls_section_end|>",
    also=("<|tool_call_section_begin|>",),
    also_close=("<|tool_call_section_end|>",),
)
KIMI_K2 = Format(
    "kimi-k2",
    reasoning=Between("<think>", "</think>"),
    tools=_KIMI,
    other_tools=(lone(_KIMI),),
    ends=("<|im_end|>",),
)

_DEEPSEEK_ENDS = ("<｜end▁of▁sentence｜>",)
_FENCED = Call(
    (
        "<｜tool▁call▁begin｜>",
        Maybe("function", due=True),
        "<｜tool▁sep｜>",
        Name(),
        "\n",
        Maybe("```json\n"),
        Arguments(),
        Maybe("\n```"),
        "<｜tool▁call▁end｜>",
    )
)
_NAMED = Call(("<｜tool▁call▁begin｜>", Name(), "<｜tool▁sep｜>", Arguments(), "<｜tool▁call▁end｜>"))
_DEEPSEEK_SECTION = Calls("<｜tool▁calls▁begin｜>", CallList(_FENCED, separator="\n"), "<｜tool▁calls▁end｜>")
DEEPSEEK_V3 = Format(
    "deepseek-v3",
    reasoning=THINK_TAGS,
    tools=_DEEPSEEK_SECTION,
    other_tools=(lone(_DEEPSEEK_SECTION),),
    ends=_DEEPSEEK_ENDS,
)
_DEEPSEEK_NAMED = replace(_DEEPSEEK_SECTION, body=CallList(_NAMED))
DEEPSEEK_V31 = Format(
    "deepseek-v3.1",
    reasoning=Between("<think>", "</think>"),
    tools=_DEEPSEEK_NAMED,
    other_tools=(lone(_DEEPSEEK_NAMED),),
    ends=_DEEPSEEK_ENDS,
)
# R1 reasons always: its template opens the reasoning in the prompt, and older ones left that to the model.
DEEPSEEK_R1 = replace(DEEPSEEK_V3, name="deepseek-r1", prompt="<think>\n", calls_in_reasoning=False)
# Deep Cogito: from 2.1 on DeepSeek's calls, before that those of Hermes, with the ends of the models it was made from.
COGITO = replace(
    DEEPSEEK_V3,
    name="cogito",
    other_tools=(*DEEPSEEK_V3.other_tools, TOOL_CALL_TAGS),
    ends=(*_DEEPSEEK_ENDS, "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eot|>"),
)

# Meta's Code World Model, as its prompting guide says and its server writes: plain text for tools such as `bash`, JSON.
CWM = Format(
    "cwm",
    reasoning=Between("<think>\n", "\n</think>\n"),
    tools=Calls("\n<tool: ", Call((Name(), ">\n", Arguments(plain=True))), "\n</tool>\n"),
    ends=("<|eot_id|>", "<|end_of_text|>"),
    prompt="<think>\n",
)

_PLAMO = Calls(
    "<|plamo:begin_tool_requests:plamo|>",
    CallList(
        Call(
            (
                "<|plamo:begin_tool_request:plamo|>",
                "<|plamo:begin_tool_name:plamo|>",
                Name(),
                "<|plamo:end_tool_name:plamo|>",
                "<|plamo:begin_tool_arguments:plamo|>",
                Maybe("<|plamo:constrain|>json"),
                Maybe("<|plamo:msg|>"),
                Arguments(by_schema=True),
                "<|plamo:end_tool_arguments:plamo|>",
                "<|plamo:end_tool_request:plamo|>",
            )
        )
    ),
    "<|plamo:end_tool_requests:plamo|>",
)
PLAMO_3 = Format(
    "plamo-3",
    reasoning=Between("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    tools=_PLAMO,
    other_tools=(lone(_PLAMO),),
    ends=("<|plamo:tag|>",),
)

_MISTRAL_LIST = CallList(Call((JsonCall(by_schema=True),)), open="[", separator=", ", close="]")
_MISTRAL_CALL = Call(
    (Name(), Maybe("[CALL_ID]", (CallId(),), written=False), Maybe("[ARGS]"), Arguments(by_schema=True))
)
_MISTRAL_CALL_WITH_ID = Call((Name(), Maybe("[CALL_ID]", (CallId(),)), Maybe("[ARGS]"), Arguments(by_schema=True)))


def _mistral_calls(body: Call | CallList | Either) -> Calls:
    # Some engines, and fine-tunes of the oldest models, close the calls; the vendor's templates do not.
    return Calls("[TOOL_CALLS]", body, close=" [/TOOL_CALLS]", close_written=False)


_MISTRAL = Format(
    "mistral",
    # The first Magistral reasons in tags.
    reasoning=Between("[THINK]", "[/THINK]", also=(("<think>\n", "\n</think>\n"),)),
    ends=("</s>",),
    call_ids=CallIds(prefix="", length=9),
    reasoning_again=True,  # text and thoughts are chunks, in any order
)

MISTRAL_V3 = replace(_MISTRAL, name="mistral-v3", tools=_mistral_calls(_MISTRAL_LIST))
MISTRAL_V11 = replace(_MISTRAL, name="mistral-v11", tools=_mistral_calls(_MISTRAL_CALL_WITH_ID))
MISTRAL_V13 = replace(_MISTRAL, name="mistral-v13", tools=_mistral_calls(_MISTRAL_CALL))
# Without a tokenizer that says its version, the text does: only a list begins with a bracket.
MISTRAL = replace(
    _MISTRAL,
    tools=_mistral_calls(Either("[", first=_MISTRAL_LIST, second=_MISTRAL_CALL)),
    versions=((0, MISTRAL_V3), (11, MISTRAL_V11), (13, MISTRAL_V13)),
)


def _gemma_calls(open: str, quote: str, close: str) -> Calls:
    # Models forget the word.
    return Calls(open, Call((Maybe("call", due=True), ":", Name(), BareArguments(quote))), close)


GEMMA_4 = Format(
    "gemma-4",
    reasoning=Between("<|channel>thought\n", "\n<channel|>", label="thought\n"),
    tools=_gemma_calls("<|tool_call>", '<|"|>', "<tool_call|>"),
    ends=("<turn|>", "<|tool_response>", "<eos>"),
)
FUNCTION_GEMMA = Format(
    "functiongemma",
    tools=_gemma_calls("<start_function_call>", "<escape>", "<end_function_call>"),
    ends=("<end_of_turn>", "<start_function_response>", "<eos>"),
)
