"""Formats found by their templates: the vendors' own, templates that nobody has seen, and hostile ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid import Message, Text, ToolCall, UnbraidError
from unbraid.cli import main
from unbraid.core import grammar
from unbraid.core.grammar import Between, Call, Calls, Format
from unbraid.core.notations import JsonCall
from unbraid.templates import ChatTemplate, built_in
from unbraid.templates.detection import Detection, DetectionError
from unbraid.templates.detection.definition import definition

from ..constraints.grammar_engines import smollm2_gguf
from ..support.places import absent
from .prompt_models import TEMPLATES as FOLDER
from .prompt_models import template_source

needs_templates = pytest.mark.skipif(not FOLDER.is_dir(), reason=absent(FOLDER))

# What each template speaks, by reading it. The first name is the family; others write just the same.
RENDERED = {
    "Apertus-8B-Instruct": "apertus",
    "ByteDance-Seed-OSS": "seed-oss",
    "Cohere2MoE": "cohere-command-4",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "cohere-command-3",
    "GLM-4.6": "glm-4.5",
    "GLM-4.7-Flash": "glm-4.7",
    "GigaChat3-10B-A1.8B": "gigachat-3",
    "Kimi-K3": "kimi-k3",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-v11",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-nano-v2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "qwen3-thinking",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "qwen3",
    "Qwen3-Coder": "qwen3-coder",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek-r1",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "fireworks-ai-llama-3-firefunction-v2": "firefunction-v2",
    "ibm-granite-granite-4.0": "granite-4",
    "llama-cpp-deepseek-r1": "deepseek-r1",
    "meetkai-functionary-medium-v3.1": "functionary-v3.1",
    "meetkai-functionary-medium-v3.2": "functionary-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct": "llama-3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama-3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama-3",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "moonshotai-Kimi-K2": "kimi-k2",
    "openai-gpt-oss-120b": "harmony",
    "poolside-Laguna-XS-2.1": "poolside-v1",
    "poolside-Laguna-XS.2": "poolside-v1",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral",
}
# They do not render calls, or cannot be rendered with them: their words alone tell.
BY_MARKERS = {
    "Kimi-K2-Instruct": "kimi-k2",
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-Instruct": "lfm2",
    "ibm-granite-granite-3.3-2B-Instruct": "granite-3",
}
PLAIN = ("google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct")
# Each has a notation of its own.
OWN_NOTATION = {"google-gemma-4-31B-it": "gemma-4", "MiniMax-M3": "minimax-m3"}


@needs_templates
def test_every_template_is_in_a_table() -> None:
    there = {path.stem for path in FOLDER.glob("*.jinja")}
    assert there == {*RENDERED, *BY_MARKERS, *PLAIN, *OWN_NOTATION}


@pytest.mark.parametrize("template", RENDERED)
def test_a_template_shows_its_format(template: str) -> None:
    found = unbraid.detect(template_source(template))
    assert (found.name, found.verified, found.how) == (RENDERED[template], True, "rendered")
    assert found.format == unbraid.find(RENDERED[template])
    assert found.required() is found.format
    assert found.definition is None
    assert found.reasons[0].startswith("it reads back what the template writes for")


@pytest.mark.parametrize("template", OWN_NOTATION)
def test_a_notation_of_its_own(template: str) -> None:
    found = unbraid.detect(template_source(template))
    assert (found.name, found.verified) == (OWN_NOTATION[template], True)


@pytest.mark.parametrize("template", BY_MARKERS)
def test_words_alone_verify_nothing(template: str) -> None:
    found = unbraid.detect(template_source(template))
    assert (found.name, found.verified, found.how) == (BY_MARKERS[template], False, "markers")
    assert "its text has `" in found.reasons[-1]
    with pytest.raises(unbraid.UnknownFormat, match="could not be verified"):
        found.required()


@pytest.mark.parametrize("template", PLAIN)
def test_nothing_but_content(template: str) -> None:
    found = unbraid.detect(template_source(template))
    assert (found.name, found.verified, found.how) == ("plain", True, "plain")


@pytest.mark.parametrize("template", ["Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "GLM-4.7-Flash", "moonshotai-Kimi-K2"])
def test_the_same_for_the_same_template_however_it_is_given(template: str, tmp_path: Path) -> None:
    text = template_source(template)
    (tmp_path / "chat_template.jinja").write_text(text)
    config = {"chat_template": text, "eos_token": {"content": "<eos>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    places = (
        ChatTemplate(text),
        tmp_path,
        tmp_path / "chat_template.jinja",
        tmp_path / "tokenizer_config.json",
        config,
    )
    names = {unbraid.detect(place).name for place in places}
    assert names == {RENDERED[template]}


def test_families_that_write_the_same() -> None:
    """The choice between them is said, and the others with it."""
    found = unbraid.detect(template_source("Qwen-Qwen2.5-7B-Instruct"))
    assert {"qwen2.5", "granite-4", "qwen3"} <= set(found.alternatives)
    assert "hermes was preferred to qwen2.5" in found.reasons[-1]


def test_a_fine_tune_of_a_family() -> None:
    """Other words around the turns, other ends, other whitespace: it is still the family's."""
    text = template_source("Qwen3-Coder").replace("<|im_start|>", "<|begin|>").replace("<|im_end|>", "<|done|>")
    assert unbraid.detect(text.replace("'\\n<tool_call>", "' <tool_call>")).name == "qwen3-coder"


