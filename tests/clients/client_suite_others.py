"""What other clients than OpenAI's for Python do with a server: LangChain, OpenAI's for JavaScript, curl.

The fixture `server` is that of `ClientSuite`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ..support.npm_packages import npm_packages
from ..support.running_server import RunningServer, folded
from .client_suite import (
    ANSWER,
    CONTEXT,
    MODEL,
    QUESTION,
    STRUCTURE,
    TOOLS,
    WEATHER,
    WEATHER_QUESTION,
    Weather,
    counted,
    essence,
    request,
)

NODE_CLIENT = Path(__file__).parent / "openai-node"


class LangChainSuite:
    """LangChain's ChatOpenAI."""

    @pytest.fixture
    def model(self, server: RunningServer) -> Any:
        langchain = pytest.importorskip("langchain_openai")
        return langchain.ChatOpenAI(
            base_url=f"{server.url}/v1",
            api_key="any",
            model=MODEL,
            temperature=0,
            seed=1,
            max_completion_tokens=80,
            max_retries=0,
        )

    def test_invoke(self, model: Any) -> None:
        reply = model.invoke(QUESTION)
        assert reply.content == ANSWER
        assert reply.response_metadata["finish_reason"] == "stop"
        assert reply.response_metadata["model_name"] == MODEL
        assert reply.usage_metadata["output_tokens"] == 8

    def test_stream(self, model: Any) -> None:
        chunks = list(model.stream([("user", QUESTION)], stream_usage=True))
        assert sum(bool(chunk.content) for chunk in chunks) > 2
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        assert whole.content == ANSWER
        assert whole.response_metadata["finish_reason"] == "stop"
        assert whole.usage_metadata["output_tokens"] == 8

    def test_a_loop_with_tools(self, model: Any) -> None:
        messages = pytest.importorskip("langchain_core.messages")
        said: list[Any] = [messages.HumanMessage(WEATHER_QUESTION)]
        forced = model.bind_tools(TOOLS, tool_choice="get_weather", parallel_tool_calls=False)
        called = forced.invoke(said)
        (call,) = called.tool_calls
        assert call["name"] == "get_weather"
        jsonschema.validate(call["args"], WEATHER)
        assert called.invalid_tool_calls == []
        assert called.response_metadata["finish_reason"] == "tool_calls"
        result = messages.ToolMessage(f"It is 21 degrees and sunny in {call['args']['city']}.", tool_call_id=call["id"])
        reply = model.bind_tools(TOOLS).invoke([*said, called, result])
        assert "21" in reply.content
        assert reply.tool_calls == []

    def test_a_streamed_call(self, model: Any) -> None:
        chunks = list(model.bind_tools(TOOLS, tool_choice="any", parallel_tool_calls=False).stream(WEATHER_QUESTION))
        assert sum(bool(chunk.tool_call_chunks) for chunk in chunks) > 2
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        (call,) = whole.tool_calls
        jsonschema.validate(call["args"], WEATHER)

    @pytest.mark.parametrize("method", ["json_schema", "function_calling"])
    def test_structured_output(self, model: Any, method: str) -> None:
        found = model.with_structured_output(Weather, method=method, strict=True).invoke(WEATHER_QUESTION)
        assert isinstance(found, Weather)


