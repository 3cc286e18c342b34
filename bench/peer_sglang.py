"""Times SGLang's streaming parsers. Run by SGLang's own interpreter: `python peer_sglang.py job.json`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import sys
import time
import types
from typing import Any

import peer_job

TOOL_PARSERS = {
    "hermes": "hermes",
    "qwen25": "qwen25",
    "mistral": "mistral",
    "mistral_v11": "mistral",
    "mistral_args": "mistral",
}
REASONING_PARSERS = {"qwen3": "qwen3", "deepseek_r1": "deepseek-r1"}


def _stub_imports() -> None:
    """Keep out what SGLang's import chain asks for and its parsers do not use."""
    # The package's own __init__ brings in the front-end language and, with it, torch, triton, zmq and PIL.
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package
    # sglang.utils wants IPython for notebooks; the detectors want xgrammar (and through it torch) for the types of
    # the grammars that constrain decoding. `Any` passes as a type there.
    for name in ("IPython", "IPython.display", "xgrammar", "xgrammar.structural_tag"):
        sys.modules[name] = _Stub(name)


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Any


_stub_imports()

from sglang.srt.entrypoints.openai.protocol import Tool  # noqa: E402
from sglang.srt.function_call.function_call_parser import FunctionCallParser  # noqa: E402
from sglang.srt.parser.reasoning_parser import ReasoningParser  # noqa: E402


class ToolStream:
    """FunctionCallParser over one stream."""

    def __init__(self, deltas: list[str], tools: list[Any], name: str) -> None:
        self.deltas = deltas
        self.parser: Any = FunctionCallParser(tools, name)
        self.out: list[tuple[str, list[Any]]] = []

    def pump(self, start: int, stop: int) -> tuple[float, float]:
        parse, keep = self.parser.parse_stream_chunk, self.out.append
        deltas = self.deltas[start:stop]
        began = time.perf_counter()
        for delta in deltas:
            keep(parse(delta))
        spent = time.perf_counter() - began
        return spent, spent

    def fold(self, *, ended: bool) -> dict[str, Any]:
        out = [*self.out, self.parser.parse_stream_end()] if ended else self.out
        calls: dict[int, dict[str, str]] = {}
        for _, items in out:
            for item in items:
                peer_job.fold_calls(calls, item.tool_index, item.name, item.parameters)
        if ended:
            self._add_unstreamed(calls)
        content = "".join(text for text, _ in out if text)
        return {"content": content, "reasoning": None, "calls": list(calls.values())}

    def _add_unstreamed(self, calls: dict[int, dict[str, str]]) -> None:
        # The server's _check_for_unstreamed_tool_args: what the detector has of the last call and has not sent.
        detector = self.parser.detector
        index = len(detector.prev_tool_call_arr) - 1
        if 0 <= index < len(detector.streamed_args_for_tool):
            arguments = detector.prev_tool_call_arr[index].get("arguments", {})
            whole = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            sent = detector.streamed_args_for_tool[index]
            if whole.startswith(sent):
                peer_job.fold_calls(calls, index, None, whole[len(sent) :])


class ReasoningStream:
    """ReasoningParser over one stream."""

    def __init__(self, deltas: list[str], name: str) -> None:
        self.deltas = deltas
        self.parser: Any = ReasoningParser(name, stream_reasoning=True)
        self.out: list[tuple[str | None, str | None]] = []

    def pump(self, start: int, stop: int) -> tuple[float, float]:
        parse, keep = self.parser.parse_stream_chunk, self.out.append
        deltas = self.deltas[start:stop]
        began = time.perf_counter()
        for delta in deltas:
            keep(parse(delta))
        spent = time.perf_counter() - began
        return spent, spent

    def fold(self, *, ended: bool) -> dict[str, Any]:
        out = [*self.out, self.parser.parse_stream_end()] if ended else self.out
        reasoning = "".join(text for text, _ in out if text)
        content = "".join(text for _, text in out if text)
        return {"content": content, "reasoning": reasoning or None, "calls": []}


def prepare(case: dict[str, Any]) -> peer_job.Open | None:
    deltas, format_ = case["deltas"], case["format"]
    if format_ in TOOL_PARSERS:
        tools = [Tool.model_validate(tool) for tool in case["tools"]]
        return lambda: ToolStream(deltas, tools, TOOL_PARSERS[format_])
    if format_ in REASONING_PARSERS:
        return lambda: ReasoningStream(deltas, REASONING_PARSERS[format_])
    return None


def versions() -> dict[str, str]:
    names = ("sglang", "partial_json_parser", "orjson", "pydantic")
    return {"python": sys.version.split()[0], **{name: importlib.metadata.version(name) for name in names}}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # a detector that gives up logs once a delta, which is not its parsing
    peer_job.main(prepare, versions)
