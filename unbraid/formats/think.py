"""Reasoning in `<think>` tags."""

from __future__ import annotations

from ..core.grammar import Between, Format

THINK_TAGS = Between("<think>\n", "\n</think>\n\n")

THINK = Format("think", reasoning=THINK_TAGS, ends=("<|im_end|>", "<|endoftext|>"))
# Kimi-VL and Kimi's first thinking models.
KIMI_VL = Format("kimi-vl", reasoning=Between("◁think▷", "◁/think▷"), ends=("<|im_end|>",))
