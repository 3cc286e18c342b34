"""Grammars as data, one small file a model family. To add one: CONTRIBUTING.md."""

from __future__ import annotations

from .hermes import HERMES, QWEN_2_5, QWEN_3, QWEN_3_THINKING
from .lfm2 import LFM2
from .mistral import MISTRAL, MISTRAL_V3, MISTRAL_V11, MISTRAL_V13
from .qwen_coder import QWEN_3_CODER
from .registry import all_formats, compose, find, register
from .step_audio import STEP_AUDIO_2
from .think import DEEPSEEK_R1, THINK
from .whisper import WHISPER

register(STEP_AUDIO_2, "step-audio2", "stepaudio2", "step-audio-2-mini", "step-audio-2-tts-ta4")
register(MISTRAL)
register(MISTRAL_V3, "mistral-v1", "mistral-v2", "mistral-v7", "mistral-nemo")
register(MISTRAL_V11, "mistral-small-3.2")
register(MISTRAL_V13, "magistral", "devstral")
register(HERMES, "hermes-2-pro", "hermes-3", "nous-hermes")
register(QWEN_2_5, "qwen", "qwen25", "qwen2", "qwen-2.5")
register(QWEN_3, "qwen-3")
register(QWEN_3_THINKING, "qwq", "qwen3-2507-thinking")
register(QWEN_3_CODER, "qwen3-xml", "qwen3-coder-xml", "qwen-3-coder")
register(LFM2, "lfm-2", "lfm2.5")
register(DEEPSEEK_R1, "deepseekr1", "r1")
register(THINK)
register(WHISPER)

__all__ = ["all_formats", "compose", "find", "register"]
