"""What a delta costs inside the interfaces of vLLM and SGLang: their own parsers, ours in their place, and the library.

    .venv-vllm/bin/python bench/plugins.py            # make test-engines makes that environment
    .venv-vllm/bin/python bench/plugins.py 20 40 1000 # of these sizes only

Each row is one response in deltas of one token, given to the parser as the engine's server does it: vLLM's with text
and ids, and with its metrics on, as they are in a server that has a tool parser; SGLang's with text. The time of the
whole response counts, divided by its deltas: to make its parser, which every response has for itself, and each delta
to the end. It is the processor's time, the three take turns, and the best of several passes counts, so that what else
the machine does falls out. "above" is what the interface adds to the library's own cost: messages for the engine, and
what the engine asks for beside the text. † marks a response that was given up after `LIMIT_S`: the cost of a delta was
still growing.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    ("glm45", "glm45"),
    ("minimax_m2", "minimax-m2"),
    ("step3p5", "step3p5"),
    ("mistral", "mistral"),
    ("llama3_json", "llama3"),
    ("openai", "gpt-oss"),
    ("gemma4", "gemma4"),
)
"""The names in vLLM and in SGLang."""
TOKENS = {
    "kimi_k2": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
        "<|tool_call_argument_begin|>",
    ),
    "deepseek_v32": ("｜DSML｜",),
    "glm45": ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "llama3_json": ("<|python_tag|>",),
    "openai": ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>", "<|return|>"),
    "gemma4": ("<|tool_call>", "<tool_call|>", "<|tool_response>", '<|"|>', "<|channel>", "<channel|>"),
}
"""Markers that are tokens of the model, and are added to the tokenizer. Without them they would come in pieces, which
no model writes and not every parser reads."""
ALONE = ("llama3_json",)
"""Where the engine's own parser takes no call after text."""
SIZES = (20, 40, 1_000, 16_000)
BUDGET_S = 0.5
"""For the passes of one parser over one stream."""
PASSES = 30
LIMIT_S = 3.0
CHUNK = 256
"""Deltas between two looks at the clock."""
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
PROMPT = "<|im_start|>assistant\n"
END = "<|im_end|>"

Feed = Callable[[str, int, bool], object]
"""Takes a delta: its text, its id, and whether it is the last."""


@dataclass(frozen=True)
class Stream:
    """A response, and who parses it."""

    name: str
    size: int
    tools: tuple[str, str]
    """The tool parsers of vLLM and of SGLang."""
    reasoning: tuple[str, str] | None
    format: str
    """The format that says the same."""
    message: Message

    @property
    def text(self) -> str:
        return unbraid.render(self.format, self.message)


