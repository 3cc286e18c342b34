"""Dynamo's parsers, in its own frontend: an engine behind it writes the stream, and a client reads what it sends.
Run by an interpreter that has ai-dynamo-runtime.

The vocabulary shows all markers and hides the token that ends a turn, as an engine does for its parsers; the template
is the prompt itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from . import worker

os.environ.setdefault("DYN_LOG", "error")
os.environ.setdefault("DYN_SELF_HOST_METADATA", "0")

from dynamo import _core  # type: ignore[import-not-found]

PARSERS: worker.Parsers = {
    "deepseek-r1": ("deepseek_v3", "deepseek_r1"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3"),
    "deepseek-v3.1": ("deepseek_v3_1", "deepseek_v3_1"),
    "deepseek-v3.2": ("deepseek_v3_2", "deepseek_v3_2"),
    "deepseek-v4": ("deepseek_v4", "deepseek_v4"),
    "deepseek-v4.1": ("deepseek_v41", "deepseek_v41"),
    "gemma-4": ("gemma4", "gemma4"),
    "glm-4.5": ("glm45", "glm45"),
    "glm-4.7": ("glm47", "glm47"),
    "harmony": ("harmony", "gpt_oss"),
    "hermes": ("hermes", None),
    "inkling": ("inkling", "inkling"),
    "jamba": ("jamba", None),
    "kimi-k2": ("kimi_k2", "kimi_k2"),
    "kimi-k3": ("kimi_k3", "kimi_k3"),
    "llama-3": ("llama3_json", None),
    "minimax-m2": ("minimax_m2", "minimax_m2"),
    "minimax-m3": ("minimax_m3", "minimax_m3"),
    "mistral-v3": ("mistral", None),
    "muse": ("muse", "muse"),
    "nemotron-3": ("qwen3_coder", "nemotron3"),
    "phi-4-mini": ("phi4", None),
    "pythonic": ("pythonic", None),
    "qwen2.5": ("qwen25", None),
    "qwen3": ("qwen25", "qwen3"),
    "qwen3-coder": ("qwen3_coder", None),
    "qwen3-thinking": ("qwen25", "qwen3"),
    "qwen3.5": ("qwen3_coder", "qwen3"),
}
"""By the names that `get_tool_parser_names` and `get_reasoning_parser_names` give. `mistral` reads the list of calls of
v3, and is not for what later versions write."""

_SIZES = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1}


class Frontend:
    """The frontend and a worker with one engine, in a loop of their own."""

    def __init__(self) -> None:
        self.port = worker.free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="scoreboard-dynamo-"))
        self.loop = asyncio.new_event_loop()
        self.deltas: list[dict[str, Any]] = []
        self.models: set[str] = set()
        self.tasks: list[Any] = []
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self._do(self._start())

    def _do(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(60)

    async def _start(self) -> None:
        self.runtime = _core.DistributedRuntime(asyncio.get_running_loop(), "mem", "tcp")
        arguments = _core.EntrypointArgs(_core.EngineType.Dynamic, http_host="127.0.0.1", http_port=self.port)
        engine = await _core.make_engine(self.runtime, arguments)
        self.tasks.append(asyncio.ensure_future(_core.run_input(self.runtime, "http", engine)))

    async def _generate(self, request: Any, context: Any = None) -> AsyncIterator[dict[str, Any]]:
        for delta in self.deltas:
            yield delta

    async def _register(self, name: str, folder: Path, tool: str | None, reasoning: str | None) -> None:
        config = _core.ModelRuntimeConfig()
        config.tool_call_parser, config.reasoning_parser = tool, reasoning
        endpoint = self.runtime.endpoint(f"board.{name.replace('.', '-')}.generate")
        await _core.register_model(
            _core.ModelInput.Tokens,
            _core.ModelType.Chat,
            endpoint,
            str(folder),
            name,
            worker_type=_core.WorkerType.Aggregated,
            runtime_config=config,
        )
        self.tasks.append(asyncio.ensure_future(endpoint.serve_endpoint(self._generate)))

    def model(self, job: worker.Job) -> str:
        """The model that reads the format of a job."""
        name = job["format"]
        if name not in self.models:
            self._do(self._register(name, self._files(job), *PARSERS[name]))
            self.models.add(name)
            self._wait(name)
        return str(name)

    def _wait(self, name: str) -> None:
        self.deltas = [{"token_ids": [0], "finish_reason": "stop"}]
        for _ in range(100):
            try:
                self.ask({"model": name, "messages": [{"role": "user", "content": "a"}]})
                return
            except (OSError, RuntimeError):
                time.sleep(0.1)
        raise RuntimeError("its frontend does not know the model")

    def _files(self, job: worker.Job) -> Path:
        """A model without weights: vocabulary and template."""
        folder = self.folder / str(job["format"])
        folder.mkdir()
        tokenizer = json.loads(Path(job["tokenizer"]).read_text(encoding="utf-8"))
        for token in tokenizer["added_tokens"]:
            token["special"] = token["content"] in job["ends"]
        ends = [one["id"] for one in tokenizer["added_tokens"] if one["special"]]
        config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 200_000, **_SIZES}
        config |= {"eos_token_id": ends, "max_position_embeddings": 1_000_000}
        files = {
            "tokenizer.json": tokenizer,
            "config.json": config,
            "generation_config.json": {"eos_token_id": ends},
            "tokenizer_config.json": {"chat_template": "{{ messages[0]['content'] }}"},
        }
        for file, fields in files.items():
            (folder / file).write_text(json.dumps(fields), encoding="utf-8")
        return folder

    def ask(self, body: dict[str, Any]) -> bytes:
        return worker.post(f"http://127.0.0.1:{self.port}/v1/chat/completions", body)


class DynamoStream(worker.Folded):
    """It collects the deltas, and asks for them once they are there."""

    def __init__(self, dynamo: Dynamo, job: worker.Job) -> None:
        super().__init__()
        self.dynamo, self.job = dynamo, job
        self.deltas: list[list[int]] = []

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        self.deltas.append(ids)
        if last:
            for line in self.dynamo.ask(self.job, self.deltas, stream=True).splitlines():
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[6:]))
                elif line.startswith((b"event: error", b": ")):
                    raise RuntimeError(line.decode(errors="replace"))

    def _take(self, chunk: dict[str, Any]) -> None:
        for choice in chunk.get("choices", ()):
            delta = choice["delta"]
            self.content += delta.get("content") or ""
            self.reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                self.call(call["index"], function.get("name"), function.get("arguments"))


class Dynamo:
    def __init__(self) -> None:
        self.frontend = Frontend()

    def claims(self) -> dict[str, bool]:
        return worker.claims(PARSERS)

    def ask(self, job: worker.Job, deltas: list[list[int]], stream: bool) -> bytes:
        name = self.frontend.model(job)
        end = [] if job["end"] is None else [job["end"]]
        last = {"token_ids": [*deltas[-1], *end], "finish_reason": "length" if job["cut_off"] else "stop"}
        self.frontend.deltas = [*({"token_ids": ids} for ids in deltas[:-1]), last]
        thinking = {"enable_thinking": job["thinking"], "thinking": job["thinking"]}
        messages = [{"role": "user", "content": job["prompt"] or " "}]
        body = {"model": name, "messages": messages, "tools": job["tools"], "chat_template_kwargs": thinking}
        return self.frontend.ask({**body, "stream": stream, "max_tokens": 500_000})

    def open(self, job: worker.Job) -> DynamoStream:
        return DynamoStream(self, job)

    def whole(self, job: worker.Job) -> worker.Fields:
        answer = json.loads(self.ask(job, [[id] for id in job["ids"]], stream=False))
        message = answer["choices"][0]["message"]
        calls = [one["function"] for one in message.get("tool_calls") or ()]
        triples = ((one["name"], one["arguments"], None) for one in calls)
        return worker.fields(message.get("content"), message.get("reasoning_content"), triples)


if __name__ == "__main__":
    worker.serve(Dynamo(), "ai-dynamo-runtime")
    os._exit(0)  # its runtime has threads of its own
