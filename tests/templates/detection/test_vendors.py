"""Detection: the format of each of the vendors' templates."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.templates import ChatTemplate
from unbraid.templates.detection import Detection
from unbraid.templates.detection.probes import TOOLS
from unbraid.templates.sources import read_input

from ...support.places import absent
from ..prompt_cases import NEEDS
from ..prompt_models import ALL_TEMPLATES, template_source
from ..prompt_models import TEMPLATES as FOLDER

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
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K3": "kimi-k3",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-v11",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-nano-v2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "qwen3",
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
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-Instruct": "lfm2",
    "ibm-granite-granite-3.3-2B-Instruct": "granite-3",
}
PLAIN = ("google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct")
# Each has a notation of its own.
OWN_NOTATION = {"google-gemma-4-31B-it": "gemma-4", "MiniMax-M3": "minimax-m3"}


@cache
def detected(template: str) -> Detection:
    return unbraid.detect(template_source(template))


@needs_templates
def test_every_template_is_in_a_table() -> None:
    there = {path.stem for path in FOLDER.glob("*.jinja")}
    assert there == {*RENDERED, *BY_MARKERS, *PLAIN, *OWN_NOTATION}


@pytest.mark.parametrize("template", RENDERED)
def test_a_template_shows_its_format(template: str) -> None:
    found = detected(template)
    assert (found.name, found.verified, found.how) == (RENDERED[template], True, "rendered")
    family = unbraid.find(RENDERED[template])
    assert replace(found.required(), prompt=family.prompt) == family
    assert (found.definition is None) == (found.format == family)
    assert found.reasons[0].startswith("it reads back what the template writes for")


@pytest.mark.parametrize("template", OWN_NOTATION)
def test_a_notation_of_its_own(template: str) -> None:
    found = detected(template)
    assert (found.name, found.verified) == (OWN_NOTATION[template], True)


@pytest.mark.parametrize("template", ALL_TEMPLATES)
def test_it_starts_where_the_prompt_of_the_template_ends(template: str) -> None:
    """Without a prompt, an output is read as after the one that the template writes by default."""
    format = detected(template).format
    assert format is not None
    variables: dict[str, Any] = {**NEEDS.get(template, {})}
    tools = TOOLS if "tool_use" in template else None
    hello = [{"role": "user", "content": "Hello"}]
    template_prompt = ChatTemplate(template_source(template)).render(hello, tools, **variables)
    assert unbraid.Parser(format).strand == unbraid.Parser(format, prompt=template_prompt).strand


_BEGIN = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
_OPENED, _CLOSED = "{{ '<think>\n' }}", "{{ '<think>\n\n</think>\n\n' }}"


@pytest.mark.parametrize(("template", "name"), [("Qwen-Qwen3-0.6B", "qwen3"), ("Qwen3-Coder", "qwen3.5")])
def test_reasoning_that_can_be_turned_on_is_not_the_default(template: str, name: str) -> None:
    conversation = template_source(template).partition("{%- if add_generation_prompt %}")[0] + _BEGIN
    choice = f"{{%- if enable_thinking %}}{_OPENED}{{%- else %}}{_CLOSED}{{%- endif %}}"
    quiet, thinking = (unbraid.detect(conversation + end + "{%- endif %}").required() for end in (choice, _OPENED))
    assert quiet.name == name
    assert unbraid.parse(quiet, "Hello there").content == "Hello there"
    assert unbraid.parse(thinking, "Hm.\n</think>\n\nHello there").reasoning == "Hm."


@pytest.mark.parametrize("template", BY_MARKERS)
def test_words_alone_verify_nothing(template: str) -> None:
    found = detected(template)
    assert (found.name, found.verified, found.how) == (BY_MARKERS[template], False, "markers")
    assert "its text has `" in found.reasons[-1]
    with pytest.raises(unbraid.UnknownFormat, match="could not be verified"):
        found.required()


@pytest.mark.parametrize("template", PLAIN)
def test_nothing_but_content(template: str) -> None:
    found = detected(template)
    assert (found.name, found.verified, found.how) == ("plain", True, "plain")


@pytest.mark.parametrize(
    ("number", "template"),
    enumerate(
        ["Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "GLM-4.7-Flash", "moonshotai-Kimi-K2", "Qwen-Qwen2.5-7B-Instruct"]
    ),
)
def test_the_same_for_the_same_template_however_it_is_given(number: int, template: str, tmp_path: Path) -> None:
    """Each way to give it is read as the same text, and one of them is judged."""
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
    assert [read_input(place).templates["default"].source for place in places] == [text] * len(places)
    assert unbraid.detect(places[number]).name == RENDERED[template]


def test_families_that_write_the_same() -> None:
    """The choice between them is said, and the others with it."""
    found = unbraid.detect(template_source("Qwen-Qwen2.5-7B-Instruct"))
    assert {"qwen2.5", "granite-4", "qwen3"} <= set(found.alternatives)
    assert "hermes was preferred to qwen2.5" in found.reasons[-1]


def test_a_fine_tune_of_a_family() -> None:
    """Other words around the turns, other ends, other whitespace: it is still the family's."""
    text = template_source("Qwen3-Coder").replace("<|im_start|>", "<|begin|>").replace("<|im_end|>", "<|done|>")
    assert unbraid.detect(text.replace("'\\n<tool_call>", "' <tool_call>")).name == "qwen3-coder"