# --- Derived ----------------------------------------------------------------------------------------------------------

RENAMED = {
    "Apertus-8B-Instruct": ("<|tools_prefix|>", "<|tools_suffix|>"),
    "ByteDance-Seed-OSS": ("seed:tool_call", "seed:think", "<function=", "</function>"),
    "Cohere2MoE": ("<|START_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>"),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("Action:",),
    "GLM-4.6": ("<tool_call>", "</tool_call>", "arg_key>", "arg_value>"),
    "GLM-4.7-Flash": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "MiniMax-M1": ("<tool_calls>", "</tool_calls>"),
    "MiniMax-M2": ("minimax:tool_call", "<invoke name", "</invoke>", "<parameter name", "</parameter>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    "NVIDIA-Nemotron-Nano-v2": ("TOOLCALL>",),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("<tool_call>", "</tool_call>"),
    "Qwen-QwQ-32B": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "Qwen-Qwen3-0.6B": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "Qwen3-Coder": ("<tool_call>", "<function=", "<parameter=", "</parameter>"),
    "deepseek-ai-DeepSeek-V3.1": ("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<think>", "</think>"),
    "deepseek-ai-DeepSeek-V3.2": ("｜DSML｜", "<think>", "</think>"),
    "fireworks-ai-llama-3-firefunction-v2": ("functools",),
    "llama-cpp-deepseek-r1": ("<｜tool▁call▁begin｜>",),
    "meetkai-functionary-medium-v3.1": ("<function=", "</function>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("[TOOL_CALLS]",),
    "moonshotai-Kimi-K2": ("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
    "poolside-Laguna-XS.2": ("<tool_call>", "</tool_call>", "arg_key>", "arg_value>", "think>"),
    "unsloth-Apriel-1.5": ("<tool_calls>", "</tool_calls>"),
    "unsloth-mistral-Devstral-Small-2507": ("[TOOL_CALLS]", "[ARGS]"),
}
MESSAGE = Message(
    (
        Text("reasoning", "They ask for two places."),
        ToolCall("look", '{"place": "Paris", "days": 3}', "call00001"),
        ToolCall("note", '{"text": "a < b"}', "call00002"),
    )
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in keys.items()}},
        },
    }
    for name, keys in {"look": {"place": "string", "days": "integer"}, "note": {"text": "string"}}.items()
]


def renamed(marker: str) -> str:
    """`<tool_call>` as `<loot_call>`: the first word of it, backwards."""
    word = next(word for word in marker.replace("<", " ").replace("_", " ").split() if any(map(str.isalpha, word)))
    letters = "".join(filter(str.isalpha, word))
    return marker.replace(letters, letters[::-1], 1) if letters in marker else marker[:1] + "Z" + marker[1:]


