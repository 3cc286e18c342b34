"""Grammars as data, by how a family writes calls. To add one: docs/formats.md.

    registry.py      the formats under all their names; formats composed of parts
    hub_names.py     names of models on the hub
    documents.py     formats as JSON, and the JSON Schema of that
    shapes.py        what many families share; formats with reasoning alone
    json_calls.py    calls are JSON objects: Hermes, Qwen, Granite, Llama 3, Cohere …
    named_calls.py   a name, then JSON: Kimi K2, DeepSeek, PLaMo, Mistral; or bare keys: Gemma
    tagged_calls.py  arguments between tags: Qwen3-Coder, GLM, MiniMax, DeepSeek from V3.2 on …
    python_calls.py  calls in Python: Llama 4, OLMo, LFM2 …
    headed.py        messages with headers: Harmony, Solar …; Kimi K3
    speech.py        models that speak; Whisper

The names are those of the model families, and those that vLLM and SGLang know their parsers by. How a name is joined
(`glm-4.5`, `glm45`) does not matter.
"""

from __future__ import annotations

from . import headed, json_calls, named_calls, python_calls, speech, tagged_calls
from .json_calls import HERMES, QWEN_2_5, QWEN_3, QWEN_3_THINKING, REKA_EDGE
from .named_calls import MISTRAL, MISTRAL_V3, MISTRAL_V11, MISTRAL_V13
from .registry import add, all_formats, compose, find, resolve
from .shapes import KIMI_VL, THINK
from .speech import WHISPER

add(speech.STEP_AUDIO_2, "step-audio-2-mini", "step-audio-2-tts-ta4")
add(MISTRAL)
add(MISTRAL_V3, "mistral-v1", "mistral-v2", "mistral-v7", "mistral-nemo")
add(MISTRAL_V11, "mistral-small-3.2")
add(MISTRAL_V13, "magistral", "devstral", "ministral", "ministral-3")
add(HERMES, "hermes-2-pro", "hermes-3", "nous-hermes")
add(QWEN_2_5, "qwen", "qwen2")
add(QWEN_3, "qwen3-json", "qwen3-vl", "minicpmv", "holo2", "mimo-vl", "bielik", "bielik-v3")
add(QWEN_3_THINKING, "qwq", "qwen3-2507-thinking", "qwen3-vl-thinking")
add(json_calls.QWEN_25_CODER)
add(json_calls.EXAONE_4, "exaone", "exaone-4.0", "exaone-4.5", "k-exaone")
add(REKA_EDGE)
add(THINK)
add(KIMI_VL, "kimi")
add(WHISPER)

add(json_calls.LONGCAT)
add(json_calls.GRANITE_3, "granite")
add(json_calls.GRANITE_4)
add(json_calls.GRANITE_20B)
add(json_calls.ERNIE_45)
add(json_calls.JAMBA)
add(json_calls.HUNYUAN_A13B)
add(json_calls.APRIEL, "apriel-1.5", "apriel-1.5-15b-thinker")
add(json_calls.APRIEL_16, "apriel-1.6-15b-thinker")
add(json_calls.MINIMAX_M1)
add(
    json_calls.NEMOTRON_NANO_2,
    *("nemotron", "nemotron-deci", "nemotron-json"),
    *("nemotron-voicechat", "nemotron-3-voicechat", "nemotronlabs-voicechat", "nemotronlabs-voicechat-11b"),
)
add(json_calls.INTERNLM, "interns1", "internlm2")
add(json_calls.GIGACHAT_3)
add(json_calls.PHI_4_MINI, "phi4-mini-json", "phi4")
add(json_calls.APERTUS, "apertus2509")
add(json_calls.COHERE_COMMAND_3, "command-r7b", "command-a")
add(json_calls.COHERE_COMMAND_4, "cohere")
add(json_calls.COMMAND_R, "command-r-plus")
add(json_calls.LLAMA_3, "llama3-json", "llama4-json")
add(json_calls.XLAM)
add(json_calls.FIREFUNCTION_2, "firefunction")
add(json_calls.FUNCTIONARY_31)
add(json_calls.TRINITY)

