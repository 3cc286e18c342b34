"""SGLang's parsers, chained as its chat server does it. Run by an interpreter that has SGLang."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

from . import worker

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

peer_sglang: Any = importlib.import_module("peer_sglang")
FunctionCallParser, ReasoningParser = peer_sglang.FunctionCallParser, peer_sglang.ReasoningParser

PARSERS: worker.Parsers = {
    "apertus": ("apertus2509", "apertus2509"),
    "beam": ("beam", "beam"),
    "cohere-command-4": ("cohere_command4", "cohere_command4"),
    "deepseek-r1": ("deepseekv3", "deepseek-r1"),
    "deepseek-v3": ("deepseekv3", "deepseek-v3"),
    "deepseek-v3.1": ("deepseekv31", "deepseek-v3"),
    "deepseek-v3.2": ("deepseekv32", "deepseek-v3"),
    "deepseek-v4": ("deepseekv4", "deepseek-v4"),
    "deepseek-v4.1": ("deepseekv41", "deepseek-v41"),
    "dots": ("dots", "dots"),
    "gemma-4": ("gemma4", "gemma4"),
    "gigachat-3": ("gigachat3", None),
    "gigachat-3.5": ("gigachat35", "gigachat35"),
    "glm-4.5": ("glm45", "glm45"),
    "glm-4.7": ("glm47", "glm45"),
    "harmony": ("gpt-oss", "gpt-oss"),
    "hermes": ("hermes", None),
    "hunyuan-3": ("hunyuan", "hunyuan"),
    "inkling": ("inkling", "inkling"),
    "internlm": ("interns1", "interns1"),
    "iquest-q1": ("iquest_q1", "iquest_q1"),
    "k2-horizon": ("k2_horizon", "k2_horizon"),
    "kimi-k2": ("kimi_k2", "kimi_k2"),
    "kimi-k3": ("kimi_k3", "kimi_k3"),
    "lfm2": ("lfm2", None),
    "ling-3": ("ling3", "ling3"),
    "llama-3": ("llama3", None),
    "mimo": ("mimo", "mimo"),
    "minicpm-5": ("minicpm5", None),
    "minimax-m2": ("minimax-m2", "minimax"),
    "minimax-m2-append-think": ("minimax-m2", "minimax-append-think"),
    "minimax-m3": ("minimax-m3", "minimax-m3"),
    "mistral-v11": ("mistral", None),
    "mistral-v13": ("mistral", "mistral"),
    "mistral-v3": ("mistral", None),
    "muse": ("muse", "muse"),
    "nemotron-3": ("qwen3_coder", "nemotron_3"),
    "poolside-v1": ("poolside_v1", "poolside_v1"),
    "pythonic": ("pythonic", None),
    "qwen2.5": ("qwen25", None),
    "qwen3": ("qwen25", "qwen3"),
    "qwen3-coder": ("qwen3_coder", None),
    "qwen3-thinking": ("qwen25", "qwen3-thinking"),
    "qwen3.5": ("qwen3_coder", "qwen3"),
    "spark-2.5": ("spark25", None),
    "step-3": ("step3", "step3"),
    "step-3.5": ("step3p5", "step3p5"),
    "trinity": ("trinity", None),
}
"""The tool and reasoning parser that SGLang's documentation gives each family."""


class SglangStream(worker.Folded):
    def __init__(self, tool: Any, thinker: Any, job: worker.Job) -> None:
        super().__init__()
        self.tool, self.thinker = tool, thinker
        self.end = _kept_end(job)

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        text += self.end if last else ""
        normal: str | None = text
        if self.thinker is not None:
            thought, normal = self.thinker.parse_stream_chunk(text)
            if last:
                end_thought, end_normal = self.thinker.parse_stream_end()
                thought, normal = (thought or "") + (end_thought or ""), (normal or "") + (end_normal or "")
            self.reasoning += thought or ""
        if normal:
            self._take(self.tool.parse_stream_chunk(normal))
        if last:
            self._take(self.tool.parse_stream_end())
            self._unstreamed()

    def _take(self, parsed: tuple[str, list[Any]]) -> None:
        text, items = parsed
        self.content += text or ""
        for item in items:
            self.call(item.tool_index, item.name, item.parameters)

    def _unstreamed(self) -> None:
        # The server's _check_for_unstreamed_tool_args: what the detector has of the last call and has not sent.
        detector = self.tool.detector
        index = len(detector.prev_tool_call_arr) - 1
        if 0 <= index < len(detector.streamed_args_for_tool):
            arguments = detector.prev_tool_call_arr[index].get("arguments", {})
            whole = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            sent = detector.streamed_args_for_tool[index]
            if whole.startswith(sent) and len(whole) > len(sent):
                self.call(index, None, whole[len(sent) :])


def _kept_end(job: worker.Job) -> str:
    """Its server leaves the token that ends a turn out of the text, but for the end of gpt-oss's calls."""
    return str(job["end_text"]) if job["end_text"] == "<|call|>" else ""


class Sglang:
    def claims(self) -> dict[str, bool]:
        return worker.claims(PARSERS)

    def parsers(self, job: worker.Job, stream: bool) -> tuple[Any, Any]:
        tool, reasoning = PARSERS[job["format"]]
        tools = [peer_sglang.Tool.model_validate(one) for one in job["tools"]]
        if reasoning is None:
            return FunctionCallParser(tools, tool), None
        thinker = ReasoningParser(reasoning, stream, job["thinking"], tool_call_parser_active=True)
        return FunctionCallParser(tools, tool), thinker

    def open(self, job: worker.Job) -> SglangStream:
        return SglangStream(*self.parsers(job, stream=True), job)

    def whole(self, job: worker.Job) -> worker.Fields:
        tool, reasoning = self.parsers(job, stream=False)
        thought, text = "", "".join(job["texts"]) + _kept_end(job)
        if reasoning is not None:
            thought, text = reasoning.parse_non_stream(text)
        calls: list[Any] = []
        if text and tool.has_tool_call(text):
            text, calls = tool.parse_non_stream(text)
        return worker.fields(text, thought, ((call.name, call.parameters, None) for call in calls))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    worker.serve(Sglang(), "sglang")
