"""Frameworks for Python: OpenAI's Agents SDK, LangChain, Pydantic AI and llm, with all routes that they know."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ...support.waiting import PATIENCE
from .contract import (
    CHAT,
    DESCRIBE,
    GREETING,
    MESSAGES,
    MODEL,
    RESPONSES,
    RESULT,
    Client,
    Loop,
    Reply,
    Route,
)
from .vendors import Description


class AgentsSdk(Client):
    """OpenAI's Agents SDK."""

    name, package = "OpenAI Agents SDK", "openai-agents"
    shows_reasoning = True

    def __init__(self, route: Route) -> None:
        self.route = route
        self.returns_reasoning = route == RESPONSES

    def _run(self, url: str, said: str, streamed: bool, tools: Any = (), output: Any = None) -> Any:
        agents = pytest.importorskip("agents")
        agents.set_tracing_disabled(True)
        kind = agents.OpenAIResponsesModel if self.route == RESPONSES else agents.OpenAIChatCompletionsModel

        async def run() -> Any:
            from openai import AsyncOpenAI

            async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE) as client:
                model = kind(model=MODEL, openai_client=client)
                agent = agents.Agent(name="A", model=model, tools=list(tools), output_type=output)
                if not streamed:
                    return await agents.Runner.run(agent, said), []
                result = agents.Runner.run_streamed(agent, said)
                events = [event async for event in result.stream_events() if event.type == "raw_response_event"]
                return result, [event.data.delta for event in events if event.data.type.endswith("output_text.delta")]

        return asyncio.run(run())

    def answer(self, url: str) -> Reply:
        result, _ = self._run(url, GREETING, streamed=False)
        return Reply(result.final_output, self._reasoning(result))

    def stream(self, url: str) -> Reply:
        result, deltas = self._run(url, GREETING, streamed=True)
        assert "".join(deltas) == result.final_output
        return Reply(result.final_output, self._reasoning(result), len(deltas))

    def _reasoning(self, result: Any) -> str | None:
        items = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
        return "".join(part.text for item in items for part in item.content or item.summary) or None

    def tools(self, url: str) -> Loop:
        return self._loop(url, self.question("tools"), streamed=False)

    def streamed_tools(self, url: str) -> Loop:
        return self._loop(url, self.question("streamed_tools"), streamed=True)

    def _loop(self, url: str, question: str, streamed: bool) -> Loop:
        agents = pytest.importorskip("agents")
        cities: list[str] = []

        @agents.function_tool  # type: ignore[untyped-decorator]
        def get_weather(city: str) -> str:
            cities.append(city)
            return RESULT

        result, _ = self._run(url, question, streamed, [get_weather])
        return Loop(result.final_output, tuple(cities))

    def structured(self, url: str) -> Mapping[str, Any]:
        result, _ = self._run(url, DESCRIBE, streamed=False, output=Description)
        described: Mapping[str, Any] = result.final_output.model_dump()
        return described


class LangChain(Client):
    """LangChain's chat models."""

    def __init__(self, route: Route) -> None:
        self.route = route
        package = "anthropic" if route == MESSAGES else "openai"
        self.name, self.package = "LangChain", f"langchain-{package}"
        self.shows_reasoning = route != CHAT
        self.returns_reasoning = route != CHAT

    def _model(self, url: str) -> Any:
        if self.route == MESSAGES:
            found = pytest.importorskip("langchain_anthropic")
            return found.ChatAnthropic(base_url=url, api_key="any", model=MODEL, max_tokens=1000, max_retries=0)
        found = pytest.importorskip("langchain_openai")
        base = {"base_url": f"{url}/v1", "api_key": "any", "model": MODEL, "max_retries": 0}
        # It shows what stands in the summary alone.
        more = {"use_responses_api": True, "reasoning": {"summary": "auto"}} if self.route == RESPONSES else {}
        return found.ChatOpenAI(**base, **more)

    def answer(self, url: str) -> Reply:
        return self._reply(self._model(url).invoke(GREETING))

    def stream(self, url: str) -> Reply:
        chunks = list(self._model(url).stream(GREETING))
        reply = self._reply(sum(chunks[1:], chunks[0]))
        return Reply(reply.text, reply.reasoning, sum(bool(chunk.text) for chunk in chunks))

    def _reply(self, message: Any) -> Reply:
        thoughts = [block["reasoning"] for block in message.content_blocks if block["type"] == "reasoning"]
        return Reply(str(message.text), "".join(thoughts) or None)

    def tools(self, url: str) -> Loop:
        return self._loop(lambda model, said: model.invoke(said), url, self.question("tools"))

    def streamed_tools(self, url: str) -> Loop:
        def streamed(model: Any, said: Any) -> Any:
            chunks = list(model.stream(said))
            return sum(chunks[1:], chunks[0])

        return self._loop(streamed, url, self.question("streamed_tools"))

    def _loop(self, ask: Any, url: str, question: str) -> Loop:
        messages = pytest.importorskip("langchain_core.messages")
        tool = {"name": "get_weather", "description": "The weather", "parameters": _SCHEMA}
        model = self._model(url).bind_tools([{"type": "function", "function": tool}])
        said = [messages.HumanMessage(question)]
        cities: list[str] = []
        while True:
            reply = ask(model, said)
            if not reply.tool_calls:
                return Loop(str(reply.text), tuple(cities))
            said.append(reply)
            for call in reply.tool_calls:
                cities.append(call["args"]["city"])
                said.append(messages.ToolMessage(RESULT, tool_call_id=call["id"]))

    def structured(self, url: str) -> Mapping[str, Any]:
        found = self._model(url).with_structured_output(Description).invoke(DESCRIBE)
        described: Mapping[str, Any] = found.model_dump()
        return described