@pytest.mark.parametrize("template", RENAMED)
def test_a_template_that_nobody_has_seen(template: str) -> None:
    """The same templates with other markers: a format is made for each, and it is one like any other."""
    text = template_source(template)
    for marker in RENAMED[template]:
        assert marker in text
        text = text.replace(marker, renamed(marker))
    found = unbraid.detect(text, eos_token="<|eos|>")
    assert (found.name, found.verified, found.how) == ("derived", True, "derived")
    format = found.required()
    message = MESSAGE if format.reasoning is not None else replace(MESSAGE, parts=MESSAGE.parts[1:])
    back = unbraid.parse(format, unbraid.render(format, message), tools=TOOLS, prompt="")
    assert (back, back.diagnostics) == (message, ())
    assert unbraid.constraint(format, tools=TOOLS, tool_choice="required").to_lark()
    assert made_from(definition(format)) == format


def made_from(text: str) -> Format:
    """What a definition makes, where the names of grammars are known."""
    made = eval(text, {name: getattr(grammar, name) for name in dir(grammar)})
    assert isinstance(made, Format)
    return made


def chat(one: str, before: str = "", between: str = "", after: str = "", reasoning: str = "", **other: str) -> str:
    """A template of our own. `one` is how it writes a call."""
    content = other.get("content", "{{ m.content or '' }}")
    return (
        "{%- if tools -%}<|tools|>{{ tools | tojson }}<|end|>{%- endif -%}"
        "{%- for m in messages -%}<|{{ m.role }}|>"
        + ("{%- if m.reasoning_content -%}" + reasoning.replace("…", "{{ m.reasoning_content }}") + "{%- endif -%}")
        + content
        + ("{%- if m.tool_calls -%}" + before + "{%- for c in m.tool_calls -%}{%- set f = c.function -%}")
        + one
        + ("{%- if not loop.last -%}" + between + "{%- endif -%}" if between else "")
        + ("{%- endfor -%}" + after + "{%- endif -%}<|end|>{%- endfor -%}")
        + "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    )


JSON = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
NAMED = "{{ f.name }} {{ f.arguments | tojson }}"
PYTHON = (
    "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})"
)
TYPED = (
    "<do {{ f.name }}>{% for k, v in f.arguments.items() %}"
    '<arg k="{{ k }}" is="{{ "text" if v is string else "json" }}">'
    "{{ v if v is string else v | tojson }}</arg>{% endfor %}</do>"
)
SYNTHETIC = {
    "JSON in tags": chat(f"<act>{JSON}</act>", reasoning="<muse>…</muse>"),
    "a list after a marker": chat(JSON, "<|acts|>[", ", ", "]"),
    "a name and its arguments": chat(f"[ACT]{NAMED}[/ACT]", reasoning="[MUSE]…[/MUSE]"),
    "calls in a section": chat(f"<act>{NAMED}</act>", "<acts>", "\n", "</acts>"),
    "calls of Python in a list": chat(PYTHON, "<acts>[", ", ", "]</acts>"),
    "calls of Python, each by itself": chat(f"<act>{PYTHON}</act>"),
    "nothing but words": chat("Tool: {{ f.name }}\nInput: {{ f.arguments | tojson }}\n", "\n"),
    "an object inside of another": chat('<act>{"type": "function", "function": ' + JSON + "}</act>"),
    "the arguments as a string": chat(
        '<act>{"name": "{{ f.name }}", "input": {{ f.arguments | tojson | tojson }}}</act>'
    ),
    "the name last": chat('<act>{"input": {{ f.arguments | tojson }}, "function": "{{ f.name }}"}</act>'),
    "an id": chat('<act id="{{ c.id }}" name="{{ f.name }}">{{ f.arguments | tojson }}</act>'),
    "numbers": chat("<act n={{ loop.index }}>" + NAMED + "</act>"),
    "kinds of values": chat(TYPED, "<acts>", "", "</acts>", reasoning="<muse>…</muse>"),
    "content in tags": chat(
        f"<act>{NAMED}</act>",
        reasoning="<muse>…</muse>",
        content="{% if m.content %}<say>{{ m.content }}</say>{% endif %}",
    ),
    "reasoning that the prompt opens": chat(f"<act>{NAMED}</act>", reasoning="<muse>\n…\n</muse>\n").replace(
        "<|assistant|>{%- endif -%}", "<|assistant|><muse>\n{%- endif -%}"
    ),
}


@pytest.mark.parametrize("kind", SYNTHETIC)
def test_a_format_is_derived(kind: str) -> None:
    found = unbraid.detect(SYNTHETIC[kind])
    assert (found.name, found.verified, found.how) == ("derived", True, "derived")
    format = found.required()
    assert format.ends == ("<|end|>",)
    assert (format.reasoning is not None) == ("MUSE" in SYNTHETIC[kind].upper())
    message = MESSAGE if format.reasoning is not None else replace(MESSAGE, parts=MESSAGE.parts[1:])
    back = unbraid.parse(format, unbraid.render(format, message), tools=TOOLS, prompt="")
    assert (back, back.diagnostics) == (message, ())


def test_what_a_derived_format_is_made_of() -> None:
    found = unbraid.detect(SYNTHETIC["JSON in tags"])
    assert found.format == Format(
        "derived",
        reasoning=Between("<muse>", "</muse>"),
        tools=Calls("<act>", Call((JsonCall(),)), "</act>"),
        ends=("<|end|>",),
    )
    assert "calls begin with `<act>` and end with `</act>`" in found.reasons
    opened = unbraid.detect(SYNTHETIC["reasoning that the prompt opens"]).required()
    assert opened.prompt == "<muse>\n"


def test_calls_of_a_family_with_reasoning_of_its_own() -> None:
    """Calls of a family are read in all the spellings that the family is known for."""
    text = template_source("Qwen-Qwen3-0.6B").replace("<think>", "<muse>").replace("</think>", "</muse>")
    found = unbraid.detect(text)
    assert found.how == "derived"
    assert found.required().tools == unbraid.find("qwen3").tools
    assert found.required().reasoning == Between("<muse>\n", "\n</muse>\n\n")


@pytest.mark.parametrize(
    "one",
    [
        "<act>{{ f.name }}{% for k, v in f.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}</act>",
        "<act>{{ f.name }}\n{% for k, v in f.arguments.items() %}{{ k }}: {{ v }}\n{% endfor %}</act>",
        # Two calls can be told apart, and a third cannot: what was derived from two must not pass.
        "{{ ['<one>', '<two>', '<six>'][loop.index0] }}" + NAMED + "</act>",
    ],
)
def test_what_cannot_be_derived_is_not(one: str) -> None:
    found = unbraid.detect(chat(one))
    assert (found.format, found.verified, found.how) == (None, False, "none")
    with pytest.raises(unbraid.UnknownFormat, match=r"no format was found.*unbraid formats.*Adding a format"):
        found.required()


QUOTED = "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}=Q{{ v }}Q{{ ', ' if not loop.last }}{% endfor %})"


def test_a_template_that_quotes_everything() -> None:
    """What the template itself loses is a remark: the format is still the one."""
    found = unbraid.detect(chat(QUOTED.replace("Q", '"'), "[", ", ", "]"))
    assert (found.name, found.verified) == ("pythonic", True)
    assert any("numbers and the like come back as text" in reason for reason in found.reasons)


def test_a_template_that_writes_no_values_at_all() -> None:
    """Where only the calls are seen, the format is named, and not verified."""
    found = unbraid.detect(chat(QUOTED.replace("Q", ""), "[", ", ", "]"))
    assert (found.name, found.verified, found.how) == ("pythonic", False, "rendered")
    assert "the arguments cannot be read back as the template writes a call" in found.reasons[2]
    with pytest.raises(unbraid.UnknownFormat, match="could not be verified"):
        found.required()


def test_a_turn_with_calls_may_end_in_its_own_way() -> None:
    """The token that ends it is not what closes the calls: engines do not pass it on."""
    format = unbraid.detect(chat(f"<act>{NAMED}</act>", "<acts>", "\n", "</acts><|halt|>")).required()
    assert format.tools is not None
    assert format.tools.close == "</acts>"
    assert format.ends == ("<|end|>", "<|halt|>")


def test_a_template_that_is_careless_about_whitespace() -> None:
    text = SYNTHETIC["JSON in tags"].replace("<|assistant|>{%- endif -%}", " \n <|assistant|>{%- endif -%}")
    assert unbraid.detect(text).format == unbraid.detect(SYNTHETIC["JSON in tags"]).format


# --- Nothing is guessed -----------------------------------------------------------------------------------------------


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_tools_without_calls() -> None:
    found = unbraid.detect("{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML)
    assert (found.format, found.verified) == (None, False)
    assert found.reasons == ("the template tells the model of tools, but does not write the calls of earlier turns",)


def test_reasoning_that_is_only_known_by_name() -> None:
    text = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}[end]{% endfor %}"
    found = unbraid.detect(text)
    assert (found.name, found.verified, found.how) == ("think", False, "markers")


def test_a_template_that_takes_no_assistant() -> None:
    text = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('Not here.') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    found = unbraid.detect(text)
    assert (found.format, found.verified) == (None, False)
    assert "Not here." in found.reasons[-1]


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "raises": ("{{ raise_exception('Go away.') }}", "Go away."),
    "a loop without end": (ENDLESS, "steps"),
    "a loop where there are calls": (
        CHATML + "{% if messages[-1].tool_calls %}" + ENDLESS + "{% endif %}",
        "steps",
    ),
    "output without end": ("{% set x = 'x' * 99999 %}{% for i in range(99999) %}{{ x }}{% endfor %}", "characters"),
    "a list without end": ("{{ [0] * 99999999 }}", "does too much"),
    "calls itself": ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "without end"),
    "nests too deep": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nests too deep"),
    "five megabytes": (CHATML + "x" * 5_000_000, "5,000,0"),
    "a turn without end": (CHATML + "{{ 'x y ' * 9999 }}", "of a few words"),
    "too large to be a template": (CHATML + "{{ a }}" * 30_000, "100,000 are the most"),
    "no template at all": ("It was a dark and stormy night.", "no chat template"),
    "nothing": ("", "no chat template"),
    "broken": ("{% for m in messages %}", "Unexpected end of template"),
    "reaches out": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a number without end": ("{{ " + "9" * 50_000 + " }}", "digits"),
    "constants without end": ("{{''|center(999999)}}" * 2_000, "characters"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_an_error(kind: str) -> None:
    text, said = HOSTILE[kind]
    with pytest.raises(UnbraidError, match=said):
        unbraid.detect(text)


def test_variables_that_a_template_cannot_do_without() -> None:
    text = "{{ 'Today is ' + date_of_today }}" + SYNTHETIC["JSON in tags"]
    assert unbraid.detect(text).how == "derived"


# --- What the tokenizer says itself -----------------------------------------------------------------------------------

FUNCTION = {"name": "{content.name}", "arguments": "{content.arguments}"}
THINKING = {"open": "<think>", "close": "</think>", "content": "text"}


def stated(calls: dict[str, Any] | None = None, **fields: dict[str, Any]) -> dict[str, Any]:
    called = {} if calls is None else {"tool_calls": {"repeats": True, "content": "json", **calls}}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {**fields, **called},
    }


