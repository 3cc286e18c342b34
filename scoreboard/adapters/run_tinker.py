"""The parsers of tinker-cookbook's renderers, from token ids. Run by an interpreter that has it.

They read finished outputs; an iterator over one shows its text and reasoning as they come and the calls at the end.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache, partial
from types import ModuleType
from typing import Any

from transformers import PreTrainedTokenizerFast

from . import worker

if importlib.util.find_spec("torch") is None:
    # It is for the weights of training examples, and not for parsers.
    _torch = ModuleType("torch")
    _torch.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
    sys.modules["torch"] = _torch

from tinker_cookbook import renderers  # type: ignore[import-not-found]

RENDERERS = {
    "deepseek-v3.1": ("deepseekv3_thinking", "deepseekv3"),
    "deepseek-v4.1": ("deepseekv4_1", "deepseekv4_1_disable_thinking"),
    "glm-4.7": ("glm5_3_max_reasoning", "glm5_3_max_reasoning"),
    "harmony": ("gpt_oss_medium_reasoning", "gpt_oss_medium_reasoning"),
    "kimi-k2": ("kimi_k2", "kimi_k2"),
    "nemotron-3": ("nemotron3", "nemotron3_disable_thinking"),
    "qwen3": ("qwen3", "qwen3_disable_thinking"),
    "qwen3.5": ("qwen3_5", "qwen3_5_disable_thinking"),
}
"""With reasoning, and without it. Not llama3, which has no parser of calls, and not tml_v0, which reads the ids of its
own vocabulary only."""


class Tinker(worker.NotStreamed):
    def claims(self) -> dict[str, bool]:
        return dict.fromkeys(RENDERERS, True)

    def whole(self, job: worker.Job) -> worker.Fields:
        name = RENDERERS[job["format"]][not job["thinking"]]
        renderer = _renderer(name, job["tokenizer"])
        ends = [job["end"]] if job["end"] is not None else renderer.get_stop_sequences()[:1]
        message, _ = renderer.parse_response([*job["ids"], *([] if job["cut_off"] else ends)])
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        thought = "".join(part["thinking"] for part in parts if part["type"] == "thinking")
        calls = [one.function for one in message.get("tool_calls") or ()]
        return worker.fields(text, thought, ((one.name, one.arguments, None) for one in calls))


@cache
def _renderer(name: str, path: str) -> Any:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path)
    create = partial(renderers.get_renderer, name, tokenizer, model_name="scoreboard")
    return worker.with_tokens(create, tokenizer.add_tokens)


if __name__ == "__main__":
    worker.serve(Tinker(), "tinker-cookbook")