_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class PydanticAI(Client):
    """Pydantic AI's agents."""

    name, package = "Pydantic AI", "pydantic-ai-slim"
    shows_reasoning = True
    returns_reasoning = True

    def __init__(self, route: Route) -> None:
        self.route = route

    def _agent(self, url: str, **options: Any) -> Any:
        pydantic_ai = pytest.importorskip("pydantic_ai")
        if self.route == MESSAGES:
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            model: Any = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key="any"))
        else:
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.models.openai import OpenAIResponsesModel as ResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            kind: Any = ResponsesModel if self.route == RESPONSES else OpenAIChatModel
            model = kind(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any"))
            if self.route == RESPONSES:  # it shows what stands in the summary alone
                options["model_settings"] = {"openai_reasoning_summary": "auto"}
        return pydantic_ai.Agent(model, **options)

    def answer(self, url: str) -> Reply:
        result = self._agent(url).run_sync(GREETING)
        return Reply(result.output, self._thought(result))

    def stream(self, url: str) -> Reply:
        async def run() -> Reply:
            async with self._agent(url).run_stream(GREETING) as result:
                deltas = [delta async for delta in result.stream_text(delta=True, debounce_by=None)]
                return Reply("".join(deltas), self._thought(result), len(deltas))

        return asyncio.run(run())

    def _thought(self, result: Any) -> str | None:
        parts = [part for message in result.all_messages() for part in message.parts if part.part_kind == "thinking"]
        return "".join(str(part.content) for part in parts) or None

    def tools(self, url: str) -> Loop:
        agent, cities = self._with_weather(url)
        return Loop(agent.run_sync(self.question("tools")).output, tuple(cities))

    def streamed_tools(self, url: str) -> Loop:
        async def run() -> Loop:
            agent, cities = self._with_weather(url)
            async with agent.run_stream(self.question("streamed_tools")) as result:
                return Loop(await result.get_output(), tuple(cities))

        return asyncio.run(run())

    def _with_weather(self, url: str) -> tuple[Any, list[str]]:
        agent, cities = self._agent(url), []

        @agent.tool_plain  # type: ignore[untyped-decorator]
        def get_weather(city: str) -> str:
            cities.append(city)
            return RESULT

        return agent, cities

    def structured(self, url: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._agent(url, output_type=Description).run_sync(DESCRIBE).output.model_dump()
        return found


class Llm(Client):
    """The command `llm`."""

    name, package, route = "llm", "llm", CHAT

    def _run(self, url: str, *arguments: str) -> str:
        pytest.importorskip("llm")
        with tempfile.TemporaryDirectory() as home:
            model = {"model_id": "local", "model_name": MODEL, "api_base": f"{url}/v1"}
            known = [{**model, "supports_tools": True, "supports_schema": True}]
            (Path(home) / "extra-openai-models.yaml").write_text(json.dumps(known), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "llm", "--model", "local", *arguments],
                env={**os.environ, "LLM_USER_PATH": home, "OPENAI_API_KEY": "any"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, url: str) -> Reply:
        return Reply(self._run(url, "--no-stream", GREETING).strip())

    def streamed_tools(self, url: str) -> Loop:
        """The tool runs in the command's own process, and leaves a note of what it was called with."""
        with tempfile.TemporaryDirectory() as folder:
            note = Path(folder) / "cities"
            lines = [
                "def get_weather(city: str) -> str:",
                f"    open({str(note)!r}, 'a').write(city + chr(10))",
                f"    return {RESULT!r}",
            ]
            said = self._run(url, "--functions", "\n".join(lines), self.question("streamed_tools"))
            return Loop(said.strip(), tuple(note.read_text(encoding="utf-8").splitlines()))

    def structured(self, url: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self._run(url, "--schema", "city, sunny bool", DESCRIBE))
        return found


CLIENTS: tuple[Client, ...] = (
    *(AgentsSdk(route) for route in (CHAT, RESPONSES)),
    *(LangChain(route) for route in (CHAT, RESPONSES, MESSAGES)),
    *(PydanticAI(route) for route in (CHAT, RESPONSES, MESSAGES)),
    Llm(),
)
