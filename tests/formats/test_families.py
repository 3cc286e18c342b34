"""What models of each family write, as their documentation and the engines' own parsers have it: for the families whose
templates are not among the shared ones (`test_templates.py` has those)."""

from __future__ import annotations

import json

import pytest

import unbraid
from scripts.docs.engine_names import ENGINES, NAMES, OF_NO_FORMAT, Strand
from unbraid import Format, ToolCall

from ..support.parsing import parse

TOOLS = [
    {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "tags": {"type": "array"},
                "dry": {"type": "boolean"},
            },
        },
    },
    {"name": "g"},
]
ARGUMENTS = '{"city": "São \\"P\\"", "days": 3, "tags": [1, "x"], "dry": true}'
F, G = ToolCall("f", ARGUMENTS), ToolCall("g", "{}")

_OBJECTS = (f'{{"name": "f", "arguments": {ARGUMENTS}}}', '{"name": "g", "arguments": {}}')
_LIST = f"[{', '.join(_OBJECTS)}]"
_PYTHON = ("f(city='São \"P\"', days=3, tags=[1, 'x'], dry=True)", "g()")

_DICTS = str([{"name": "f", "arguments": json.loads(ARGUMENTS)}, {"name": "g", "arguments": {}}])


def _tags(open: str, close: str) -> str:
    values = {"city": 'São "P"', "days": "3", "tags": '[1, "x"]', "dry": "true"}
    return "".join(open.format(key) + value + close for key, value in values.items())


def _typed(mark: str) -> str:
    strings = {"city": "true", "days": "false", "tags": "false", "dry": "false"}
    values = {"city": 'São "P"', "days": "3", "tags": '[1, "x"]', "dry": "true"}
    return "".join(
        f'<{mark}parameter name="{key}" string="{strings[key]}">{value}</{mark}parameter>\n'
        for key, value in values.items()
    )


_PAIRS = _tags("<arg_key>{}</arg_key><arg_value>", "</arg_value>")
_LINED_PAIRS = _tags("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n")
_PLAMO = (
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{}<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{}"
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
)
_STEP = (
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{}">\n{}</steptml:invoke><｜tool_call_end｜>\n'
)
_IFM_KINDS = {"city": "string", "days": "integer", "tags": "array[any]", "dry": "boolean"}