HERMES_CALLS = {"open": "<tool_call>", "close": "</tool_call>", "transform": {"type": "function", "function": FUNCTION}}
RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "Qwen-Qwen3-0.6B": (stated(HERMES_CALLS, thinking=THINKING, content={"close": "<|im_end|>"}), "qwen3"),
    "Qwen3-Coder": (
        stated(
            {
                "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                "close": "</tool_call>",
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            }
        ),
        "qwen3-coder",
    ),
    "Cohere2MoE": (
        stated(
            {
                "open": "<|START_ACTION|>",
                "close": "<|END_ACTION|>",
                "repeats": False,
                "transform_each": True,
                "transform": {"function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            },
            thinking={"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
            content={"open": "<|START_TEXT|>", "close": "<|END_TEXT|>"},
        ),
        "cohere-command-4",
    ),
    "meetkai-functionary-medium-v3.1": (
        stated(
            {
                "open_pattern": r"<function=(?P<name>[^>]+)>",
                "close": "</function>",
                "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
            }
        ),
        "functionary-v3.1",
    ),
}


@pytest.mark.parametrize("template", RESPONSES)
def test_a_response_template_reads_what_the_template_writes(template: str) -> None:
    """Beside a registered format it is a second witness; where there is none, it is the format."""
    response, name = RESPONSES[template]
    config = {"chat_template": template_source(template), "response_template": response, "eos_token": "<|im_end|>"}
    found = unbraid.detect(config)
    assert (found.name, found.how) == (name, "rendered")
    assert found.reasons[-1] == "the tokenizer's response_template reads it too"
    alone = unbraid.detect({"response_template": response, "eos_token": "<|im_end|>"})
    assert (alone.name, alone.verified, alone.how) == ("response_template", False, "response_template")
    assert alone.format is not None
    assert alone.format.ends == ("<|im_end|>",)
    assert made_from(alone.definition or "") == alone.format


def test_a_response_template_where_no_format_is_known() -> None:
    calls = {**HERMES_CALLS, "open": "<act>", "close": "</act>", "transform": {"function": "{content}"}}
    response = stated(calls, reasoning_content={"open": ["<muse>", "<ponder>"], "close": "</muse>"})
    config = {"chat_template": SYNTHETIC["JSON in tags"], "response_template": response}
    found = unbraid.detect(config)
    assert (found.name, found.verified, found.how) == ("response_template", True, "response_template")
    said = unbraid.parse(found.required(), '<ponder>Hm.</muse>Yes.<act>{"name": "look", "arguments": {}}</act>')
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")
    assert [call.name for call in said.tool_calls] == ["look"]


def test_a_response_template_that_is_wrong() -> None:
    """One that does not read what the chat template writes is told, and not believed."""
    config = {"chat_template": SYNTHETIC["JSON in tags"], "response_template": stated(HERMES_CALLS)}
    found = unbraid.detect(config)
    assert found.how == "derived"
    assert found.reasons[-1] == "the tokenizer's response_template does not read what it writes"


def test_reasoning_that_begins_with_the_output() -> None:
    found = unbraid.detect(
        {"response_template": stated(thinking={"close": "</muse>"}, content={"open": "<say>", "close": "</say>"})}
    )
    assert found.format is not None
    said = unbraid.parse(found.format, "Hm.</muse><say>Yes.</say>")
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")


def calls(**changed: Any) -> dict[str, Any]:
    return stated({**HERMES_CALLS, **changed})


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ([], "an object, not list"),
        ({"fields": {}}, "at least one field"),
        ({"fields": {"content": {}}, "version": 2}, "version 2"),
        ({"fields": {"content": {}}, "filds": {}}, "filds"),
        (stated(citations={"open": "<c>"}), "'citations'"),
        (stated(content=[]), "'content' is an object"),  # type: ignore[arg-type]
        (stated(thinking={**THINKING, "opens": "<t>"}), "'thinking'.*opens"),
        (stated(thinking={"open": "<t>"}), "'thinking' is not closed"),
        (stated(thinking={**THINKING, "content": "json"}), "'thinking' has to be text"),
        (stated(thinking={"close": "END"}), "'thinking' has no open"),
        (stated(thinking={"open": 3, "close": "</t>"}), "'thinking' needs a text as open"),
        (calls(content="kv-lines"), "'tool_calls' holds 'kv-lines'"),
        (calls(content_args={"unquoted_keys": True}), "'tool_calls'.*unquoted_keys"),
        (calls(transform=None), "'tool_calls' needs a transform"),
        (calls(transform={"function": {"name": "now", "arguments": "{content}"}}), "'tool_calls' needs placeholders"),
        (calls(close=["</a>", "</b>"]), "'tool_calls' is closed by 2 texts"),
        (calls(content="xml-inline"), "'tool_calls' is xml-inline"),
        (stated({"open_pattern": " to=(?P<name>.*)", "transform": {"function": FUNCTION}}), "tells a call from prose"),
        (stated({"open_pattern": r"<c>(?P<name>\w+", "transform": {"function": FUNCTION}}), "is not closed"),
        (stated({"open_pattern": "<c>.*?", "transform": {"function": FUNCTION}}), "'tool_calls': open_pattern: '.*?'"),
        (stated({"close": "</c>", "transform": {"function": FUNCTION}}), "'tool_calls' needs an open"),
        (
            stated({"open_pattern": "", "transform": {"function": FUNCTION}}),
            "'tool_calls' needs a text as open_pattern",
        ),
        (stated(thinking={"open_pattern": "", "close": "</t>"}), "'thinking' needs a text as open_pattern"),
    ],
)
def test_a_response_template_that_is_no_format(response: Any, said: str) -> None:
    """The error names the field. Where the chat template tells the format, it is only a remark."""
    with pytest.raises(DetectionError, match=said):
        unbraid.detect({"response_template": response})
    found = unbraid.detect({"response_template": response, "chat_template": SYNTHETIC["JSON in tags"]})
    assert found.verified
    assert "response_template" in found.reasons[-1]


