"""An endpoint that samples: vLLM's `/inference/v1/generate`, with the small embedded model behind it.

Trainers that render by themselves send ids and are sent ids. The first turn of each conversation is made to call a
tool: a model of 135 million parameters would not.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import unbraid
from unbraid.engines import Sampling
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

from ...support.embedded_model import collect, smollm2
from ...support.real_tokenizers import byte_level_bpe

FORMAT = "hermes"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]
_PIECES = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@contextmanager
def endpoint(folder: Path) -> Iterator[str]:
    """Its URL. `folder` gets the model's tokenizer."""
    engine = EmbeddedEngine(smollm2(), parallel=1)
    save_tokenizer(engine, folder)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    outputs: list[list[int]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = asyncio.run_coroutine_threadsafe(sampled(engine, request), loop).result()
            outputs.append(reply["choices"][0]["token_ids"])
            self.answer(200, reply)

        def do_GET(self) -> None:
            """All that was sampled so far. (Clients also look for `/v1/models`.)"""
            self.answer(200 if self.path == "/sampled" else 404, outputs)

        def answer(self, status: int, reply: object) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        asyncio.run_coroutine_threadsafe(engine.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)


async def sampled(engine: EmbeddedEngine, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request of vLLM's."""
    wanted, prompt = request["sampling_params"], tuple(request["token_ids"])
    text = b"".join(engine.vocabulary.token_bytes(id) or b"" for id in prompt)
    tool_choice = "none" if text.count(b"</tool_call>") > 1 else "required"  # the prompt shows one
    output = await collect(
        engine,
        prompt,
        sampling=Sampling(temperature=0.7, seed=7),
        max_tokens=wanted.get("max_tokens") or 60,
        constraint=unbraid.constraint(FORMAT, tools=TOOLS, tool_choice=tool_choice, parallel_tool_calls=False),
        logprobs=0,
    )
    entries = zip(output.ids, output.logprobs, strict=True)
    content = [{"token": f"token_id:{id}", "logprob": each.logprob} for id, each in entries]
    choice = {"index": 0, "token_ids": output.ids, "finish_reason": "stop", "logprobs": {"content": content}}
    return {"request_id": "1", "choices": [choice]}


def save_tokenizer(engine: EmbeddedEngine, folder: Path) -> None:
    """The model's tokenizer as files of Hugging Face: the GGUF file has its tokens."""
    vocabulary = engine.vocabulary
    texts = {id: vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)}
    whole = byte_level_bpe({text: id for id, text in texts.items() if text and id not in vocabulary.special}, _PIECES)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for id in sorted(vocabulary.special):
        whole["added_tokens"].append({"id": id, "content": texts[id].decode(), "special": True, **flags})
        whole["model"]["vocab"][texts[id].decode()] = id
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": engine.chat_template,
    }
    for name, value in (("tokenizer.json", whole), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
