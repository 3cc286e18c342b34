"""Grammars as data, one small file a kind. To add one: CONTRIBUTING.md.

The names are those of the model families, and those that vLLM and SGLang know their parsers by. How a name is joined
(`glm-4.5`, `glm45`) does not matter.
"""

from __future__ import annotations

from . import gemma, headed, json_calls, named_calls, python_calls, tagged_calls
from .hermes import HERMES, QWEN_2_5, QWEN_3, QWEN_3_THINKING
from .mistral import MISTRAL, MISTRAL_V3, MISTRAL_V11, MISTRAL_V13
from .registry import all_formats, compose, find, register
from .step_audio import STEP_AUDIO_2
from .think import KIMI_VL, THINK
from .whisper import WHISPER

register(STEP_AUDIO_2, "step-audio-2-mini", "step-audio-2-tts-ta4")
register(MISTRAL)
register(MISTRAL_V3, "mistral-v1", "mistral-v2", "mistral-v7", "mistral-nemo")
register(MISTRAL_V11, "mistral-small-3.2")
register(MISTRAL_V13, "magistral", "devstral")
register(HERMES, "hermes-2-pro", "hermes-3", "nous-hermes")
register(QWEN_2_5, "qwen", "qwen2")
register(QWEN_3, "qwen3-json", "minicpmv", "holo2")
register(QWEN_3_THINKING, "qwq", "qwen3-2507-thinking")
register(THINK)
register(KIMI_VL, "kimi")
register(WHISPER)

register(json_calls.LONGCAT)
register(json_calls.GRANITE_3, "granite")
register(json_calls.GRANITE_4)
register(json_calls.GRANITE_20B)
register(json_calls.ERNIE_45)
register(json_calls.JAMBA)
register(json_calls.HUNYUAN_A13B)
register(json_calls.APRIEL)
register(json_calls.MINIMAX_M1)
register(json_calls.NEMOTRON_NANO_2, "nemotron", "nemotron-deci", "nemotron-json")
register(json_calls.INTERNLM, "interns1", "internlm2")
register(json_calls.GIGACHAT_3)
register(json_calls.PHI_4_MINI, "phi4-mini-json", "phi4")
register(json_calls.APERTUS, "apertus2509")
register(json_calls.COHERE_COMMAND_3, "command-r7b", "command-a")
register(json_calls.COHERE_COMMAND_4)
register(json_calls.COMMAND_R, "command-r-plus")
register(json_calls.LLAMA_3, "llama3-json", "llama4-json")
register(json_calls.XLAM)
register(json_calls.FIREFUNCTION_2, "firefunction")
register(json_calls.FUNCTIONARY_31)
register(json_calls.TRINITY)

register(named_calls.KIMI_K2)
register(named_calls.DEEPSEEK_V3)
register(named_calls.DEEPSEEK_V31)
register(named_calls.DEEPSEEK_R1, "r1")
register(named_calls.PLAMO_3)

register(
    tagged_calls.QWEN_3_CODER,
    *("qwen3-xml", "qwen3-coder-xml", "nanbeige", "nemotron-v3", "nemotron-3", "nemotron-nano"),
    *("granite-4.2", "granite-thinking-parser"),
)
register(tagged_calls.STEP_35, "step3p5")
register(tagged_calls.MIMO)
register(tagged_calls.SEED_OSS)
register(tagged_calls.GLM_45, "glm", "glm-4.6")
register(tagged_calls.GLM_47)
register(tagged_calls.LING_3)
register(tagged_calls.POOLSIDE, "laguna")
register(tagged_calls.SPARK_25)
register(tagged_calls.IQUEST)
register(tagged_calls.HUNYUAN_3, "hy-v3", "hunyuan")
register(tagged_calls.HUNYUAN_4, "hy-v4")
register(tagged_calls.MINIMAX_M2, "minimax")
register(tagged_calls.MINIMAX_M3)
register(tagged_calls.MINICPM_5)
register(tagged_calls.DEEPSEEK_V32)
register(tagged_calls.DEEPSEEK_V4)
register(tagged_calls.DEEPSEEK_V41)
register(tagged_calls.GIGACHAT_35)
register(tagged_calls.STEP_3)
register(tagged_calls.DOTS)
register(tagged_calls.K2_HORIZON)

register(gemma.GEMMA_4)
register(gemma.FUNCTION_GEMMA)

register(python_calls.PYTHONIC)
register(python_calls.LLAMA_4_PYTHONIC)
register(python_calls.OLMO_3)
register(python_calls.LFM2)

register(headed.HARMONY, "gpt-oss", "openai", "openai-gptoss")
register(headed.BEAM)
register(headed.MUSE, "muse-glimmer")
register(headed.INKLING)
register(headed.FUNCTIONARY_32)
register(headed.KIMI_K3)

__all__ = ["all_formats", "compose", "find", "register"]