# --- What is given ----------------------------------------------------------------------------------------------------


def test_the_template_for_tools_tells_more() -> None:
    found = unbraid.detect(
        {
            "chat_template": [
                {"name": "default", "template": CHATML},
                {"name": "tool_use", "template": SYNTHETIC["numbers"]},
            ]
        }
    )
    assert found.how == "derived"
    assert unbraid.detect({"chat_template": {"default": SYNTHETIC["numbers"], "other": CHATML}}).how == "derived"


def test_a_gguf_file(tmp_path: Path) -> None:
    path = smollm2_gguf()
    assert unbraid.detect(path).how == "plain"
    (tmp_path / "model.gguf").symlink_to(path)
    assert unbraid.detect(tmp_path).how == "plain"


@pytest.mark.parametrize("name", ["chatml", "step-audio-2"])
def test_templates_of_our_own(name: str) -> None:
    assert unbraid.detect(built_in(name)).name == ("plain" if name == "chatml" else name)


def test_what_holds_no_template(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere", {"eos_token": "</s>"}, {}):
        with pytest.raises(UnbraidError, match=r"chat.template|no file"):
            unbraid.detect(place)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UnbraidError, match="not JSON"):
        unbraid.detect(tmp_path / "config.json")
    with pytest.raises(UnbraidError, match="give it as Path"):
        unbraid.detect(str(tmp_path))
    with pytest.raises(UnbraidError, match="not int"):
        unbraid.detect(3)  # type: ignore[arg-type]