class NodeSuite:
    """OpenAI's client for JavaScript."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, server: RunningServer) -> Any:
        """What the client printed."""
        client = npm_packages(NODE_CLIENT) / "client.mjs"
        given = json.dumps({"tools": TOOLS, "schema": STRUCTURE})
        command = ["node", str(client), server.url, MODEL]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def test_chat(self, found: Any) -> None:
        choice = _same(found["chat"])
        assert (choice["message"]["content"], choice["finish_reason"]) == (ANSWER, "stop")

    def test_streaming(self, found: Any) -> None:
        assert len(found["words"]) > 2
        assert "".join(found["words"]) == ANSWER
        assert found["chat"]["streamed"]["chunks"] > 2

    def test_a_required_call(self, found: Any) -> None:
        choice = _same(found["call"])
        (call,) = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert call["function"]["name"] == "get_weather"
        jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER)

    def test_several_turns(self, found: Any) -> None:
        assert "21" in found["turns"]["choice"]["message"]["content"]

    def test_a_json_schema(self, found: Any) -> None:
        choice = _same(found["json"])
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), STRUCTURE)

    def test_an_error(self, found: Any) -> None:
        expected = {"status": 404, "code": "model_not_found", "param": "model", "kind": "NotFoundError"}
        assert found["error"] == expected


def _same(found: Any) -> Any:
    """The choice of a whole reply, which is that of the streamed one."""
    choices = [found[kind]["choice"] for kind in ("whole", "streamed")]
    whole, streamed = (essence({**choice["message"], **choice}) for choice in choices)
    assert whole == streamed
    assert counted(found["whole"]["usage"]) == counted(found["streamed"]["usage"])
    return choices[0]


class CurlSuite:
    """curl, and what goes over the wire."""

    def test_chat(self, server: RunningServer, tmp_path: Path) -> None:
        headers, body = _curl(server, tmp_path, request(QUESTION))
        assert headers.startswith("HTTP/1.1 200")
        assert "content-type: application/json" in headers
        found = json.loads(body)
        assert found["choices"][0]["message"]["content"] == ANSWER

    @pytest.mark.parametrize("with_usage", [False, True], ids=["plain", "usage"])
    def test_streaming(self, server: RunningServer, tmp_path: Path, with_usage: bool) -> None:
        options = {"stream_options": {"include_usage": True}} if with_usage else {}
        headers, body = _curl(server, tmp_path, {**request(QUESTION, **options), "stream": True})
        assert headers.startswith("HTTP/1.1 200")
        assert "content-type: text/event-stream" in headers
        assert "content-length" not in headers
        assert body.endswith("\n\n")
        assert "\r" not in body
        events = body.removesuffix("\n\n").split("\n\n")
        assert all(event.startswith("data: ") and "\n" not in event for event in events)
        said = [event.removeprefix("data: ") for event in events]
        assert [event for event in said if event == "[DONE]"] == said[-1:]
        chunks = [json.loads(event) for event in said[:-1]]
        assert ("role" in chunks[0]["choices"][0]["delta"], len(chunks) > 4) == (True, True)
        roles = [choice for chunk in chunks for choice in chunk["choices"] if "role" in choice["delta"]]
        assert len(roles) == 1
        assert folded(chunks)[0] == {"content": ANSWER, "finish_reason": "stop"}
        if with_usage:
            assert [bool(chunk["usage"]) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            assert chunks[-1]["choices"] == []
        else:
            assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)

    def test_a_call_streamed(self, server: RunningServer, tmp_path: Path) -> None:
        named = {"type": "function", "function": {"name": "get_weather"}}
        asked = request(WEATHER_QUESTION, tools=TOOLS, tool_choice=named, max_completion_tokens=80)
        _, body = _curl(server, tmp_path, {**asked, "stream": True})
        chunks = [json.loads(event.removeprefix("data: ")) for event in body.split("\n\n")[:-2]]
        message = folded(chunks)[0]
        assert message["finish_reason"] == "tool_calls"
        jsonschema.validate(json.loads(message["tool_calls"][0]["function"]["arguments"]), WEATHER)

    def test_an_error_before_the_stream(self, server: RunningServer, tmp_path: Path) -> None:
        asked = request("word " * (server.service.models[0].engine.context or CONTEXT))
        headers, body = _curl(server, tmp_path, {**asked, "stream": True})
        assert headers.startswith("HTTP/1.1 400")
        assert "content-type: application/json" in headers
        assert json.loads(body)["error"]["code"] == "context_length_exceeded"


def _curl(server: RunningServer, folder: Path, body: dict[str, Any]) -> tuple[str, str]:
    """The head of an answer, and the rest of it."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    head = folder / "head"
    url = f"{server.url}/v1/chat/completions"
    command = ["curl", "-sS", "-N", "--noproxy", "*", "-D", str(head), "--json", "@-", url]
    done = subprocess.run(command, input=json.dumps(body).encode(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return head.read_text().lower().replace("http/1.1", "HTTP/1.1"), done.stdout.decode()
