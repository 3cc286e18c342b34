"""Beside the renderers of `tinker-cookbook` 0.5.8: the same ids, or a decision why not.

As with `renderers` (`test_peers.py`), the vendor's template decides, and each difference is written down here.
The renderers there of Qwen 3.8, DeepSeek V4.1, GLM 5.3 and Kimi K2.5 are for models whose templates are in no
package that we have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.templates import ChatTemplate

from ..support import real_tokenizers
from .cases import format_of, source, tokens_of
from .environments import answers, python_with
from .test_peers import CASES, DEEPSEEK, MORE_TOKENS, WITH_TOOLS

pytestmark = pytest.mark.slow
PACKAGE = "tinker-cookbook==0.5.8"
NEEDS = ("tinker==0.36.0", "tml-renderers==0.2.1", "transformers==5.2.0", "chz", "pillow", "pydantic", "numpy")


@dataclass(frozen=True)
class Model:
    """A model that both know."""

    template: str
    bos: str = ""
    eos: str = "<|im_end|>"
    restored: tuple[str, str] = ("", "")
    """What the copy of the template that we have changed, and what the vendor's own writes there."""

    @property
    def source(self) -> str:
        changed, own = self.restored
        return source(self.template).replace(changed, own) if changed else source(self.template)


MODELS = {
    "qwen3": Model("Qwen-Qwen3-0.6B"),
    "llama3": Model("npm: llama3", "<|begin_of_text|>", "<|eot_id|>"),
    # llama.cpp's copy closes a reasoning that it opens; DeepSeek's model card, and vLLM's copy, have `</think>` alone.
    "deepseekv3": Model("deepseek-ai-DeepSeek-V3.1", *DEEPSEEK, ("'<think></think>'", "'</think>'")),
    "kimi_k2": Model("llama.cpp: Kimi-K2-Thinking"),
    "nemotron3": Model("llama.cpp: NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<s>"),
    "gpt_oss_medium_reasoning": Model("openai-gpt-oss-120b", "<|startoftext|>", "<|return|>"),
    "qwen3_5": Model("llama.cpp: Qwen3.5-4B"),
}
NOT_THERE = {("llama3", case) for case in (*WITH_TOOLS, "reasoning")}
"""It has no tools and no reasoning for this model."""
OTHER_IDS = {
    **{
        ("qwen3", case): "it spells `<tool_call>` in the instructions; for Hugging Face it is the token"
        for case in WITH_TOOLS
    },
    **{
        ("deepseekv3", case): "the template has no place for tools: both describe them, each in words of its own"
        for case in WITH_TOOLS
    },
    **{
        (
            "kimi_k2",
            case,
        ): "it sorts the keys of the tools and leaves out spaces; the template writes them with `tojson`"
        for case in WITH_TOOLS
    },
    **{
        (
            "gpt_oss_medium_reasoning",
            case,
        ): "it writes a second system message about the tools; in the template that is a part of the first"
        for case in WITH_TOOLS
    },
    (
        "gpt_oss_medium_reasoning",
        "reasoning",
    ): "it keeps the analysis of an earlier turn, which the template leaves out",
    **{
        ("qwen3_5", case): "it lists the functions alone; the template writes each tool as it was given"
        for case in WITH_TOOLS
    },
}
"""Where the ids differ, and why ours are right."""
OTHER_EXTENSIONS = {
    "kimi_k2": "it counts on reasoning before calls; ours writes the calls of this template as content, without any",
}
"""Where one says that a template goes on from every turn and the other does not."""
_SPELLED = re.compile(r"</?(?!think|tool_call)[a-z_:]+>")
"""Tags that are text, not tokens, in the vocabularies of these models."""


@cache
def vocabulary() -> Any:
    tokens = [text for model in MODELS.values() for text in (*tokens_of(model.template), model.bos, model.eos)]
    return real_tokenizers.qwen3_with(
        *dict.fromkeys(text for text in [*tokens, *MORE_TOKENS] if text and not _SPELLED.fullmatch(text))
    )


@pytest.mark.parametrize("name", MODELS)
def test_prompts_are_the_same(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    template = ChatTemplate(model.source, bos_token=model.bos, eos_token=model.eos, name=model.template)
    made = unbraid.renderer(template, vocabulary(), format_of(model.template))
    jobs = [
        {"renderer": name, "messages": messages, "tools": tools, "bos": model.bos, "eos": model.eos}
        for messages, tools in CASES.values()
    ]
    found = answers(python_with(*NEEDS, alone=PACKAGE), "peer_tinker.py", vocabulary(), jobs, tmp_path)
    for (case, (messages, tools)), theirs in zip(CASES.items(), found, strict=True):
        assert ("error" in theirs) == ((name, case) in NOT_THERE), (case, theirs)
        if "error" not in theirs:
            same = list(made.render(messages, tools).ids) == theirs["ids"]
            assert same != ((name, case) in OTHER_IDS), case
            assert (made.is_prefix_stable == theirs["extends"]) != (name in OTHER_EXTENSIONS)
