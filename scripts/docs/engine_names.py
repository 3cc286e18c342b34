"""The names that vLLM and SGLang know their parsers by, and which format is meant by each.

Taken from vLLM 0.32 and SGLang 0.5.23; `tests/plugins/test_engine_names.py` compares them with what is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import unbraid
from unbraid import Format, UnknownFormat

Engine = Literal["vLLM", "SGLang"]
Strand = Literal["tools", "reasoning"]
ENGINES: tuple[Engine, ...] = ("vLLM", "SGLang")

FLAGS: dict[Strand, str] = {"tools": "--tool-call-parser", "reasoning": "--reasoning-parser"}
_LISTED: dict[tuple[Engine, Strand], str] = {
    ("vLLM", "tools"): """
        apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 dots
        ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes hf hunyuan_a13b
        hy_v3 hy_v4 inkling internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json
        llama4_pythonic longcat mimo minicpm5 minimax_m2 minimax_m3 mistral muse_glimmer olmo3 openai phi4_mini_json
        plamo3 poolside_v1 pythonic qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 xlam""",
    ("vLLM", "reasoning"): """
        cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 ernie45 gemma4 glm45 glm47
        granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon kimi_k2 kimi_k3 ling3
        mimo minicpmv minimax_m2 minimax_m2_append_think minimax_m3 mistral muse_glimmer nemotron_v3 olmo3
        openai_gptoss plamo3 poolside_v1 qwen3 seed_oss step3 step3p5""",
    ("SGLang", "tools"): """
        apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots gemma4
        gigachat3 gigachat35 glm glm45 glm47 gpt-oss hermes hunyuan inkling interns1 iquest_q1 k2_horizon kimi_k2
        kimi_k3 lfm2 ling3 llama3 mimo minicpm5 minimax-m2 minimax-m3 mistral muse nanbeige poolside_v1 pythonic
        qwen qwen25 qwen3_coder response_template spark25 step3 step3p5 trinity""",
    ("SGLang", "reasoning"): """
        apertus2509 beam cohere_command4 deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots gemma4 gigachat35
        glm45 gpt-oss granite_thinking_parser hunyuan inkling interns1 iquest_q1 k2_horizon kimi kimi_k2 kimi_k3
        ling3 mimo minimax minimax-append-think minimax-m3 mistral muse nanbeige nemotron_3 poolside_v1 qwen3
        qwen3-thinking response_template step3 step3p5""",
}
NAMES = {key: tuple(names.split()) for key, names in _LISTED.items()}
"""The names of each engine, for calls and for reasoning."""
OF_NO_FORMAT = ("hf", "response_template")
"""Parsers that read what the tokenizer says: they stand for no format."""


@dataclass(frozen=True)
class EngineName:
    """A name, whose it is and what for."""

    engine: Engine
    strand: Strand
    name: str


def names_of(format: Format) -> list[EngineName]:
    """Every name that an engine has for a format."""
    return [
        EngineName(engine, strand, name)
        for (engine, strand), names in NAMES.items()
        for name in names
        if name not in OF_NO_FORMAT and _found(name) == format
    ]


def _found(name: str) -> Format | None:
    try:
        return unbraid.find(name)
    except UnknownFormat:
        return None
