"""The parsers of Prime Intellect's `renderers`, from token ids, as its client calls them. Run by an interpreter that
has renderers and transformers."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from renderers import base, configs  # type: ignore[import-not-found]
from transformers import PreTrainedTokenizerFast

from . import worker

RENDERERS = {
    "deepseek-r1": "deepseek-r1",
    "deepseek-v3": "deepseek-v3",
    "deepseek-v4": "deepseek-v4",
    "gemma-4": "gemma4",
    "glm-4.5": "glm-4.5",
    "glm-4.7": "glm-5",
    "harmony": "gpt-oss",
    "inkling": "inkling",
    "kimi-k2": "kimi-k2",
    "llama-3": "llama-3",
    "minimax-m2": "minimax-m2",
    "nemotron-3": "nemotron-3",
    "poolside-v1": "laguna-xs.2",
    "qwen3": "qwen3",
    "qwen3-thinking": "qwen3",
    "qwen3.5": "qwen3.5",
}
"""By the names of its registry. Not hy3: its markers have a suffix that the format of this corpus has not."""


class Renderers(worker.NotStreamed):
    def claims(self) -> dict[str, bool]:
        return {format: name not in ("deepseek-v3", "llama-3") for format, name in RENDERERS.items()}

    def whole(self, job: worker.Job) -> worker.Fields:
        renderer, tokenizer = _renderer(RENDERERS[job["format"]], job["tokenizer"], job["thinking"])
        ids = [*job["ids"], *([] if job["end"] is None else [job["end"]])]
        reply = renderer.parse_response(ids, tools=job["tools"], prompt_ids=tokenizer.encode(job["prompt"]))
        calls = [one for one in reply.tool_calls if one.status == base.ToolCallParseStatus.OK]
        return worker.fields(reply.content, reply.reasoning_content, ((one.name, one.arguments, None) for one in calls))


@cache
def _renderer(name: str, path: str, thinking: bool) -> tuple[Any, Any]:
    kinds = {
        kind.model_fields["name"].default: kind
        for kind in vars(configs).values()
        if isinstance(kind, type) and hasattr(kind, "model_fields") and "name" in kind.model_fields
    }
    kind = kinds[name]
    options = {"enable_thinking": thinking} if "enable_thinking" in kind.model_fields else {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path)
    tokenizer.name_or_path = "scoreboard"
    create = partial(base.create_renderer, tokenizer, kind(**options))
    return worker.with_tokens(create, tokenizer.add_tokens), tokenizer


if __name__ == "__main__":
    worker.serve(Renderers(), "renderers")
