"""The plug-in in a real `sglang serve` with SmolLM2.

The model is too small to call tools of its own accord: what it writes is enforced, by our constraint or by a regular
expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from .package import fold
from .sglang_process import sglang_serve

pytestmark = pytest.mark.system

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call>"}}</tool_call>'
CALLED = [{"name": "get_weather", "arguments": '{"city": "</tool_call>"}'}]


class Asked:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=300)

    def both(self, **fields: Any) -> dict[str, Any]:
        """The message, streamed and whole, which is the same."""
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": "How is the weather in Bonn?"}],
            "tools": TOOLS,
            "temperature": 0,
            "max_tokens": 200,
            "chat_template_kwargs": {"enable_thinking": False},
            **fields,
        }
        streamed, whole = _nothing(), _nothing()
        with self._client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line.removeprefix("data: "))["choices"]:
                        fold(streamed, choice)
        reply = self._client.post("/v1/chat/completions", json=body)
        (choice,) = reply.raise_for_status().json()["choices"]
        fold(whole, {"delta": choice["message"], "finish_reason": choice["finish_reason"]})
        assert streamed == whole
        return whole


def _nothing() -> dict[str, Any]:
    return {"content": "", "reasoning_content": "", "tool_calls": [], "finish_reason": None}


class TestNamed:
    """A format that SGLang has no parser for: the constraint is ours, too."""

    @pytest.fixture(scope="class")
    def asked(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
        flags = ["--tool-call-parser=unbraid-qwen3", "--reasoning-parser=unbraid-qwen3"]
        with sglang_serve(tmp_path_factory.mktemp("named"), flags, {}) as running:
            yield Asked(running.url)

    @pytest.mark.parametrize("choice", ["required", NAMED])
    def test_a_call_that_must_come(self, asked: Asked, choice: Any) -> None:
        said = asked.both(tool_choice=choice, parallel_tool_calls=False)
        assert (said["content"].strip(), said["finish_reason"]) == ("", "tool_calls")
        [call] = said["tool_calls"]
        assert call["name"] == "get_weather"
        jsonschema.validate(json.loads(call["arguments"]), WEATHER)

    def test_reasoning_and_a_call_with_markup_inside(self, asked: Asked) -> None:
        said = asked.both(regex=_exactly(f"<think>Hm.</think>So: {CALL}"))
        assert (said["reasoning_content"], said["content"].strip()) == ("Hm.", "So:")
        assert said["tool_calls"] == CALLED


class TestReplaced:
    """Our parser under SGLang's own name."""

    @pytest.fixture(scope="class")
    def asked(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
        logs = tmp_path_factory.mktemp("replaced")
        with sglang_serve(logs, ["--tool-call-parser=hermes"], {"UNBRAID_SGLANG_REPLACE": "1"}) as running:
            yield Asked(running.url)

    def test_markup_in_an_argument_is_data(self, asked: Asked) -> None:
        """SGLang's own takes the first `</tool_call>` for the end, and finds no call."""
        said = asked.both(regex=_exactly(CALL))
        assert (said["content"], said["tool_calls"], said["finish_reason"]) == ("", CALLED, "tool_calls")


def _exactly(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\.[]{}()*+?^$|/" else letter for letter in text)
