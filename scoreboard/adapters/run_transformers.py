"""transformers' response parser, with the templates of `transformers serve` and as it calls it. Run by an interpreter
that has transformers."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast
from transformers.cli.serving import utils as serving

from . import worker

MODELS = {
    "qwen2.5": "qwen2",
    "qwen3": "qwen3",
    "qwen3-thinking": "qwen3",
    "qwen3.5": "qwen3_5",
    "gemma-4": "gemma4",
}
"""The model type of each format that serve has a template for; checkpoints may bring one of their own."""


class _Config:
    def __init__(self, model_type: str) -> None:
        self.model_type = model_type


class _Model:
    def __init__(self, format: str) -> None:
        self.config = _Config(MODELS[format])


class TransformersStream(worker.Folded):
    def __init__(self, parser: Any, job: worker.Job) -> None:
        super().__init__()
        self.parser, self.job = parser, job
        self._take(parser.initial_events)

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        self._take(self.parser.feed(text + (self.job["end_text"] if last else "")))
        if last:
            with contextlib.suppress(ValueError, RuntimeError):  # as its streamer does
                self._take(self.parser.finalize()[1])

    def _take(self, events: list[dict[str, Any]]) -> None:
        for item in serving.response_events_to_chunks(events):
            if isinstance(item, serving.ToolCall):
                self.call(len(self.calls), item.name, item.arguments)
            elif isinstance(item, serving.ReasoningText):
                self.reasoning += item
            else:
                self.content += item


class Transformers:
    def claims(self) -> dict[str, bool]:
        return dict.fromkeys(MODELS, True)

    def open(self, job: worker.Job) -> TransformersStream:
        tokenizer, model = _tokenizer(job["tokenizer"]), _Model(job["format"])
        return TransformersStream(serving.build_response_parser(tokenizer, model, job["prompt_ids"]), job)

    def whole(self, job: worker.Job) -> worker.Fields:
        tokenizer, model = _tokenizer(job["tokenizer"]), _Model(job["format"])
        ids = [*job["ids"], *([] if job["end"] is None else [job["end"]])]
        content, reasoning, calls = serving.parse_assistant_message(tokenizer, model, ids, job["prompt_ids"])
        return worker.fields(content, reasoning, ((call.name, call.arguments, None) for call in calls or ()))


@cache
def _tokenizer(path: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_file=path)


if __name__ == "__main__":
    worker.serve(Transformers(), "transformers")
