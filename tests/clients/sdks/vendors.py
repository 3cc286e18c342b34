"""The vendors' own SDKs for Python: OpenAI's, in both of its APIs, Anthropic's, and Hugging Face's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import openai
import pytest
from pydantic import BaseModel

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
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Description(BaseModel):
    city: str
    sunny: bool


def _openai(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


def chat_loop(ask: Callable[[list[Any], list[Any]], Any], question: str) -> Loop:
    """The loop that users write around chat. `ask` returns the completion of messages, with tools."""
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, "strict": True}}
    messages: list[Any] = [{"role": "user", "content": question}]
    cities: list[str] = []
    while True:
        message = ask(messages, [tool]).choices[0].message
        if not message.tool_calls:
            return Loop(message.content, tuple(cities))
        messages.append(message)
        for call in message.tool_calls:
            cities.append(json.loads(call.function.arguments)["city"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})


class OpenAIChat(Client):
    name, package, route = "OpenAI for Python", "openai", CHAT
    shows_reasoning = True  # as a field that it has no type for
    returns_reasoning = True

    def answer(self, url: str) -> Reply:
        asked: Any = _openai(url).chat.completions.create(model=MODEL, messages=[{"role": "user", "content": GREETING}])
        message = asked.choices[0].message
        return Reply(message.content, message.reasoning_content)

    def stream(self, url: str) -> Reply:
        text, thought = [], []
        messages: Any = [{"role": "user", "content": GREETING}]
        for chunk in _openai(url).chat.completions.create(model=MODEL, messages=messages, stream=True):
            delta: Any = chunk.choices[0].delta
            text += [delta.content] if delta.content else []
            thought += [delta.reasoning_content] if getattr(delta, "reasoning_content", None) else []
        return Reply("".join(text), "".join(thought), len(text))

    def tools(self, url: str) -> Loop:
        return self._loop(url, self.question("tools"), streamed=False)

    def streamed_tools(self, url: str) -> Loop:
        return self._loop(url, self.question("streamed_tools"), streamed=True)

    def _loop(self, url: str, question: str, streamed: bool) -> Loop:
        def ask(messages: Any, tools: Any) -> Any:
            completions = _openai(url).chat.completions
            if not streamed:
                return completions.create(model=MODEL, messages=messages, tools=tools)
            with completions.stream(model=MODEL, messages=messages, tools=tools) as stream:
                return stream.get_final_completion()

        return chat_loop(ask, question)

    def structured(self, url: str) -> Mapping[str, Any]:
        messages: Any = [{"role": "user", "content": DESCRIBE}]
        found = _openai(url).chat.completions.parse(model=MODEL, messages=messages, response_format=Description)
        parsed: Description | None = found.choices[0].message.parsed
        assert parsed is not None
        return parsed.model_dump()


class HuggingFace(Client):
    name, package, route = "Hugging Face Hub's InferenceClient", "huggingface_hub", CHAT
    shows_reasoning = True
    returns_reasoning = True

    def _client(self, url: str) -> Any:
        hub = pytest.importorskip("huggingface_hub")
        return hub.InferenceClient(base_url=f"{url}/v1", api_key="any", timeout=PATIENCE)

    def _ask(self, url: str, messages: list[Any], **more: Any) -> Any:
        return self._client(url).chat_completion(messages, model=MODEL, **more)

    def answer(self, url: str) -> Reply:
        message = self._ask(url, [{"role": "user", "content": GREETING}]).choices[0].message
        return Reply(message.content, message.reasoning)

    def stream(self, url: str) -> Reply:
        client = self._client(url)  # ends its streams when it is collected
        chunks = client.chat_completion([{"role": "user", "content": GREETING}], model=MODEL, stream=True)
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        text = [delta.content for delta in deltas if delta.content]
        return Reply("".join(text), "".join(delta.reasoning or "" for delta in deltas), len(text))

    def tools(self, url: str) -> Loop:
        return chat_loop(lambda messages, tools: self._ask(url, messages, tools=tools), self.question("tools"))

    def structured(self, url: str) -> Mapping[str, Any]:
        schema = {"name": "description", "schema": Description.model_json_schema(), "strict": True}
        wanted = {"type": "json_schema", "json_schema": schema}
        reply = self._ask(url, [{"role": "user", "content": DESCRIBE}], response_format=wanted)
        return Description.model_validate_json(reply.choices[0].message.content).model_dump()


class OpenAIResponses(Client):
    name, package, route = "OpenAI for Python", "openai", RESPONSES
    shows_reasoning = True
    returns_reasoning = True

    def answer(self, url: str) -> Reply:
        response = _openai(url).responses.create(model=MODEL, input=GREETING)
        return Reply(response.output_text, _reasoning(response))

    def stream(self, url: str) -> Reply:
        with _openai(url).responses.stream(model=MODEL, input=GREETING) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            response = stream.get_final_response()
        assert "".join(deltas) == response.output_text
        return Reply(response.output_text, _reasoning(response), len(deltas))

    def tools(self, url: str) -> Loop:
        return self._loop(url, self.question("tools"), streamed=False)

    def streamed_tools(self, url: str) -> Loop:
        return self._loop(url, self.question("streamed_tools"), streamed=True)

    def _loop(self, url: str, question: str, streamed: bool) -> Loop:
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
        items: list[Any] = [{"role": "user", "content": question}]
        cities: list[str] = []
        asked: dict[str, Any] = {"model": MODEL, "input": items, "tools": [tool]}
        while True:
            if streamed:
                with _openai(url).responses.stream(**asked) as stream:
                    response: Any = stream.get_final_response()
            else:
                response = _openai(url).responses.create(**asked)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return Loop(response.output_text, tuple(cities))
            items += response.output
            for call in calls:
                cities.append(json.loads(call.arguments)["city"])
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})

    def structured(self, url: str) -> Mapping[str, Any]:
        found = _openai(url).responses.parse(model=MODEL, input=DESCRIBE, text_format=Description)
        parsed: Description | None = found.output_parsed
        assert parsed is not None
        return parsed.model_dump()


def _reasoning(response: Any) -> str | None:
    (item,) = [item for item in response.output if item.type == "reasoning"]
    return "".join(part.text for part in item.content)


class Anthropic(Client):
    name, package, route = "Anthropic for Python", "anthropic", MESSAGES
    shows_reasoning = True
    returns_reasoning = True

    def _client(self, url: str) -> Any:
        anthropic = pytest.importorskip("anthropic")
        return anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, timeout=PATIENCE)

    def _asked(self, said: str) -> dict[str, Any]:
        return {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": said}]}

    def answer(self, url: str) -> Reply:
        return self._reply(self._client(url).messages.create(**self._asked(GREETING)))

    def stream(self, url: str) -> Reply:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with self._client(url).messages.stream(**self._asked(GREETING), thinking=thinking) as stream:
            texts = list(stream.text_stream)
            reply = self._reply(stream.get_final_message())
        assert "".join(texts) == reply.text
        return Reply(reply.text, reply.reasoning, len(texts))

    def _reply(self, message: Any) -> Reply:
        thinking, text = message.content
        assert thinking.signature
        return Reply(text.text, thinking.thinking)

    def tools(self, url: str) -> Loop:
        return self._loop(url, self.question("tools"), stream=False)

    def streamed_tools(self, url: str) -> Loop:
        return self._loop(url, self.question("streamed_tools"), stream=True)

    def _loop(self, url: str, question: str, stream: bool) -> Loop:
        """By the SDK's own loop, which would rather have the server keep the conversation."""
        anthropic = pytest.importorskip("anthropic")
        cities: list[str] = []

        @anthropic.beta_tool  # type: ignore[untyped-decorator]
        def get_weather(city: str) -> str:
            """The weather in a city."""
            cities.append(city)
            return RESULT

        asked = self._asked(question)
        runner = self._client(url).beta.messages.tool_runner(**asked, tools=[get_weather], stream=stream)
        for turn in runner:
            last = turn.get_final_message() if stream else turn
        return Loop("".join(block.text for block in last.content if block.type == "text"), tuple(cities))

    def structured(self, url: str) -> Mapping[str, Any]:
        found = self._client(url).messages.parse(**self._asked(DESCRIBE), output_format=Description).parsed_output
        described: Mapping[str, Any] = found.model_dump()
        return described


CLIENTS: tuple[Client, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), HuggingFace())