add(named_calls.KIMI_K2, "kimi-k2-thinking")
add(named_calls.DEEPSEEK_R1, "r1")
add(named_calls.DEEPSEEK_V3)
add(named_calls.DEEPSEEK_V31)
add(named_calls.COGITO, "cogito-v1", "cogito-v1-preview", "cogito-v2", "cogito-v2-preview", "cogito-v2.1")
add(named_calls.PLAMO_3)
add(named_calls.CWM, "code-world-model")

add(tagged_calls.QWEN_35, "qwen3.6", "qwen3.8")
add(
    tagged_calls.QWEN_3_CODER,
    *("qwen3-xml", "qwen3-coder-xml", "ornith", "nanbeige"),
    *("granite-4.2", "granite-thinking-parser", "interns2", "interns2-preview"),
)
add(
    tagged_calls.NEMOTRON_3,
    *("nemotron-v3", "nemotron-nano", "nemotron-3-nano", "nemotron-3-super", "nemotron-3-ultra", "nemotron-3.5-nano"),
)
add(tagged_calls.STEP_35, "step3p5")
add(tagged_calls.MIMO)
add(tagged_calls.SEED_OSS)
add(tagged_calls.GLM_45, "glm", "glm-4.6")
add(tagged_calls.GLM_47, "glm-5", "glm-5.1", "glm-5.2", "glm-5.3", "glm-5.3-flash")
add(tagged_calls.LING_3)
add(tagged_calls.POOLSIDE, "laguna")
add(tagged_calls.SPARK_25)
add(tagged_calls.IQUEST)
add(tagged_calls.HUNYUAN_3, "hy-v3", "hunyuan")
add(tagged_calls.HUNYUAN_4, "hy-v4")
add(tagged_calls.MINIMAX_M2, "minimax")
add(tagged_calls.MINIMAX_M2_APPEND_THINK, "minimax-append-think")
add(tagged_calls.MINIMAX_M3)
add(tagged_calls.MINICPM_5)
add(tagged_calls.DEEPSEEK_V32)
add(tagged_calls.DEEPSEEK_V4)
add(tagged_calls.DEEPSEEK_V41)
add(tagged_calls.GIGACHAT_35)
add(tagged_calls.SOLAR_OPEN_2, "solar-open-2-250b", "solar-pro-4")
add(tagged_calls.STEP_3)
add(tagged_calls.DOTS)
add(tagged_calls.K2_HORIZON)

add(named_calls.GEMMA_4)
add(named_calls.FUNCTION_GEMMA)

add(python_calls.PYTHONIC, "llama-3.2-pythonic", "toolace", "toolace-8b")
add(python_calls.GEMMA_3, "gemma-3-pythonic")
add(python_calls.LLAMA_4_PYTHONIC)
add(python_calls.OLMO_3, "olmo-3-think")
add(python_calls.SMOLLM_3)
add(python_calls.LFM2, "lfm2.5", "lfm2-thinking")
add(python_calls.SARASHINA, "sarashina-2.2")

add(speech.GLM_4_VOICE, "glm-4-voice-9b")
add(speech.VITA_AUDIO, "vita-audio-boost", "vita-audio-balance", "vita-audio-plus-boost", "vita-audio-plus-vanilla")
add(speech.COVO_AUDIO, "covo-audio-chat")
add(speech.BAICHUAN_AUDIO, "baichuan-audio-instruct", "baichuan-omni-1d5")
add(speech.AUDEX, "nemotron-labs-audex")
add(speech.AUDEX_TTA)
add(speech.MIMO_AUDIO, "mimo-audio-7b-instruct")
add(speech.LFM2_AUDIO, "lfm2.5-audio")

add(headed.HARMONY, "gpt-oss", "openai", "openai-gptoss")
add(headed.BEAM)
add(headed.MUSE, "muse-glimmer", "muse-spark", "glimmer")
add(headed.INKLING)
add(headed.SOLAR_OPEN, "solar-open-100b")
add(headed.HYPERCLOVA_X, "hyperclovax", "hyperclovax-seed-think", "hyperclovax-seed-think-14b", "hcx")
add(headed.FUNCTIONARY_32)
add(headed.KIMI_K3)

__all__ = ["add", "all_formats", "compose", "find", "resolve"]
