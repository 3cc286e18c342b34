"""Detection: formats derived from templates that no registered format reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unbraid
from unbraid.core.grammar import Between, Call, Calls, Format
from unbraid.core.notations import JsonCall
from unbraid.templates.detection.result import format_source

from ..prompt_models import template_source
from .templates import MESSAGE, NAMED, SYNTHETIC, TOOLS, chat, made_from

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
    assert made_from(format_source(format)) == format


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
    with pytest.raises(unbraid.UnknownFormat, match=r"no format was found.*unbraid formats.*Add a format"):
        found.required()


QUOTED = "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}=Q{{ v }}Q{{ ', ' if not loop.last }}{% endfor %})"


def test_a_template_that_quotes_everything() -> None:
    """What the template itself loses is a remark: the format is still the one."""
    found = unbraid.detect(chat(QUOTED.replace("Q", '"'), "[", ", ", "]"))
    assert (found.name, found.verified) == ("pythonic", True)
    assert any("numbers and the like come back as text" in reason for reason in found.reasons)


def test_a_template_that_writes_no_call_that_can_be_read() -> None:
    """Where only the calls are seen, the format is named, and not verified."""
    found = unbraid.detect(chat(QUOTED.replace("Q", "").replace("(", "(x=", 1), "[", ", ", "]"))
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