def words(size: int) -> str:
    return (WORDS * (size // len(WORDS) + 1))[:size]


def call_of(size: int, format: str) -> Message:
    call = ToolCall("write", json.dumps({"path": "a.txt", "content": words(size)}), "")
    return Message((call,) if format in ALONE else (Text("content", "One moment. "), call))


def deltas_of(text: str, made: Any) -> list[tuple[str, int]]:
    return [(made.decode([token]), token) for token in made.encode(text, add_special_tokens=False)]


def streams(sizes: Sequence[int]) -> Iterator[Stream]:
    for size in sizes:
        text = Text("content", words(size))
        yield Stream("content", size, ("hermes", "hermes"), None, "hermes", Message((text,)))
        thought = Message((Text("reasoning", words(size)), Text("content", "Done.")))
        yield Stream("reasoning", size, ("hermes", "hermes"), ("qwen3", "qwen3"), "qwen3", thought)
        for vllm_name, sglang_name in FORMATS:
            yield Stream(vllm_name, size, (vllm_name, sglang_name), None, vllm_name, call_of(size, vllm_name))


@dataclass(frozen=True)
class Took:
    """Microseconds a delta."""

    time: float
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.time:.1f}{'' if self.whole else ' †'}"


def tokenizer(format: str) -> Any:
    """Qwen3's with the tokens of the format, as vLLM has it."""
    from transformers import PreTrainedTokenizerFast
    from vllm.tokenizers.hf import get_cached_tokenizer

    sys.path.insert(0, str(ROOT / "bench"))
    peers = importlib.import_module("peers")
    made = PreTrainedTokenizerFast(tokenizer_file=str(peers.tokenizer()), eos_token=END)
    made.add_tokens(list(TOKENS.get(format, ())))
    return get_cached_tokenizer(made)


def library(name: str) -> Callable[[], Feed]:
    def begin() -> Feed:
        parser = unbraid.Parser(name, tools=[TOOL], keep_message=False)
        feed = parser.feed

        def take(text: str, token: int, last: bool) -> object:
            return [*feed(text), *parser.finish()] if last else feed(text)

        return take

    return begin


def library_by_ids(name: str, made: Any) -> Callable[[], Feed]:
    def begin() -> Feed:
        parser = unbraid.Parser(name, tools=[TOOL], tokenizer=made, keep_message=False)
        feed = parser.feed_tokens

        def take(text: str, token: int, last: bool) -> object:
            return [*feed([token]), *parser.finish()] if last else feed([token])

        return take

    return begin


def in_vllm(tools: str, reasoning: str | None, made: Any) -> Callable[[], Feed]:
    """As `OpenAIServingChat` does it."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    kind = ParserManager.get_parser(
        tool_parser_name=tools, reasoning_parser_name=reasoning, enable_auto_tools=True, tokenizer=made
    )
    asked = {"messages": [{"role": "user", "content": "?"}], "model": "m", "tools": [TOOL], "stream": True}
    request = ChatCompletionRequest.model_validate(asked)
    request = kind(made, request.tools).adjust_request(request)
    prompt = made.encode(PROMPT, add_special_tokens=False)

    def begin() -> Feed:
        parse = kind(made, request.tools).parse_delta

        def take(text: str, token: int, last: bool) -> object:
            return parse(
                delta_text=text, delta_token_ids=[token], request=request, prompt_token_ids=prompt, finished=last
            )

        return take

    return begin


def in_sglang(tools: str, reasoning: str | None) -> Callable[[], Feed]:
    """As `OpenAIServingChat` does it: the reasoning first, and what that leaves to the tool parser."""
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    known = [Tool.model_validate(TOOL)]

    def begin() -> Feed:
        calls = FunctionCallParser(known, tools)
        parse = calls.parse_stream_chunk
        thoughts = None if reasoning is None else ReasoningParser(reasoning, True)
        think = None if thoughts is None else thoughts.parse_stream_chunk

        def take(text: str, token: int, last: bool) -> object:
            if think is not None:
                text = think(text)[1]
            told = parse(text) if text else None
            return (told, calls.parse_stream_end()) if last else told

        return take

    return begin


def run(begin: Callable[[], Feed], deltas: Sequence[tuple[str, int]]) -> Took:
    """One pass."""
    done, spent = 0, 0.0
    began = time.thread_time()
    feed = begin()
    while done < len(deltas) and spent < LIMIT_S:
        for text, token in deltas[done : done + CHUNK]:
            done += 1
            feed(text, token, done == len(deltas))
        spent = time.thread_time() - began
    return Took(spent / done * 1e6, done == len(deltas))


def best(parsers: Sequence[Callable[[], Feed]], deltas: Sequence[tuple[str, int]]) -> list[Took]:
    """The best pass of each. They take turns."""
    found: list[list[Took]] = [[] for _ in parsers]
    spent = [0.0] * len(parsers)
    for _ in range(PASSES):
        for at, begin in enumerate(parsers):
            if spent[at] < BUDGET_S:
                took = run(begin, deltas)
                found[at].append(took)
                spent[at] += took.time * len(deltas) / 1e6
    return [min(each, key=lambda took: took.time) for each in found]


def finds_call(begin: Callable[[], Feed], deltas: Sequence[tuple[str, int]]) -> bool:
    """Whether a parser tells of the call in a short stream: if not, its time says nothing."""
    feed = begin()
    for text, token in deltas:
        try:
            told: Any = feed(text, token, False)
        except NotImplementedError:
            return False
        if told is not None and (told[1] if isinstance(told, tuple) else told.tool_calls):
            return True
    return False


def main() -> None:
    logging.disable(logging.CRITICAL)
    importlib.import_module("unbraid.plugins.vllm").register()
    importlib.import_module("unbraid.plugins.sglang").install()
    importlib.import_module("vllm.parser.metrics").init_parser_metrics(model_name="m")
    print("microseconds a delta")
    print(f"{'engine':8}{'stream':14}{'size':>7}{'theirs':>10}{'ours':>8}{'library':>9}{'above':>8}{'times':>8}")
    for stream in streams([int(size) for size in sys.argv[1:]] or SIZES):
        made = tokenizer(stream.name)
        deltas = deltas_of(stream.text, made)
        for at, engine in enumerate(("vLLM", "SGLang")):
            tools, reasoning = stream.tools[at], stream.reasoning and stream.reasoning[at]
            ours = f"unbraid-{tools}", reasoning and f"unbraid-{reasoning}"
            parsers = (
                [in_vllm(tools, reasoning, made), in_vllm(*ours, made), library_by_ids(stream.format, made)]
                if engine == "vLLM"
                else [in_sglang(tools, reasoning), in_sglang(*ours), library(stream.format)]
            )
            if stream.message.tool_calls:
                short = deltas_of(unbraid.render(stream.format, call_of(50, stream.format)), made)
                sides = zip(("theirs", "ours"), parsers, strict=False)
                blind = [side for side, parser in sides if not finds_call(parser, short)]
                if blind:
                    print(f"{engine:8}{stream.name:14}{stream.size:7} no call is found by {' and '.join(blind)}")
                    continue
            theirs, own, alone = best(parsers, deltas)
            print(
                f"{engine:8}{stream.name:14}{stream.size:7}{theirs!s:>10}{own!s:>8}{alone!s:>9}"
                f"{own.time - alone.time:8.1f}{theirs.time / own.time:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
