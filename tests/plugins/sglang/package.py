"""SGLang itself, for the tests of the plug-in: its parsers and, where all that it needs is there, its chat server.

`pip install --no-deps sglang==0.5.23 partial-json-parser pybase64` is enough for the parsers. What is not installed
skips the test.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class _Stub(ModuleType):
    """Stands for a module of which SGLang only names types here."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Any


_PARSERS_NAME = ("IPython", "IPython.display", "xgrammar", "xgrammar.structural_tag")
_SERVER_NAMES = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
"""For pictures; there is no build of it for a torch without CUDA."""


@contextmanager
def _with_stubs(names: Sequence[str]) -> Iterator[None]:
    """Only while SGLang is imported: another test may ask whether the real ones are there."""
    stubs = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is None]
    sys.modules.update({name: _Stub(name) for name in stubs})
    try:
        yield
    finally:
        for name in stubs:
            del sys.modules[name]


def parsers() -> Any:
    """The modules of SGLang's parsers, as one."""
    spec = importlib.util.find_spec("sglang")
    if spec is None:
        pytest.skip("sglang is not installed: pip install --no-deps sglang==0.5.23 partial-json-parser pybase64")
    try:
        importlib.import_module("sglang.srt.function_call.function_call_parser")
    except ImportError:
        _import_without_torch(spec)
    found = SimpleNamespace()
    for module in (
        "sglang.srt.environ",
        "sglang.srt.entrypoints.openai.protocol",
        "sglang.srt.function_call.function_call_parser",
        "sglang.srt.parser.reasoning_parser",
    ):
        vars(found).update(vars(importlib.import_module(module)))
    return found


def is_before_0_5_23(sglang: Any) -> bool:
    """Whether this SGLang asks no detector where a request has no tools, nor whether a call was cut off, and reads no
    `response_template`."""
    return not hasattr(sglang.BaseFormatDetector, "parses_without_tools")


def _import_without_torch(spec: Any) -> None:
    """The package's own __init__ wants torch and much more; its parsers do not."""
    package = ModuleType("sglang")
    package.__path__, package.__spec__ = list(spec.submodule_search_locations), spec
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]
    sys.modules["sglang"] = package
    try:
        with _with_stubs(_PARSERS_NAME):
            importlib.import_module("sglang.srt.function_call.function_call_parser")
            importlib.import_module("sglang.srt.parser.reasoning_parser")
    except ImportError as error:
        pytest.skip(f"SGLang's parsers cannot be imported: {error}")


class _Settings(SimpleNamespace):
    """A server's settings, all of them off but those that are given."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Chat:
    """SGLang's handler of chat completions, with a model that says what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tool_call_parser: str | None, reasoning_parser: str | None):
        name = "sglang.srt.entrypoints.openai.serving_chat"
        try:
            with _with_stubs(_SERVER_NAMES):
                module: Any = importlib.import_module(name)
        except (ImportError, RuntimeError, AttributeError) as error:
            pytest.skip(f"SGLang's server cannot be imported: {error}")
        monkeypatch.setattr(module, "get_serving", lambda: _Settings(incremental_streaming_output=True))
        self._server = module.OpenAIServingChat.__new__(module.OpenAIServingChat)
        self._server.tool_call_parser, self._server.reasoning_parser = tool_call_parser, reasoning_parser
        self._server.tokenizer_manager = SimpleNamespace(tokenizer=None, generate_request=self._generate)
        self._server.template_manager = SimpleNamespace(force_reasoning=False, reasoning_config=None)
        self._server.chat_encoding_spec = self._server._encoding_adapter = self._server._response_parser = None
        made = module.ReasoningParser(reasoning_parser).detector if reasoning_parser else None
        self._server._reasoning_detector = made
        self._request: Any = module.ChatCompletionRequest
        self._pieces: Sequence[str] = ()

    async def _generate(self, *_: object) -> AsyncIterator[dict[str, Any]]:
        for piece in self._pieces[:-1]:
            yield {"text": piece, "meta_info": _meta(None)}
        yield {"text": self._pieces[-1], "meta_info": _meta({"type": "stop", "matched": 1})}

    async def stream(self, pieces: Sequence[str], **request: Any) -> dict[str, Any]:
        """The message that a client puts together from the chunks."""
        self._pieces = pieces
        message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": [], "finish_reason": None}
        asked = self._request(model="m", messages=[{"role": "user", "content": "?"}], stream=True, **request)
        async for line in self._server._generate_chat_stream(None, asked, None):
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line.removeprefix("data: ")).get("choices", []):
                fold(message, choice)
        return message

    def whole(self, text: str, **request: Any) -> dict[str, Any]:
        """The message of a reply that is not streamed."""
        asked = self._request(model="m", messages=[{"role": "user", "content": "?"}], **request)
        returned = {"text": text, "output_ids": [], "meta_info": _meta({"type": "stop", "matched": 1})}
        reply = self._server._build_chat_response(asked, [returned], 0)
        choice = json.loads(reply.model_dump_json())["choices"][0]
        message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": [], "finish_reason": None}
        fold(message, {"delta": choice["message"], "finish_reason": choice["finish_reason"]})
        return message


def _meta(finish_reason: dict[str, Any] | None) -> dict[str, Any]:
    counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"), 1)
    return {"id": "chatcmpl-1", "finish_reason": finish_reason, "weight_version": "default", **counts}


def fold(message: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice["delta"]
    for field in ("content", "reasoning_content"):
        message[field] += delta.get(field) or ""
    for call in delta.get("tool_calls") or ():
        if call["index"] == len(message["tool_calls"]):
            message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
        message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"] or ""
    message["finish_reason"] = choice.get("finish_reason") or message["finish_reason"]
