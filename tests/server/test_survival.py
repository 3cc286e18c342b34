"""Streams survive their engine: real processes of llama.cpp are killed in the middle of an output.

The server has two of them as replicas, with a small real model. While one writes, it is killed after so many tokens,
and the other goes on. What the client gets is compared with what it gets undisturbed, at temperature 0.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from unbraid.engines import Finish, Generation, Piece
from unbraid.engines.llama_cpp.server import LlamaCppServerEngine
from unbraid.engines.routing import Routing
from unbraid.models.gguf import Gguf, GgufVocabulary
from unbraid.templates import from_source

from ..constraints.grammar_engines import llama_cpp_tokens
from ..support import patient_http
from ..support.embedded_model import smollm2
from ..support.examples import LONG
from ..support.llama_cpp_process import CONTEXT, LlamaCppProcess
from ..support.running_server import folded, service_of, serving

pytestmark = pytest.mark.system

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 9}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
ASK = {
    "messages": [{"role": "user", "content": "How is the weather in Málaga?"}],
    "temperature": 0,
    "max_tokens": 40,
    "stream": True,
    "stream_options": {"include_usage": True},
}
STRICT = {**ASK, "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
# Short, since a process that was killed has to read all of it again.
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% for tool in tools or [] %}Call {{ tool.function.name }}.
{% endfor %}<|im_start|>assistant
"""
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "strict call": ("llama3-json", STRICT),
    "several choices": ("llama3-json", {**STRICT, "n": 2}),
    "call in tags": ("qwen3", STRICT),
    "optional call": ("qwen3", {**ASK, "tools": [WEATHER], "max_tokens": 16}),
    "answer": ("qwen3", {**ASK, "logprobs": True, "max_tokens": 16, "stop": ["temperature"]}),
    "JSON": ("qwen3", {**ASK, "response_format": {"type": "json_object"}, "max_tokens": 16}),
}


class Watched:
    """The replicas as one engine. When so many tokens of an output have come, the process that writes it is killed."""

    def __init__(self, processes: list[LlamaCppProcess], vocabulary: GgufVocabulary, cut: int | None) -> None:
        self.inner = LlamaCppServerEngine(
            [process.url for process in processes],
            vocabulary=vocabulary,
            model="smollm2",
            context=CONTEXT,
            routing=Routing(check_interval=1e9),
        )
        self.model, self.vocabulary, self.context = "smollm2", vocabulary, CONTEXT
        self.check, self.close = self.inner.check, self.inner.close
        self.replicas = self.inner.replicas
        self.killed: LlamaCppProcess | None = None
        self._processes, self._cut = processes, cut

    @property
    def load(self) -> Any:
        return self.inner.load

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        count = 0
        async with aclosing(self.inner.generate(request)) as outputs:
            async for output in outputs:
                if isinstance(output, Piece):
                    count += len(output.ids)
                if count == self._cut and self.killed is None:
                    [*busy] = [at for at, replica in enumerate(self.replicas) if replica.running]
                    self.killed = self._processes[busy[0]]
                    self.killed.kill()
                yield output


class Fleet:
    """Two processes, and the vocabulary of their model."""

    def __init__(self) -> None:
        self.processes = [LlamaCppProcess(smollm2().gguf) for _ in range(2)]
        self.vocabulary = GgufVocabulary(
            Gguf(smollm2().gguf), lambda text, special: llama_cpp_tokens(text, special=special)
        )
        for process in self.processes:
            process.wait()

    def ask(self, kind: str, cut: int | None = None) -> tuple[dict[int, Any], Any, int]:
        """What a client gets, the counts, and how many outputs went on elsewhere."""
        format, body = REQUESTS[kind]
        engine = Watched(self.processes, self.vocabulary, cut)
        service = service_of(
            engine,
            format,
            tokenizer=self.vocabulary,
            template=from_source(TEMPLATE, {}, "a short template"),
            names=("smollm2",),
            syntax="gbnf",
            constrain_auto=True,
        )
        with serving(service) as server:
            reply = patient_http.post(f"{server.url}/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        chunks = [json.loads(line) for line in lines]
        assert "error" not in chunks[-1], chunks[-1]
        if engine.killed is not None:
            engine.killed.restart()
            engine.killed.wait()
        usage = {name: chunks[-1]["usage"][name] for name in ("prompt_tokens", "completion_tokens")}
        return folded(chunks), usage, sum(replica.moved for replica in engine.replicas)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    pytest.importorskip("xllamacpp")
    found = Fleet()
    yield found
    for process in found.processes:
        process.stop()


def without_ids(found: dict[int, Any]) -> dict[int, Any]:
    """The messages, with calls that have no ids: these are drawn by chance."""
    for choice in found.values():
        for call in choice.get("tool_calls", []):
            call.pop("id", None)
    return found


def cuts(count: int, most: int) -> Iterator[int]:
    """Some of the places where an output of `count` tokens can be cut: all of them where that is asked for."""
    return iter(range(1, count)) if LONG else iter([(at + 1) * count // (most + 1) for at in range(most)])


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_stream_survives(fleet: Fleet, kind: str) -> None:
    """Cut at some tokens; `make test-long` cuts at every one."""
    body = REQUESTS[kind][1]
    undisturbed, usage, _ = fleet.ask(kind)
    count = usage["completion_tokens"] // body.get("n", 1)
    if "tool_choice" in body:
        [call] = undisturbed[0]["tool_calls"]
        assert set(json.loads(call["function"]["arguments"])) == {"city", "unit"}
    moved = 0
    for cut in cuts(count, 4 if kind == "strict call" else 1):
        found, counted, moves = fleet.ask(kind, cut)
        assert without_ids(found) == without_ids(undisturbed), cut
        assert counted == usage, cut
        moved += moves
    assert moved, "none was cut before its end"