def test_the_library_stays_light() -> None:
    """Importing it brings neither jinja2 nor the detection; where jinja2 is missing, the error says so."""
    code = (
        "import sys; import unbraid; assert not {'jinja2', 'unbraid.detection'} & set(sys.modules)\n"
        "sys.modules['jinja2'] = None\n"
        "try: unbraid.detect('{{ messages }}')\n"
        "except unbraid.UnbraidError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'unbraid[server]'" in done.stdout


# --- The command ------------------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["detect", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat_template.jinja").write_text(SYNTHETIC["JSON in tags"])
    return tmp_path


def test_the_command_says_why_and_what_to_do(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = command(capsys, str(folder))
    assert (code, err) == (0, "")
    assert out.startswith("derived\n- no registered format reads what the template writes")
    written = out[out.index("unbraid.register(") + len("unbraid.register(") :].strip()
    assert made_from(written[:-1]) == unbraid.detect(folder).format


def test_the_command_names_a_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template_source("Qwen-Qwen3-0.6B"))
    code, out, _ = command(capsys, str(tmp_path / "chat_template.jinja"))
    assert code == 0
    assert out.startswith("qwen3\n- ")
    assert "--format qwen3" in out


def test_the_command_as_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = command(capsys, "--json", str(folder))
    said = json.loads(out)
    assert code == 0
    assert (said["format"], said["verified"], said["how"]) == ("derived", True, "derived")
    assert made_from(said["definition"]) == unbraid.detect(folder).format


def test_the_command_where_nothing_is_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text(chat("<act>{{ f.name }}: {{ f.arguments.values() | join }}</act>"))
    code, out, err = command(capsys, str(path))
    assert (code, out) == (2, "")
    assert "no format was found" in err
    assert "Nearest are" in err
    assert "Adding a format" in err
    code, out, err = command(capsys, "--json", str(path))
    assert (code, json.loads(out)["format"]) == (2, None)


@pytest.mark.parametrize(("text", "said"), [("Hello.", "no chat template"), (ENDLESS, "steps")])
def test_the_command_with_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text(text)
    code, out, err = command(capsys, str(path))
    assert (code, out) == (2, "")
    assert said in err
    code, _, err = command(capsys, str(tmp_path / "nowhere"))
    assert code == 2
    assert "no file or folder" in err


def test_a_detection_without_a_format_is_a_value() -> None:
    nothing = Detection(None, False, "none", ("why",), ("hermes",))
    assert (nothing.name, nothing.definition) == (None, None)
    assert nothing.to_json()["alternatives"] == ["hermes"]
