"""smg's parsers, over HTTP: `/parse/reasoning`, then `/parse/function_call`. Run by smg's interpreter.

These endpoints take finished outputs. What its gRPC router does with a stream needs an engine behind it.
"""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import worker

PARSERS: worker.Parsers = {
    "cohere-command-3": ("cohere", "cohere_cmd"),
    "deepseek-r1": ("deepseek", "deepseek_r1"),
    "deepseek-v3": ("deepseek", None),
    "deepseek-v3.1": ("deepseek31", "deepseek_v31"),
    "deepseek-v3.2": ("deepseek32", "deepseek_v31"),
    "deepseek-v4": ("deepseek_v4", "deepseek_v4"),
    "deepseek-v4.1": ("deepseek_v41", "deepseek_v41"),
    "gemma-4": ("gemma4", "gemma4"),
    "glm-4.5": ("glm45_moe", "glm45"),
    "glm-4.7": ("glm47_moe", "glm45"),
    "hermes": ("qwen", None),
    "inkling": ("inkling", "inkling"),
    "kimi-k2": ("kimik2", "kimi_k25"),
    "kimi-k3": ("kimi_k3", "kimi_k3"),
    "llama-3": ("llama", None),
    "llama-4-pythonic": ("pythonic", None),
    "minimax-m2": ("minimax_m2", "minimax"),
    "minimax-m3": ("minimax_m3", "minimax_m3"),
    "mistral-v3": ("mistral", None),
    "nemotron-3": ("nemotron", "nano_v3"),
    "pythonic": ("pythonic", None),
    "qwen2.5": ("qwen", None),
    "qwen3": ("qwen", "qwen3"),
    "qwen3-coder": ("qwen_coder", None),
    "qwen3-thinking": ("qwen", "qwen3_thinking"),
    "qwen3.5": ("qwen_coder", "qwen3"),
    "sarashina": ("sarashina", None),
    "step-3": ("step3", "step3"),
    "xlam": ("xlam", None),
}
"""By the names that `smg launch --help` lists, as far as /parse knows them: not those of Symphony's tables."""

_OPEN = re.compile(r"<(?!/|\|end)[^<>]*think[^<>]*>\s*$", re.IGNORECASE)


class Smg(worker.NotStreamed):
    def __init__(self) -> None:
        port = worker.free_port()
        self.address = f"http://127.0.0.1:{port}"
        launch = [str(Path(sys.executable).parent / "smg"), "launch", "--host", "127.0.0.1", "--port", str(port)]
        launch += ["--disable-tokenizer-autoload", "--prometheus-port", str(worker.free_port())]
        server = subprocess.Popen(launch, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
        atexit.register(server.terminate)
        self._wait(server)

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        for _ in range(120):
            try:
                worker.post(f"{self.address}/parse/reasoning", {"text": "a", "reasoning_parser": "qwen3"})
                return
            except OSError:
                time.sleep(0.5)
                if server.poll() is not None:
                    break
        raise RuntimeError("its server does not start")

    def claims(self) -> dict[str, bool]:
        return worker.claims(PARSERS)

    def whole(self, job: worker.Job) -> worker.Fields:
        tool, reasoning = PARSERS[job["format"]]
        text, thought = "".join(job["texts"]), ""
        if reasoning is not None:
            # The endpoint is not told the prompt: what that has opened stands before the output.
            opened = _OPEN.search(job["prompt"])
            text = (opened[0] if opened else "") + text
            answer = self._parsed("reasoning", {"text": text, "reasoning_parser": reasoning})
            text, thought = answer["normal_text"], answer["reasoning_text"]
        body = {"text": text, "tool_call_parser": tool, "tools": job["tools"]}
        answer = self._parsed("function_call", body)
        calls = [one["function"] for one in answer["tool_calls"]]
        return worker.fields(
            answer["remaining_text"], thought, ((one["name"], one["arguments"], None) for one in calls)
        )

    def _parsed(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(worker.post(f"{self.address}/parse/{what}", body))
        return answer


if __name__ == "__main__":
    worker.serve(Smg(), "smg")