CALLS = {
    "longcat": "".join(f"<longcat_tool_call>\n{one}\n</longcat_tool_call>\n" for one in _OBJECTS),
    "granite": f"<|tool_call|> {_LIST}",
    "granite of 3.1": f"<tool_call>{_LIST}",
    "granite-20b-fc": "".join(f"<function_call> {one}" for one in _OBJECTS),
    "ernie45": "".join(f"\n<tool_call>\n{one}\n</tool_call>\n" for one in _OBJECTS),
    "jamba": f"<tool_calls>[\n    {_OBJECTS[0]},\n    {_OBJECTS[1]}\n]</tool_calls>",
    "hunyuan_a13b": f"<tool_calls>{_LIST}</tool_calls>",
    "internlm": "".join(
        f"<|action_start|><|plugin|>\n{one.replace('arguments', 'parameters')}<|action_end|>\n" for one in _OBJECTS
    ),
    "interns1": "".join(f"<|action_start|> <|plugin|>\n{one}<|action_end|>\n" for one in _OBJECTS),
    "phi4_mini_json": f"functools{_LIST}",
    "phi4": f"<|tool_call|>{_LIST}<|/tool_call|>",
    "xlam": _LIST,
    "xlam in a fence": f"```json\n{_LIST}\n```",
    "xlam in tags": f"<tool_call>{_LIST}</tool_call>",
    "llama3_json": "; ".join(_OBJECTS).replace("arguments", "parameters"),
    "llama3_json with its tag": "<|python_tag|>" + ";".join(_OBJECTS),
    "nemotron_deci": f"<TOOLCALL>{_LIST}</TOOLCALL>",
    "nemotron_voicechat": f"<TOOLCALL>{_LIST}</TOOLCALL>",
    "apriel-1.6": f"\n<tool_calls>{_LIST}</tool_calls>",
    "cogito-v1": "".join(f"<tool_call>\n{one}\n</tool_call>\n" for one in _OBJECTS),
    "cogito-v2.1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        f"{ARGUMENTS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{{}}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "qwen2.5-coder": "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in _OBJECTS),
    "qwen2.5-coder in the tags of its tools": "<tools>\n" + "\n".join(_OBJECTS) + "\n</tools>",
    "qwen2.5-coder in the tags of its tools, as a list": f"<tools>\n{_LIST}\n</tools>",
    "exaone4": "\n".join(f"<tool_call>{one}</tool_call>" for one in _OBJECTS),
    "hyperclovax": f" -> tool/function_call\n{_LIST}<|im_end|>",
    "hyperclovax after an answer": f"\n<|im_end|>\n<|im_start|>assistant -> tool/function_call\n{_LIST}<|im_end|>",
    "cwm": f"\n<tool: f>\n{ARGUMENTS}\n</tool>\n<tool: g>\n{{}}\n</tool>",
    "solar_open_2": (
        "<|tool_call:start|>f\n"
        f"{_tags('<|tool_arg:start|>{}<|tool_arg:value|>', '<|tool_arg:end|>' + chr(10))}<|tool_call:end|>\n"
        "<|tool_call:start|>g\n<|tool_call:end|>"
    ),
    "glm-5.3": f"<tool_call>f{_PAIRS}</tool_call><tool_call>g</tool_call>",
    "glm-5.3-flash in JSON": f"<tool_call>f>{ARGUMENTS}</tool_call><tool_call>g>{{}}</tool_call>",
    "smollm3": "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in _OBJECTS),
    "smollm3 in Python": "<code>\n" + "\n".join(_PYTHON) + "\n</code>",
    "trinity": "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in _OBJECTS),
    "plamo3": (
        f"<|plamo:begin_tool_requests:plamo|>{_PLAMO.format('f', ARGUMENTS)}{_PLAMO.format('g', '{}')}"
        "<|plamo:end_tool_requests:plamo|>"
    ),
    "kimi_k2 without its prefix": (
        f"<|tool_calls_section_begin|> <|tool_call_begin|> f:0 <|tool_call_argument_begin|> {ARGUMENTS} "
        "<|tool_call_end|><|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "spark25": f"<tool_call>f\n{_PAIRS}\n</tool_call><tool_call>g\n</tool_call>",
    "iquest_q1": f"<iquest_tool_call>f{_PAIRS}</iquest_tool_call><iquest_tool_call>g</iquest_tool_call>",
    "ling3": f"<tool_call>f{_PAIRS}</tool_call><tool_call>g</tool_call>",
    "hy_v3": (
        f"<tool_calls>\n<tool_call>f<tool_sep>\n{_LINED_PAIRS}</tool_call>\n<tool_call>g<tool_sep>\n</tool_call>\n"
        "</tool_calls>"
    ),
    "hy_v4": f"<tool_calls><tool_call>f{_PAIRS}</tool_call><tool_call>g</tool_call></tool_calls>",
    "mimo": (
        f"<tool_call>\n<function=f>\n{_tags('<parameter={}>', '</parameter>' + chr(10))}</function>\n</tool_call>\n"
        "<tool_call>\n<function=g>\n</function>\n</tool_call>"
    ),
    "qwen3_coder without the outer tag": (
        f"<function=f>\n{_tags('<parameter={}>' + chr(10), chr(10) + '</parameter>' + chr(10))}</function>\n"
        "<function=g>\n</function>"
    ),
    "deepseek_v41": (
        f'<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n{_typed("｜DSML｜ ")}</｜DSML｜ invoke>\n'
        '<｜DSML｜ invoke name="g">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>'
    ),
    "deepseek_v4 of another spelling": (
        f'<｜DSML｜toolcalls>\n<｜DSML｜invoke name="f">\n{_typed("｜DSML｜")}</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="g">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    ),
    "gigachat35": (
        f'<｜GCML｜tool_calls>\n<｜GCML｜invoke name="f">\n{_typed("｜GCML｜")}</｜GCML｜invoke>\n'
        '<｜GCML｜invoke name="g">\n</｜GCML｜invoke>\n</｜GCML｜tool_calls><|message_sep|>'
    ),
    "step3": (
        "<｜tool_calls_begin｜>\n"
        + _STEP.format("f", _tags('<steptml:parameter name="{}">', "</steptml:parameter>\n"))
        + _STEP.format("g", "")
        + "<｜tool_calls_end｜>"
    ),
    "dots": (
        '<dots_function_call>\n<invoke name="f">\n'
        + _tags('<parameter name="{}">', "</parameter>\n")
        + '</invoke>\n<invoke name="g">\n</invoke>\n</dots_function_call>'
    ),
    "dots as JSON": "".join(f"<dots_function_call>\n{one}\n</dots_function_call>" for one in _OBJECTS),
    "k2_horizon": (
        "<ifm|tool_calls>\n<ifm|tool_call>f\n"
        + _tags("<ifm|arg_key>{}</ifm|arg_key>\n<ifm|arg_value>", "</ifm|arg_value>\n")
        + "</ifm|tool_call>\n<ifm|tool_call>g</ifm|tool_call>\n</ifm|tool_calls>"
    ),
    "pythonic": f"[{', '.join(_PYTHON)}]",
    "toolace": f"[{', '.join(_PYTHON)}]",
    "gemma3_pythonic": f"[{', '.join(_PYTHON)}]",
    "gemma3 in a fence": "```tool_code\n" + "\n".join(_PYTHON) + "\n```",
    "gemma3 as a list in a fence": f"```tool_code\n[{', '.join(_PYTHON)}]\n```",
    "gemma3 printed": "```tool_code\n" + "\n".join(f"print({one})" for one in _PYTHON) + "\n```",
    "llama4_pythonic": f"<|python_start|>[{', '.join(_PYTHON)}]<|python_end|>",
    "olmo3": "<function_calls>" + "\n".join(_PYTHON) + "</function_calls>",
    "sarashina": f"<|tool_calls|>{_DICTS}",
    "sarashina without its marker": _DICTS,
    "sarashina as JSON": f"<|tool_calls|>{_LIST}",
    "lfm2": f"<|tool_call_start|>[{', '.join(_PYTHON)}]<|tool_call_end|>",
    "lfm2 as JSON": f"<|tool_call_start|>{_LIST}<|tool_call_end|>",
    "beam": (
        " to=f<|channel|>analysis <|constrain|>xml<|message|>"
        + _tags('<rfl:parameter name="{}">\n', "\n</rfl:parameter>")
        + "<|end|><|start|>assistant to=g<|channel|>analysis <|constrain|>xml<|message|><|call|>"
    ),
    "muse": (
        ' to=f<|message|><atem:function_calls>\n<atem:invoke name="f">\n'
        + _tags('<atem:parameter name="{}">', "</atem:parameter>\n")
        + "</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=g<|message|><atem:function_calls>\n"
        + '<atem:invoke name="g">\n</atem:invoke>\n</atem:function_calls><|eot|>'
    ),
    "inkling": (
        f'<|message_model|>f<|content_invoke_tool_json|>{{"name":"f","args":{ARGUMENTS}}}<|end_message|>'
        '<|message_model|>g<|content_invoke_tool_json|>{"name":"g","args":{}}<|end_message|>'
        "<|content_model_end_sampling|>"
    ),
    "solar_open": (
        f"<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{ARGUMENTS}<|tool_call:end|>"
        "<|tool_call:begin|>f6g7h8i9j0<|tool_call:name|>g<|tool_call:args|>{}<|tool_call:end|><|calls|>"
    ),
    # The recipient before the channel, after it, and twice; the type as a word, as a token, and missing.
    "harmony, recipient first": (
        f" to=functions.f<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>"
        "<|start|>assistant to=functions.g<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
    ),
    "harmony, recipient last": (
        f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
        "<|start|>assistant<|channel|>analysis to=functions.g<|message|>{}<|call|>"
    ),
    "harmony, malformed": (
        f"<|channel|>commentary to=functions.f<|channel|>commentary <|constrain|>json<|message|>{ARGUMENTS}"
        "<|start|>assistant<|channel|>commentary to=g<|constrain|>json<|message|>{}"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    format = name.partition(" ")[0].rstrip(",")
    prompt = unbraid.find(format).prompt if unbraid.find(format).headers else ""
    message = parse(format, CALLS[name], tools=TOOLS, prompt=prompt)
    assert message.tool_calls == (F, G)
    assert not message.content.strip()
    assert not message.reasoning
    assert message.diagnostics == ()


def format_of(name: str) -> Format:
    return unbraid.find(name.partition(" ")[0].rstrip(","))


# With headers, text outside of a message is none of the format's; test_headers has it.
@pytest.mark.parametrize("name", [name for name in CALLS if format_of(name).headers is None])
def test_text_around_calls_is_kept(name: str) -> None:
    message = parse(format_of(name).name, f"Before.{CALLS[name]} After.", tools=TOOLS, prompt="")
    assert message.tool_calls == (F, G)
    assert message.content.split() == ["Before.", "After."]


_COMMA = _LIST[:-1] + ",\n]"
_DSML_F = f'<｜DSML｜invoke name="f">\n{_typed("｜DSML｜")}</｜DSML｜invoke>'
_DSML_G = '<｜DSML｜invoke name="g">\n</｜DSML｜invoke>'
_INVOKE_F = '<invoke name="f">\n' + _tags('<parameter name="{}">', "</parameter>\n") + "</invoke>"
_INVOKE_G = '<invoke name="g">\n</invoke>'
_FUNCTION_F = "<function=f>\n" + _tags("<parameter={}>\n", "\n</parameter>\n") + "</function>"
_TIGHT_FUNCTION_F = "<function=f>\n" + _tags("<parameter={}>", "</parameter>\n") + "</function>"
_FUNCTION_G = "<function=g>\n</function>"

_ATEM = (
    '<atem:function_calls>\n<atem:invoke name="f">\n'
    + _tags('<atem:parameter name="{}">', "</atem:parameter>\n")
    + '</atem:invoke>\n<atem:invoke name="g">\n</atem:invoke>\n</atem:function_calls>'
)

# What models write that is not quite their format, as it is reported of them; all of it can be read.
NEARLY = {
    "qwen3_coder, only closed": f"{_FUNCTION_F}\n</tool_call>\n{_FUNCTION_G}\n</tool_call>",
    "qwen3_coder, two in one": f"<tool_call>\n{_FUNCTION_F}\n{_FUNCTION_G}\n</tool_call>",
    "mimo, only closed": f"{_TIGHT_FUNCTION_F}\n</tool_call>\n{_FUNCTION_G}",
    "seed_oss, only closed": f"{_TIGHT_FUNCTION_F}\n{_FUNCTION_G}\n</seed:tool_call>",
    "deepseek_v32, without a section": f"{_DSML_F}\n{_DSML_G}",
    "deepseek_v4, only closed": f"{_DSML_F}\n{_DSML_G}\n</｜DSML｜tool_calls>",
    "deepseek_v4, another section": f"<｜DSML｜tool>\n{_DSML_F}\n{_DSML_G}\n</｜DSML｜tool>",
    "minimax_m2, only closed": f"{_INVOKE_F}\n{_INVOKE_G}\n</minimax:tool_call>",
    "dots, without a section": f"{_INVOKE_F}\n{_INVOKE_G}",
    "dots, in single quotes": f"<dots_function_call>{_INVOKE_F}\n<invoke name=g/></dots_function_call>".replace(
        '"f"', "'f'"
    ),
    "hunyuan-3, without what follows the name": (
        "<tool_calls>\n<tool_call>f\n"
        + _tags("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n")
        + "</tool_call>\n<tool_call>g</tool_call>\n</tool_calls>"
    ),
    "deepseek_v3, without a type": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><｜tool▁sep｜>f\n"
        f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜><｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi_k2, another section": (
        f"<|tool_call_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"
        "<|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_section_end|>"
    ),
    "k2_horizon, JSON in a section": (
        "<ifm|tool_calls>\n"
        + "\n".join(f"<ifm|tool_call>{one}</ifm|tool_call>" for one in _OBJECTS)
        + "\n</ifm|tool_calls>"
    ),
    "k2_horizon, with types": (
        "<ifm|tool_calls>\n<ifm|tool_call>f\n"
        + "".join(
            f"<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_type>{_IFM_KINDS[key]}</ifm|arg_type>\n"
            f"<ifm|arg_value>{value}</ifm|arg_value>\n"
            for key, value in {"city": 'São "P"', "days": "3", "tags": '[1, "x"]', "dry": "true"}.items()
        )
        + "</ifm|tool_call>\n<ifm|tool_call>g</ifm|tool_call>\n</ifm|tool_calls>"
    ),
    "llama4_json, with its tags": f"<|python_start|>{'; '.join(_OBJECTS)}<|python_end|>",
    "llama4_pythonic, as JSON": f"<|python_start|>{'; '.join(_OBJECTS)}<|python_end|>",
    "lfm2, an object": f"<|tool_call_start|>{', '.join(_OBJECTS)}<|tool_call_end|>",
    "apertus, over several lines": (
        f'<|tools_prefix|>[\n  {{\n    "f" : {ARGUMENTS}\n  }},\n  {{ "g": {{}} }}\n]<|tools_suffix|>'
    ),
    "jamba, a comma too many": f"<tool_calls>{_COMMA}</tool_calls>",
    "granite, a comma too many": f"<|tool_call|>{_COMMA}",
    "pythonic, a comma too many": f"[{', '.join(_PYTHON)},]",
    "command-r, the fence on a line of its own": (
        f"Action:\n```json\n{_LIST.replace('name', 'tool_name').replace('arguments', 'parameters')}\n```"
    ),
    "xlam, the fence on the same line": f"```json\n{_LIST}```",
    "muse, without special tokens": f" to=f{_ATEM}",
    "muse-spark, without a header": _ATEM,
    "muse-spark, without a section": f" to=f<|message|>{_ATEM.partition('>')[2].rpartition('</')[0]}<|eot|>",
    "muse, in namespaces": (
        ' to=f<|message|><atem:function_calls>\n<atem:invoke name="f.f">\n'
        + _tags('<atem:parameter name="{}">', "</atem:parameter>\n")
        + '</atem:invoke>\n<atem:invoke name="g.g">\n</atem:invoke>\n</atem:function_calls><|eom|>'
    ),
    "harmony, the recipient as a type": (
        f"<|channel|>final <|constrain|>functions.f<|message|>{ARGUMENTS}<|end|>"
        "<|start|>assistant<|channel|>final <|constrain|>functions.g<|message|>{}<|call|>"
    ),
}


@pytest.mark.parametrize("name", NEARLY)
def test_calls_that_are_nearly_right(name: str) -> None:
    format = unbraid.find(name.partition(",")[0])
    prompt = format.prompt if format.headers else ""
    message = parse(format, NEARLY[name], tools=TOOLS, prompt=prompt)
    assert message.tool_calls == (F, G)
    assert not message.content.strip()


@pytest.mark.parametrize("name", ["f.f", "other.f", "f"])
def test_a_namespace_says_nothing_where_the_tool_is_known(name: str) -> None:
    text = f' to=f<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n</atem:invoke>\n</atem:function_calls>'
    assert parse("muse", text, tools=TOOLS).tool_calls == (ToolCall("f", "{}"),)
    assert parse("muse", text).tool_calls == (ToolCall(name, "{}"),)
    both = [{"name": "f"}, {"name": "f.f"}]
    assert parse("muse", text.replace(name, "f.f"), tools=both).tool_calls == (ToolCall("f.f", "{}"),)
    message = parse("muse", text.replace(f'"{name}"', '"f.x"'), tools=TOOLS)
    assert not message.tool_calls


@pytest.mark.parametrize("family", ["minimax_m2", "dots", "minicpm5"])
def test_a_tag_that_only_begins_like_an_argument(family: str) -> None:
    """`<parameters>` in a string ends nothing; a forgotten closing tag still does no harm."""
    format = unbraid.find(family)
    for value in ("<parameters>x</parameters>", "<parameter>", "<params/>", "a <parameter b"):
        text = unbraid.render(format, unbraid.Message((ToolCall("f", json.dumps({"city": value, "days": 3})),)))
        message = parse(format, text, tools=TOOLS, prompt="")
        assert message.tool_calls == (ToolCall("f", json.dumps({"city": value, "days": 3})),)
        assert message.diagnostics == ()


# --- Answers that look like calls, where calls have no marker ------------------------------------------------------

ANSWERS = [
    '{"name": "Alice", "age": 3}',
    '{"name": "Alice"}',
    '{"name": "Alice", "id": "3", "type": "person"}',
    '{"id": "x", "name": "Alice", "tags": []}',
    '{"people": [{"name": "Alice"}, {"name": "Bob", "type": "x"}]}',
    '{"name": "f", "description": "what it does", "parameters": {"type": "object", "properties": {}}}',
    '[{"name": "Alice"}, {"name": "Bob", "age": 3}]',
    '[{"name": "f", "description": "what it does", "arguments": {}}]',
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("family", ["llama3_json", "xlam"])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_an_answer_is_no_call(family: str, answer: str, tools: list[dict[str, object]] | None) -> None:
    message = parse(family, answer, tools=tools)
    assert (message.content, message.tool_calls, message.diagnostics) == (answer, (), ())


def test_a_call_without_arguments_is_one_where_the_tool_is_known() -> None:
    for text in ('{"name": "g"}', '{"name": "g", "parameters": null}', '{"type": "function", "name": "g"}'):
        assert parse("llama3_json", text, tools=TOOLS).tool_calls == (G,)


def test_what_is_tried_out_in_reasoning_is_no_call() -> None:
    message = parse("xlam", f"<think>\nMaybe {_LIST}?\n</think>\n\n{_LIST}", tools=TOOLS)
    assert message.reasoning == f"Maybe {_LIST}?"
    assert message.tool_calls == (F, G)
    format = unbraid.compose(reasoning="deepseek-r1", tools="llama3_json")
    message = parse(format, f"So {_OBJECTS[0]}.\n</think>\n\n{_OBJECTS[1]}", tools=TOOLS)
    assert (message.reasoning, message.tool_calls) == (f"So {_OBJECTS[0]}.", (G,))


CODE = [
    "<code>\nanswer = f(city='x')\nprint(answer)\n</code>",
    "Write <code>f</code>, or <code>print(a)</code>.",
]


@pytest.mark.parametrize("text", CODE)
def test_code_that_is_more_than_calls_is_text(text: str) -> None:
    message = parse("smollm3", text, tools=TOOLS)
    assert (message.content, message.tool_calls) == (text, ())


# --- Whitespace without end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [" " * 200, "\n" * 300, " " * 5000])
@pytest.mark.parametrize("family", ["llama3_json", "minimax_m1", "olmo3", "jamba", "pythonic"])
def test_much_whitespace_between_calls(family: str, space: str) -> None:
    """Read the same however it is cut, which `parse` sees to."""
    one, two = {
        "llama3_json": (_OBJECTS[0], f"; {_OBJECTS[1]}"),
        "minimax_m1": (f"<tool_calls>\n{_OBJECTS[0]}", f"{_OBJECTS[1]}\n</tool_calls>"),
        "olmo3": (f"<function_calls>{_PYTHON[0]}", f"{_PYTHON[1]}</function_calls>"),
        "jamba": (f"<tool_calls>[{_OBJECTS[0]}", f",{space}{_OBJECTS[1]}{space},{space}]</tool_calls>"),
        "pythonic": (f"[{_PYTHON[0]}", f",{space}{_PYTHON[1]}{space}]"),
    }[family]
    message = parse(family, one + space + two, tools=TOOLS)
    assert message.tool_calls[0] == F
    assert message.tool_calls == (F, G) or len(space) > 256


# The answer and the reasoning, apart; and what is around the answer.
STRANDS = {
    "granite": "Here is my thought process: hm Here is my response: so",
    "granite in short": "Here's my thought process: hm Here's my response: so",
    "hunyuan_a13b": "<think>\nhm\n</think>\n<answer>\nso\n</answer>",
    "ernie45": "hm\n</think>\n\n\n<response>\nso\n</response>\n",
    "kimi": "◁think▷hm◁/think▷so",
    "seed_oss": "<seed:think>hm</seed:think>\nso",
    "minimax_m2": "hm\n</think>\n\nso",
    "apertus": "<|inner_prefix|>hm<|inner_suffix|>so",
    "cohere_command3": "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>so<|END_RESPONSE|>",
    "cohere_command4": "<|START_THINKING|>hm<|START_TEXT|>so<|END_TEXT|>",
    "k2_horizon": "hm</ifm|think>so",
    "k2_horizon in haste": "<ifm|think_fast>hm</ifm|think_fast>so",
    "kimi_k3": "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>so<|close|>response<|sep|>"
    "<|close|>message<|sep|>",
    "harmony": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>so<|return|>",
    "harmony without an end": "<|channel|>analysis<|message|>hm<|channel|>final<|message|>so",
    "muse": " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>so<|eot|>",
    "inkling": "<|message_model|><|content_thinking|>hm<|end_message|>"
    "<|message_model|><|content_text|>so<|end_message|>",
    "apriel in full": "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\nso\n[END FINAL RESPONSE]\n",
    "apriel-1.6": "hm\n[BEGIN FINAL RESPONSE]\nso",
    "apriel-1.6 with an end": "hm\n[BEGIN FINAL RESPONSE]\nso\n[END FINAL RESPONSE]\n",
    "solar_open": "<|think|>hm<|end|><|begin|>assistant<|content|>so<|end|>",
    "solar_open, flushed": "<|think|>hm<|end|><|begin|>assistant<|content|>so<|flush|>",
    "cogito": "<think>\nhm\n</think>\n\nso",
    "mistral": "[THINK]hm[/THINK]so",
    "deepseek_r1": "hm\n</think>\n\nso",
    "step3": "hm</think>so",
    "plamo3": "<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>so",
}


@pytest.mark.parametrize("name", STRANDS)
def test_reasoning_and_answer(name: str) -> None:
    message = parse(name.partition(" ")[0].rstrip(","), STRANDS[name])
    assert (message.reasoning.strip(), message.content.strip()) == ("hm", "so")


CITED = {
    "command-r": "It is <co: 0,2>warm</co: 0,2>.",
    "command-r7b": "<|START_RESPONSE|>It is <co>warm</co: 0:[1, 2],1:[0]>.<|END_RESPONSE|>",
    "command-a": "<|START_THINKING|>It <co>is</co: 0:[1]> so.<|END_THINKING|><|START_RESPONSE|>It is <co>warm</co>.",
    "cohere_command4": "<|START_TEXT|>It is <co>warm</co: 1:[3]>.<|END_TEXT|>",
}


@pytest.mark.parametrize("name", CITED)
def test_citations_are_markup_and_what_they_cite_is_text(name: str) -> None:
    message = parse(name, CITED[name])
    assert (message.content, message.diagnostics) == ("It is warm.", ())
    assert message.reasoning in ("", "It is so.")
    parser = unbraid.parser(name, markup=True)
    events = [*parser.feed(CITED[name]), *parser.finish()]
    tags = [event.text for event in events if isinstance(event, unbraid.Markup) and "co" in event.text]
    assert all(tag in CITED[name] for tag in tags)
    assert len(tags) == CITED[name].count("<co") + CITED[name].count("</co")


@pytest.mark.parametrize("text", ["<code>x</code>", "<co: x>", "<co: 0", "</co: [", "<co", "a <co:\n0 b"])
def test_what_only_begins_like_a_citation_is_text(text: str) -> None:
    assert parse("command-r", text).content == text


def test_a_citation_in_an_argument_is_data() -> None:
    call = '{"tool_call_id": "0", "tool_name": "f", "parameters": {"city": "<co: 0>x</co: 0>"}}'
    message = parse("command-r7b", f"<|START_ACTION|>[{call}]<|END_ACTION|>", tools=TOOLS)
    assert message.tool_calls == (ToolCall("f", '{"city": "<co: 0>x</co: 0>"}'),)


def test_a_suffix_to_every_tag() -> None:
    text = "<think:opensource>hm</think:opensource><tool_calls:opensource><tool_call:opensource>g<tool_sep:opensource>"
    text += "</tool_call:opensource></tool_calls:opensource>"
    message = parse("hy_v3:opensource", text, tools=TOOLS)
    assert (message.reasoning, message.tool_calls, message.diagnostics) == ("hm", (G,), ())


def test_reasoning_that_stays_in_the_content() -> None:
    format = unbraid.compose(reasoning="minimax-append-think", tools="minimax-m2")
    assert unbraid.parse(format, "<think>hm</think>so").content == "<think>hm</think>so"


# --- The names that engines know their parsers by ------------------------------------------------------------------

_STEP_AUDIO_NAMES: dict[Strand, tuple[str, ...]] = {"tools": ("step_audio_2",), "reasoning": ("step-audio2",)}
"""Those that the plug-in adds to SGLang's."""


def _names(strand: Strand) -> list[str]:
    """Those of vLLM and SGLang that stand for a format."""
    theirs = (name for engine in ENGINES for name in NAMES[engine, strand] if name not in OF_NO_FORMAT)
    return [*dict.fromkeys(theirs), *_STEP_AUDIO_NAMES[strand]]


# Those of other engines: Ollama, mlx-lm, SMG.
_OTHER_PARSERS = """
qwen3 qwen3-thinking qwen3.5 ornith qwen3-coder qwen3-vl-thinking ministral harmony cogito olmo3 olmo3-think
nemotron-3-nano nemotron-3.5-nano functiongemma function_gemma glm-4.7 gemma4 lfm2 lfm2-thinking laguna poolside-v1
cohere glimmer muse_spark sarashina pythonic longcat minicpm5 kimi_k3 minimax_m2
"""


@pytest.mark.parametrize("name", [*_names("tools"), *_OTHER_PARSERS.split()])
def test_names_of_tool_parsers(name: str) -> None:
    assert unbraid.compose(tools=name).tools is not None


@pytest.mark.parametrize("name", _names("reasoning"))
def test_names_of_reasoning_parsers(name: str) -> None:
    format = unbraid.find(name)
    assert unbraid.compose(reasoning=name).reasoning is not None or format.reasoning_in_content


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("kimi-k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("k2-horizon", '<ifm|tool_call>{{"name": "f", "arguments": {}}}</ifm|tool_call>'),
    ],
)
def test_a_number_between_quotes_is_one_to_the_engine(format: str, text: str) -> None:
    text = text.format('{"days": "3", "city": "3"}')
    [call] = parse(format, text, tools=TOOLS, prompt="").tool_calls
    assert call.complete
    assert call.arguments == '{"days": 3, "city": "3"}'


def test_glm_writes_strings_bare_so_quotes_are_their_own() -> None:
    text = '<tool_call>f<arg_key>city</arg_key><arg_value>"Beijing"</arg_value></tool_call>'
    [call] = parse("glm-4.7", text, tools=TOOLS, prompt="").tool_calls
    assert json.loads(call.arguments) == {"city": '"Beijing"'}
