"""Families whose arguments stand between tags, one by one."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, CallList, Calls, Either, Format, Instead, Maybe, Name
from ..core.notations import Arguments, ElementArguments, TaggedArguments, XmlArguments
from ..schema.kinds import ANY_KIND, STRING
from .shapes import NAMED_OBJECT, THINK_TAGS, TYPED_OBJECT, lone

_TIGHT_THINK = Between("<think>", "</think>")
_CHATML_ENDS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>")

# Qwen3-Coder and its kin: `<function=name>`, `<parameter=key>`.


def _function(open: str, close: str, tags: TaggedArguments) -> Calls:
    return Calls(f"\n{open}\n", Call(("<function=", Name(), ">\n", tags, "</function>")), f"\n{close}\n")


_LINES = TaggedArguments(open="<parameter={key}>\n", close="\n</parameter>\n")
_TIGHT = TaggedArguments(open="<parameter={key}>", close="</parameter>\n")


_QWEN_CALLS = _function("<tool_call>", "</tool_call>", _LINES)
_MIMO_CALLS = _function("<tool_call>", "</tool_call>", _TIGHT)
_SEED_CALLS = _function("<seed:tool_call>", "</seed:tool_call>", _TIGHT)

QWEN_3_CODER = Format(
    "qwen3-coder",
    reasoning=THINK_TAGS,
    tools=_QWEN_CALLS,
    other_tools=(lone(_QWEN_CALLS),),
    ends=_CHATML_ENDS,
)
MIMO = replace(QWEN_3_CODER, name="mimo", tools=_MIMO_CALLS, other_tools=(lone(_MIMO_CALLS),))
# Qwen from 3.5 on. The next two differ in nothing but whitespace.
_QWEN_35_CALLS = replace(_QWEN_CALLS, close="\n</tool_call>")
QWEN_35 = replace(QWEN_3_CODER, name="qwen3.5", tools=_QWEN_35_CALLS, prompt="<think>\n")
_ONE_LINE_BREAK = Between("<think>\n", "\n</think>\n")
NEMOTRON_3 = replace(QWEN_35, name="nemotron-3", reasoning=_ONE_LINE_BREAK, tools=_QWEN_CALLS)
_STEP_35_CALLS = replace(_QWEN_CALLS, open="<tool_call>\n", close="\n</tool_call>")
STEP_35 = replace(
    QWEN_35, name="step-3.5", reasoning=_ONE_LINE_BREAK, tools=_STEP_35_CALLS, other_tools=(lone(_STEP_35_CALLS),)
)
SEED_OSS = Format(
    "seed-oss",
    reasoning=Between("<seed:think>", "</seed:think>\n"),
    tools=_SEED_CALLS,
    other_tools=(lone(_SEED_CALLS),),
    ends=("<seed:eos>",),
)

# GLM and its kin: the name, then keys and values in turn.
_PAIRS = TaggedArguments(open="<arg_key>{key}</arg_key>\n<arg_value>", close="</arg_value>\n")
_TIGHT_PAIRS = TaggedArguments(open="<arg_key>{key}</arg_key><arg_value>", close="</arg_value>")
_GLM_ENDS = ("<|observation|>", "<|user|>", "<|endoftext|>")

GLM_45 = Format(
    "glm-4.5",
    reasoning=Between("\n<think>", "</think>\n"),
    tools=Calls("\n<tool_call>", Call((Name(), "\n", _PAIRS)), "</tool_call>"),
    ends=_GLM_ENDS,
)
# GLM-5.3-Flash also writes `name>{…}`, which its template does not show: https://github.com/sgl-project/sglang/pull/37925
GLM_47 = Format(
    "glm-4.7",
    reasoning=_TIGHT_THINK,
    tools=Calls("<tool_call>", Call((Name(), Instead(">", (Arguments(),)), _TIGHT_PAIRS)), "</tool_call>"),
    ends=_GLM_ENDS,
)
_LING_PAIRS = TaggedArguments(open="<arg_key>{key}</arg_key>\n<arg_value>", close="</arg_value>")
LING_3 = replace(
    GLM_47,
    name="ling-3",
    tools=Calls("\n<tool_call>", Call((Name(), "\n", _LING_PAIRS)), "\n</tool_call>"),
    ends=("<|role_end|>", "<|endoftext|>"),
)
POOLSIDE = replace(GLM_45, name="poolside-v1", reasoning=THINK_TAGS, ends=("</assistant>",))
SPARK_25 = replace(GLM_47, name="spark-2.5", ends=("<｜end▁of▁sentence｜>",))
IQUEST = replace(
    GLM_47,
    name="iquest-q1",
    tools=Calls("<iquest_tool_call>", Call((Name(), _TIGHT_PAIRS)), "</iquest_tool_call>"),
    ends=_CHATML_ENDS,
    calls_in_reasoning=False,
)


# Tencent's Hunyuan from Hy3 on. A checkpoint may have a suffix to its tags: `hunyuan-3:opensource`.
_HY3_CALLS = Calls(
    "<tool_calls>\n",
    CallList(Call(("<tool_call>", Name(), Maybe("<tool_sep>\n", due=True), _PAIRS, "</tool_call>")), separator="\n"),
    "\n</tool_calls>",
)
_HY4_CALLS = Calls(
    "<tool_calls>", CallList(Call(("<tool_call>", Name(), _TIGHT_PAIRS, "</tool_call>"))), "</tool_calls>"
)
HUNYUAN_3 = Format(
    "hunyuan-3",
    reasoning=_TIGHT_THINK,
    tools=_HY3_CALLS,
    other_tools=(lone(_HY3_CALLS),),
    ends=("<｜hy_eos｜>", "<|eos|>"),
)
HUNYUAN_4 = replace(HUNYUAN_3, name="hunyuan-4", tools=_HY4_CALLS, other_tools=(lone(_HY4_CALLS),))

# K2 Horizon: a type may stand between key and value, and the body may be JSON.
_IFM_KINDS = (
    ("string", (STRING,)),
    ("integer", ("number",)),
    *((kind, (kind,)) for kind in ("number", "boolean", "null", "array", "object")),
)
_IFM = TaggedArguments(
    open="<ifm|arg_key>{key}</ifm|arg_key>\n{kind}<ifm|arg_value>",
    close="</ifm|arg_value>\n",
    kind="<ifm|arg_type>{}</ifm|arg_type>\n",
    kinds=_IFM_KINDS,
)


def _invokes(mark: str, section: str, tags: TaggedArguments, lead: str = "\n") -> Calls:
    """`<invoke name="…">` with parameters in it, any number of them in a section. `mark` stands before each name."""
    # The quote stands apart: in a marker it would be the one that ends a string of a JSON answer.
    # Models write a call without arguments as one tag, too.
    call = Call((f"<{mark}invoke name=", '"', Name(), '"', Instead("/>"), ">\n", tags, f"</{mark}invoke>"))
    return Calls(f"{lead}<{mark}{section}>\n", CallList(call, separator="\n"), f"\n</{mark}{section}>")


def _parameters(mark: str, typed: bool = False) -> TaggedArguments:
    close = f"</{mark}parameter>\n"
    if not typed:
        return TaggedArguments(open=f'<{mark}parameter name="{{key}}">', close=close)
    return TaggedArguments(
        open=f'<{mark}parameter name="{{key}}"{{kind}}>',
        close=close,
        kind=' string="{}"',
        kinds=(("true", (STRING,)), ("false", tuple(sorted(ANY_KIND - {STRING})))),
        wrappers=("arguments", "input"),
    )


_MINIMAX_CALLS = _invokes("", "minimax:tool_call", _parameters(""))
MINIMAX_M2 = Format(
    "minimax-m2",
    reasoning=THINK_TAGS,
    tools=_MINIMAX_CALLS,
    other_tools=(lone(_MINIMAX_CALLS),),
    ends=("[e~[",),
    prompt="<think>\n",
)
# For those who want the reasoning where the model wrote it.
MINIMAX_M2_APPEND_THINK = replace(MINIMAX_M2, name="minimax-m2-append-think", reasoning_in_content=True)

# MiniMax from M3 on: a token of its own before every tag, and the arguments are elements.
_MARK = "]<]minimax[>["
_M3_CALL = Call((f"{_MARK}<invoke name=", '"', Name(), '">', ElementArguments(_MARK), f"{_MARK}</invoke>"))
_M3_CALLS = Calls(f"{_MARK}<tool_call>\n", CallList(_M3_CALL, separator="\n"), f"\n{_MARK}</tool_call>")
MINIMAX_M3 = Format(
    "minimax-m3",
    reasoning=Between("<mm:think>", "</mm:think>"),
    tools=_M3_CALLS,
    other_tools=(lone(_M3_CALLS),),
    spelled_markers=True,
    ends=("[e~[",),
    calls_in_reasoning=False,
)

# MiniCPM 5 writes real XML. The parameters may stand in an element of their own, or all in one.
MINICPM_5 = Format(
    "minicpm-5",
    reasoning=THINK_TAGS,
    tools=Calls(
        "\n<function name=",
        Call(
            (
                '"',
                Name(),
                '">',
                Maybe("<arguments>", written=False),
                XmlArguments(open='<param name="{key}">', close="</param>", wrappers=("properties", "arguments")),
                Maybe("</arguments>", written=False),
            )
        ),
        "</function>",
        also=("\n<functionname=",),
    ),
    ends=_CHATML_ENDS,
    calls_in_reasoning=False,
)


def _dsml(name: str, mark: str, section: str, *ends: str, also: tuple[str, ...] = ()) -> Format:
    parameters = _parameters(mark, typed=True)
    tools = replace(
        _invokes(mark, section, parameters, "\n\n"),
        also=tuple(f"<{mark}{other}>\n" for other in also),
        also_close=tuple(f"\n</{mark}{other}>" for other in also),
    )
    return Format(name, reasoning=_TIGHT_THINK, tools=tools, other_tools=(lone(tools),), ends=ends)


_DEEPSEEK_END = "<｜end▁of▁sentence｜>"
DEEPSEEK_V32 = _dsml("deepseek-v3.2", "｜DSML｜", "function_calls", _DEEPSEEK_END)
DEEPSEEK_V4 = _dsml("deepseek-v4", "｜DSML｜", "tool_calls", _DEEPSEEK_END, also=("toolcalls", "tool"))
DEEPSEEK_V41 = _dsml("deepseek-v4.1", "｜DSML｜ ", "calls", _DEEPSEEK_END)
GIGACHAT_35 = replace(
    _dsml("gigachat-3.5", "｜GCML｜", "tool_calls", "</s>"),
    ignored=("<|message_sep|>",),
    prompt="<think>\n",
    calls_in_reasoning=False,
)

# Upstage's second open model (its parser in vLLM and SGLang is called `solar_open2`). A low effort closes the reasoning
# in the prompt.
SOLAR_OPEN_2 = Format(
    "solar-open-2",
    reasoning=Between("<|think:start|>", "<|think:end|>"),
    tools=Calls(
        "<|tool_call:start|>",
        Call(
            (
                Name(),
                "\n",
                TaggedArguments(open="<|tool_arg:start|>{key}<|tool_arg:value|>", close="<|tool_arg:end|>\n"),
            )
        ),
        "<|tool_call:end|>",
    ),
    ends=("<|im:end|>", "<|endoftext|>"),
    prompt="<|think:start|>",
    calls_in_reasoning=False,
)

_STEP_CALL = Call(
    (
        "<｜tool_call_begin｜>",
        Maybe("function", due=True),
        Maybe("<｜tool_sep｜>", due=True),
        '<steptml:invoke name="',
        Name(),
        '">\n',
        _parameters("steptml:"),
        "</steptml:invoke>",
        "<｜tool_call_end｜>",
    )
)
_STEP_CALLS = Calls("<｜tool_calls_begin｜>\n", CallList(_STEP_CALL, separator="\n"), "\n<｜tool_calls_end｜>")
STEP_3 = Format(
    "step-3",
    reasoning=THINK_TAGS,
    tools=_STEP_CALLS,
    other_tools=(lone(_STEP_CALLS),),
    ends=("<|EOT|>", "</s>"),
    prompt="<think>\n",
    calls_in_reasoning=False,
)

_DOTS = _invokes("", "dots_function_call", _parameters(""))
DOTS = Format(
    "dots",
    reasoning=THINK_TAGS,
    tools=replace(_DOTS, body=Either("{", Call((NAMED_OBJECT,)), _DOTS.body)),
    other_tools=(lone(_DOTS),),
    ends=("<|endofassistant|>", "<|endoftext|>"),
    calls_in_reasoning=False,
)
K2_HORIZON = Format(
    "k2-horizon",
    reasoning=Between(
        "<ifm|think>",
        "</ifm|think>",
        also=(("<ifm|think_fast>", "</ifm|think_fast>"), ("<ifm|think_faster>", "</ifm|think_faster>")),
    ),
    tools=Calls(
        "<ifm|tool_calls>\n",
        Either(
            "<ifm|tool_call> {",
            CallList(Call(("<ifm|tool_call>", TYPED_OBJECT, "</ifm|tool_call>")), separator="\n"),
            CallList(Call(("<ifm|tool_call>", Name(), "\n", _IFM, "</ifm|tool_call>")), separator="\n"),
        ),
        "\n</ifm|tool_calls>",
    ),
    other_tools=(
        Calls(
            "\n<ifm|tool_call>",
            Either(
                "{",
                Call((TYPED_OBJECT, "</ifm|tool_call>")),
                Call((Name(), "\n", _IFM, "</ifm|tool_call>")),
            ),
            "\n</ifm|tool_calls>",
            close_written=False,
        ),
    ),
    ends=("<|im_end|>",),
    prompt="<ifm|think>",
)
