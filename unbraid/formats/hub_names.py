"""The names that models have on the Hugging Face hub, by the format that they write.

A name stands for its family: the organisation, the size, the date, the quantisation and words such as `Instruct` say
nothing about the format (`family_names`). So `unsloth/Qwen3-0.6B-GGUF` is `Qwen/Qwen3-8B`. A name that is not here, and
is no other name of a format, is not guessed: near names often write calls in another way.
"""

from __future__ import annotations

import re

HUB_NAMES: dict[str, tuple[str, ...]] = {
    "hermes": (
        "NousResearch/Hermes-2-Pro-Llama-3-8B",
        "NousResearch/Hermes-2-Pro-Mistral-7B",
        "NousResearch/Hermes-3-Llama-3.1-8B",
        "NousResearch/Hermes-3-Llama-3.2-3B",
    ),
    "qwen2.5": ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"),
    "qwen2.5-coder": ("Qwen/Qwen2.5-Coder-7B-Instruct",),
    "qwen3": (
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Qwen/Qwen3-VL-8B-Instruct",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3-Omni-30B-A3B-Instruct",
    ),
    "qwen3-thinking": (
        "Qwen/QwQ-32B",
        "Qwen/Qwen3-4B-Thinking-2507",
        "Qwen/Qwen3-VL-8B-Thinking",
        "Qwen/Qwen3-Next-80B-A3B-Thinking",
    ),
    "qwen3-coder": ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-Coder-Next"),
    "llama-3": (
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
    ),
    "llama-4-pythonic": (
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    ),
    "deepseek-r1": (
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    ),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324"),
    "deepseek-v3.1": (
        "deepseek-ai/DeepSeek-V3.1",
        "deepseek-ai/DeepSeek-V3.1-Terminus",
        "deepseek-ai/DeepSeek-V3.2-Exp",
    ),
    "deepseek-v3.2": ("deepseek-ai/DeepSeek-V3.2",),
    "deepseek-v4": ("deepseek-ai/DeepSeek-V4",),
    "harmony": ("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    "mistral-v3": (
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Mistral-Nemo-Instruct-2407",
        "mistralai/Ministral-8B-Instruct-2410",
        "mistralai/Mistral-Large-Instruct-2411",
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    ),
    "mistral-v11": ("mistralai/Mistral-Small-3.2-24B-Instruct-2506",),
    "mistral-v13": ("mistralai/Magistral-Small-2507", "mistralai/Devstral-Small-2507"),
    "granite-3": (
        "ibm-granite/granite-3.1-8b-instruct",
        "ibm-granite/granite-3.2-8b-instruct",
        "ibm-granite/granite-3.3-8b-instruct",
    ),
    "granite-4": (
        "ibm-granite/granite-4.0-1b",
        "ibm-granite/granite-4.0-h-1b",
        "ibm-granite/granite-4.0-micro",
        "ibm-granite/granite-4.0-h-micro",
        "ibm-granite/granite-4.0-h-tiny",
        "ibm-granite/granite-4.0-h-small",
    ),
    "granite-20b-fc": ("ibm-granite/granite-20b-functioncalling",),
    "glm-4.5": ("zai-org/GLM-4.5", "zai-org/GLM-4.5-Air", "zai-org/GLM-4.5V", "zai-org/GLM-4.6", "zai-org/GLM-4.6V"),
    "glm-4.7": ("zai-org/GLM-4.7", "zai-org/GLM-4.7-Flash", "zai-org/GLM-5"),
    "kimi-k2": ("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.5"),
    "kimi-k3": ("moonshotai/Kimi-K3",),
    "kimi-vl": ("moonshotai/Kimi-VL-A3B-Thinking",),
    "minimax-m1": ("MiniMaxAI/MiniMax-M1-80k",),
    "minimax-m2": ("MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1", "MiniMaxAI/MiniMax-M2.5"),
    "minimax-m3": ("MiniMaxAI/MiniMax-M3",),
    "seed-oss": ("ByteDance-Seed/Seed-OSS-36B-Instruct",),
    "olmo-3": (
        "allenai/Olmo-3-7B-Instruct",
        "allenai/Olmo-3-7B-Think",
        "allenai/Olmo-3.1-32B-Instruct",
        "allenai/Olmo-3.1-32B-Think",
    ),
    "smollm-3": ("HuggingFaceTB/SmolLM3-3B",),
    "lfm2": (
        "LiquidAI/LFM2-1.2B",
        "LiquidAI/LFM2-1.2B-Tool",
        "LiquidAI/LFM2-8B-A1B",
        "LiquidAI/LFM2.5-1.2B-Instruct",
    ),
    "phi-4-mini": ("microsoft/Phi-4-mini-instruct",),
    "command-r": ("CohereLabs/c4ai-command-r-plus", "CohereLabs/c4ai-command-r-v01"),
    "cohere-command-3": (
        "CohereLabs/c4ai-command-r7b-12-2024",
        "CohereLabs/c4ai-command-a-03-2025",
        "CohereLabs/command-a-reasoning-08-2025",
    ),
    "nemotron-nano-v2": ("nvidia/NVIDIA-Nemotron-Nano-9B-v2",),
    "nemotron-3": ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",),
    "ernie-4.5": ("baidu/ERNIE-4.5-21B-A3B-Thinking",),
    "jamba": ("ai21labs/AI21-Jamba-1.5-Mini", "ai21labs/AI21-Jamba-Mini-1.7"),
    "hunyuan-a13b": ("tencent/Hunyuan-A13B-Instruct", "tencent/Hunyuan-7B-Instruct"),
    "apriel": ("ServiceNow-AI/Apriel-1.5-15b-Thinker",),
    "apriel-1.6": ("ServiceNow-AI/Apriel-1.6-15b-Thinker",),
    "exaone-4": ("LGAI-EXAONE/EXAONE-4.0-32B", "LGAI-EXAONE/EXAONE-4.5-33B", "LGAI-EXAONE/K-EXAONE-236B-A23B"),
    "internlm": ("internlm/internlm2_5-7b-chat", "internlm/internlm3-8b-instruct"),
    "apertus": ("swiss-ai/Apertus-8B-Instruct-2509",),
    "xlam": ("Salesforce/xLAM-2-8b-fc-r", "Salesforce/Llama-xLAM-2-8b-fc-r"),
    "firefunction-v2": ("fireworks-ai/llama-3-firefunction-v2",),
    "functionary-v3.1": ("meetkai/functionary-small-v3.1", "meetkai/functionary-medium-v3.1"),
    "functionary-v3.2": ("meetkai/functionary-small-v3.2", "meetkai/functionary-medium-v3.2"),
    "gemma-3": ("google/gemma-3-27b-it",),
    "gemma-4": ("google/gemma-4-31B-it",),
    "functiongemma": ("google/functiongemma-270m-it",),
    "gigachat-3": ("ai-sage/GigaChat3-10B-A1.8B",),
    "longcat": ("meituan-longcat/LongCat-Flash-Chat",),
    "poolside-v1": ("poolside/Laguna-XS.2", "poolside/Laguna-XS-2.1"),
    "pythonic": ("Team-ACE/ToolACE-8B",),
    "step-3": ("stepfun-ai/step3",),
    "step-3.5": ("stepfun-ai/Step-3.5-Flash",),
    "step-audio-2": ("stepfun-ai/Step-Audio-2-mini",),
    "glm-4-voice": ("zai-org/glm-4-voice-9b",),
    "lfm2-audio": ("LiquidAI/LFM2-Audio-1.5B",),
    "whisper": ("openai/whisper-base", "openai/whisper-large-v3", "openai/whisper-large-v3-turbo"),
}
"""Each name is an example of its family. The organisation is the one that trained the model."""
ENGINES_NAMES = frozenset(("phi4",))
"""Names that engines give to parsers, and that models of other formats have: `microsoft/phi-4` writes no calls."""

_SIZES = r"\d+(\.\d+)?[bm]|a\d+(\.\d+)?b|\d+e"
_WORDS = (
    r"\d{4}|\d\dk"  # dates, and lengths of reasoning
    r"|fp8|bf16|fp16|f16|int[48]|[48]bit|mxfp4|nvfp4|awq|gptq|gguf|mlx|bnb|exl[23]|(quantized\.)?w\d+a\d+|dynamic"
    r"|i1|i?q\d\w*|ud|k|s|m|xl"  # quantisation
    r"|instruct|chat|it|hf|latest"  # what it was trained for
)


def family_names(name: str) -> list[str]:
    """What a model's name on the hub may be known by: without its organisation and what says nothing about its format,
    first with its size, which is a name in some families, then without."""
    words = re.split(r"[-_\s:]+", name.rpartition("/")[2].lower())
    patterns = (_WORDS, f"{_SIZES}|{_WORDS}")
    return ["-".join(word for word in words if not re.fullmatch(pattern, word)) for pattern in patterns]


def is_size(tag: str) -> bool:
    """Whether a tag of Ollama's (`8b`, `latest`, `8b-q4_K_M`) says nothing about the format."""
    return bool(tag) and not family_names(tag)[-1]
