"""vLLM's server as far as it parses, and what a client is told. Without vLLM, a test that imports this is skipped."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from unbraid import Format, Message

from ...support import real_tokenizers, strategies
from .cases import (
    decode,
    encode,
    qwen3,
    tokenizer_for,
)

CommonTokenizer = pytest.importorskip("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
vllm = partial(pytest.importorskip, reason="vLLM is not installed here: make test-engines")
ChatCompletionRequest = vllm("vllm.entrypoints.openai.chat_completion.protocol").ChatCompletionRequest
ResponsesRequest = vllm("vllm.entrypoints.openai.responses.protocol").ResponsesRequest
ParserManager = vllm("vllm.parser").ParserManager
DelegatingParser = vllm("vllm.parser.abstract_parser").DelegatingParser
HarmonyParser = vllm("vllm.parser.harmony").HarmonyParser
VLLMValidationError = vllm("vllm.exceptions").VLLMValidationError
ReasoningParserManager = vllm("vllm.reasoning").ReasoningParserManager
ToolParserManager = vllm("vllm.tool_parsers").ToolParserManager
MistralTokenizer = vllm("vllm.tokenizers.mistral").MistralTokenizer
get_cached_tokenizer = vllm("vllm.tokenizers.hf").get_cached_tokenizer
importlib.import_module("unbraid.plugins.vllm").register()
CombinedParser = importlib.import_module("unbraid.plugins.vllm.combined_parser").CombinedParser

STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"parameters": {"type": "object"}, **tool}} for tool in strategies.TOOLS]
WEATHER = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": STRICT}}
NEUTRAL = "\n"
"""A prompt that says nothing. Without any ids, vLLM does not know the prompt."""
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@dataclass
class Said:
    """What a client is told."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)

    def add(self, delta: Any) -> None:
        if delta is None:
            return
        self.reasoning += delta.reasoning or ""
        self.content += delta.content or ""
        for call in delta.tool_calls:
            if call.id is not None:
                assert call.index == len(self.calls)
                assert call.type == "function"
                self.calls.append((call.function.name, ""))
            else:
                assert call.function.name is None
                assert call.index == len(self.calls) - 1
            name, arguments = self.calls[call.index]
            self.calls[call.index] = (name, arguments + (call.function.arguments or ""))

    @classmethod
    def whole(cls, message: Message) -> Said:
        """A reply that is not streamed: whitespace beside calls is nothing."""
        said = cls.of(message)
        return cls(said.reasoning, "" if said.calls and not said.content.strip() else said.content, said.calls)

    @classmethod
    def of(cls, message: Message) -> Said:
        return cls(message.reasoning, message.content, [(call.name, call.arguments) for call in message.tool_calls])


@dataclass
class Server:
    """vLLM's server, as far as it parses."""

    tool_parser: str | None
    reasoning_parser: str | None
    tokenizer: Any

    @property
    def parser(self) -> Any:
        return composed(self.tool_parser, self.reasoning_parser, self.tokenizer)

    def adjusted(self, request: Any) -> Any:
        return self.parser(self.tokenizer, request.tools).adjust_request(request)

    def streamed(
        self, deltas: Sequence[Sequence[int]], request: Any | None = None, prompt: str = "", last: str | None = None
    ) -> Said:
        request = self.adjusted(request or chat())
        parser, said = self.parser(self.tokenizer, request.tools), Said()
        start = encode(self.tokenizer, prompt or NEUTRAL)
        for at, ids in enumerate(deltas):
            finished = last is None and at == len(deltas) - 1
            said.add(parser.parse_delta(decode(self.tokenizer, ids), list(ids), request, start, finished=finished))
        if last is not None:
            said.add(parser.parse_delta(last, [], request, start, finished=True))
        return said

    def whole(self, ids: Sequence[int], request: Any | None = None, prompt: str = "") -> Said:
        request = self.adjusted(request or chat())
        parser = self.parser(self.tokenizer, request.tools)
        parser.set_prompt_token_ids(encode(self.tokenizer, prompt or NEUTRAL))
        reasoning, content, calls = parser.parse(decode(self.tokenizer, ids), request, True, tuple(ids))
        return Said(reasoning or "", content or "", [(call.name, call.arguments) for call in calls or ()])

    def said(self, pieces: Sequence[str], request: Any | None = None, prompt: str = "") -> Said:
        """Streamed in these pieces, and whole, which is the same."""
        deltas = [encode(self.tokenizer, piece) for piece in pieces]
        streamed = self.streamed(deltas, request, prompt)
        assert streamed == self.whole([token for ids in deltas for token in ids], request, prompt)
        return streamed


@cache
def composed(tool_parser: str | None, reasoning_parser: str | None, tokenizer: Any) -> Any:
    return ParserManager.get_parser(
        tool_parser_name=tool_parser,
        reasoning_parser_name=reasoning_parser,
        enable_auto_tools=True,
        tokenizer=get_cached_tokenizer(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer,
    )


def chat(**fields: Any) -> Any:
    given = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, **fields}
    return ChatCompletionRequest.model_validate(given)


def server_for(format: Format) -> Server:
    name = f"unbraid-{format.name}"
    return Server(name if format.tools else None, name if format.reasoning else None, tokenizer_for(format))


def hermes(tokenizer: Any = None) -> Server:
    return Server("unbraid-hermes", None, tokenizer or qwen3())


def qwen() -> Server:
    return Server("unbraid-qwen3", "unbraid-qwen3", qwen3())


def speaks(text: str, format: Format) -> bool:
    """Whether markup of speech is in the text, or a part of it: vLLM has no field for speech, so it stays there."""
    if (speech := format.speech) is None:
        return False
    marks = (speech.open, speech.close, speech.code.partition("{")[0], *speech.around, *speech.padding)
    return any(mark and mark in text for mark in marks)


@cache
def mistral(version: int) -> Any:
    """vLLM's tokenizer for Mistral, from a file such as these models come with."""
    held: Any = real_tokenizers.mistral(version, tekken=True).instruct_tokenizer.tokenizer
    special = [
        {"rank": token, "token_str": held.id_to_piece(token), "is_control": True}
        for token in range(held.num_special_tokens)
    ]
    data = json.loads((CommonTokenizer._data_path() / "tekken_240718.json").read_text(encoding="utf-8"))
    data["config"]["version"] = f"v{version}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tekken.json").write_text(json.dumps({**data, "special_tokens": special}), encoding="utf-8")
        return MistralTokenizer.from_pretrained(folder)


def reasoning_parser(name: str, tokenizer: Any) -> Any:
    # As the engine makes it.
    return ReasoningParserManager.get_reasoning_parser(name)(tokenizer=tokenizer, chat_template_kwargs={})
