"""What a delta costs inside the interfaces of vLLM and SGLang: their own parsers, ours in their place, and the library.

    .venv-vllm/bin/python bench/plugins.py            # make test-engines makes that environment

Each row is one stream of one call, in deltas of one token, given to the parser as the engine's server does it. The
three take turns, and the best of several passes counts, so that what else the machine does falls out. "above" is what
the interface adds to the library's own cost: messages for the engine, and what the engine asks for beside the text.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import unbraid  # noqa: E402
from unbraid import Message, Text, ToolCall  # noqa: E402

FORMATS = (
    ("hermes", "hermes"),
    ("qwen3_coder", "qwen3_coder"),
    ("kimi_k2", "kimi_k2"),
    ("deepseek_v32", "deepseekv32"),
)
"""The names in vLLM and in SGLang."""
SIZES = (1_000, 16_000)
PASSES = 5
TOOL = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        },
    },
}
WORDS = "the quick brown fox jumps over the lazy dog, and then it sleeps. "

Pass = Callable[[], float]
"""One pass over the stream: seconds."""


def text_of(name: str, size: int) -> str:
    content = (WORDS * (size // len(WORDS) + 1))[:size]
    arguments = json.dumps({"path": "a.txt", "content": content})
    return unbraid.render(name, Message((Text("content", "One moment. "), ToolCall("write", arguments, ""))))


def tokenizer() -> Any:
    """Qwen3's, as vLLM has it."""
    from transformers import PreTrainedTokenizerFast
    from vllm.tokenizers.hf import get_cached_tokenizer

    sys.path.insert(0, str(ROOT / "bench"))
    peers = importlib.import_module("peers")
    return get_cached_tokenizer(PreTrainedTokenizerFast(tokenizer_file=str(peers.tokenizer())))


def library(name: str, deltas: Sequence[str]) -> Pass:
    def run() -> float:
        feed = unbraid.Parser(name, tools=[TOOL], keep_message=False).feed
        began = time.perf_counter()
        for delta in deltas:
            feed(delta)
        return time.perf_counter() - began

    return run


def library_by_ids(name: str, ids: Sequence[int], made: Any) -> Pass:
    def run() -> float:
        feed = unbraid.Parser(name, tools=[TOOL], tokenizer=made, keep_message=False).feed_tokens
        began = time.perf_counter()
        for token in ids:
            feed((token,))
        return time.perf_counter() - began

    return run


def in_vllm(name: str, deltas: Sequence[str], ids: Sequence[int], made: Any) -> Pass:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    parser = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True, tokenizer=made)
    asked = {"messages": [{"role": "user", "content": "?"}], "model": "m", "tools": [TOOL]}
    request = ChatCompletionRequest.model_validate(asked)
    prompt = made.encode("<|im_start|>assistant\n", add_special_tokens=False)

    def run() -> float:
        parse = parser(made, request.tools).parse_delta
        began = time.perf_counter()
        for delta, token in zip(deltas, ids, strict=True):
            parse(delta, [token], request, prompt, finished=False)
        return time.perf_counter() - began

    return run


def in_sglang(name: str, deltas: Sequence[str]) -> Pass:
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    tools = [Tool.model_validate(TOOL)]

    def run() -> float:
        parse = FunctionCallParser(tools, name).parse_stream_chunk
        began = time.perf_counter()
        for delta in deltas:
            parse(delta)
        return time.perf_counter() - began

    return run


def best(passes: Sequence[Pass], count: int) -> list[float]:
    """Microseconds a delta for each, the best of several passes in turns."""
    found = [min(times) for times in zip(*([one() for one in passes] for _ in range(PASSES)), strict=True)]
    return [seconds / count * 1e6 for seconds in found]


def main() -> None:
    logging.disable(logging.CRITICAL)
    importlib.import_module("unbraid.plugins.vllm").register()
    importlib.import_module("unbraid.plugins.sglang").install()
    made = tokenizer()
    print("microseconds a delta")
    print(f"{'engine':8}{'format':14}{'size':>7}{'theirs':>10}{'ours':>8}{'library':>9}{'above':>8}{'times':>7}")
    for size in SIZES:
        for vllm_name, sglang_name in FORMATS:
            text = text_of(vllm_name, size)
            ids = made.encode(text, add_special_tokens=False)
            deltas = [made.decode([token]) for token in ids]
            rows = {
                "vLLM": (
                    in_vllm(vllm_name, deltas, ids, made),
                    in_vllm(f"unbraid-{vllm_name}", deltas, ids, made),
                    library_by_ids(vllm_name, ids, made),
                ),
                "SGLang": (
                    in_sglang(sglang_name, deltas),
                    in_sglang(f"unbraid-{sglang_name}", deltas),
                    library(vllm_name, deltas),
                ),
            }
            for engine, passes in rows.items():
                theirs, ours, own = best(passes, len(ids))
                print(
                    f"{engine:8}{vllm_name:14}{size:7}{theirs:10.1f}{ours:8.1f}{own:9.1f}{ours - own:8.1f}"
                    f"{theirs / ours:7.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
