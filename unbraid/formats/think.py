"""Reasoning in `<think>` tags."""

from __future__ import annotations

from ..core.grammar import Between, Format

THINK_TAGS = Between("<think>\n", "\n</think>\n\n")

THINK = Format("think", reasoning=THINK_TAGS, ends=("<|im_end|>", "<|endoftext|>"))

# R1 reasons always: its template opens the reasoning in the prompt, and older ones left that to the model.
DEEPSEEK_R1 = Format("deepseek-r1", reasoning=THINK_TAGS, ends=("<｜end▁of▁sentence｜>",), prompt="<think>\n")
