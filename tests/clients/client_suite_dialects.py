"""What the vendors' clients do with Responses and Messages, on a real model that is held to grammars.

The fixture `server` is that of `ClientSuite`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import openai
import pytest
from openai import OpenAI

from ..support.running_server import RunningServer
from ..support.waiting import PATIENCE
from .client_suite import (
    ANSWER,
    MODEL,
    QUESTION,
    SCHEMAS,
    TIME,
    WEATHER,
    WEATHER_QUESTION,
    ServerSuite,
    Weather,
)

RESULT = "It is 21 degrees and sunny in Paris."


class ResponsesSuite(ServerSuite):
    """OpenAI's client for Python, with Responses."""

    def _ask(self, client: OpenAI, said: Any, **options: Any) -> Any:
        asked = {"model": MODEL, "input": said, "temperature": 0, "max_output_tokens": 80, **options}
        return client.responses.create(**asked)

    def _tools(self) -> list[Any]:
        kinds = {"get_weather": WEATHER, "get_time": TIME}
        return [{"type": "function", "name": name, "parameters": kinds[name], "strict": True} for name in kinds]

    def test_an_answer(self, client: OpenAI) -> None:
        response = self._ask(client, QUESTION)
        assert (response.output_text, response.status, response.model) == (ANSWER, "completed", MODEL)
        assert response.usage.output_tokens == 8

    def test_a_stream(self, client: OpenAI) -> None:
        with client.responses.stream(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=80) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert len(deltas) > 2
        assert "".join(deltas) == final.output_text == ANSWER

    @pytest.mark.parametrize("chosen", ["required", "get_time"])
    def test_a_forced_call(self, client: OpenAI, chosen: str) -> None:
        choice = chosen if chosen == "required" else {"type": "function", "name": chosen}
        options = {"tools": self._tools(), "tool_choice": choice, "parallel_tool_calls": False}
        call = self._ask(client, WEATHER_QUESTION, **options).output[-1]
        assert call.type == "function_call"
        assert call.name == ("get_weather" if chosen == "required" else chosen)
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])

    def test_several_turns(self, client: OpenAI) -> None:
        said: list[Any] = [{"role": "user", "content": WEATHER_QUESTION}]
        options = {"tools": self._tools()[:1], "tool_choice": "required", "parallel_tool_calls": False}
        called = self._ask(client, said, **options)
        said += called.output
        said.append({"type": "function_call_output", "call_id": called.output[-1].call_id, "output": RESULT})
        assert "21" in self._ask(client, said, tools=options["tools"]).output_text

    def test_a_value(self, client: OpenAI) -> None:
        asked: dict[str, Any] = {"model": MODEL, "input": WEATHER_QUESTION, "temperature": 0, "max_output_tokens": 80}
        assert isinstance(client.responses.parse(**asked, text_format=Weather).output_parsed, Weather)

    def test_an_answer_that_is_cut_off(self, client: OpenAI) -> None:
        response = self._ask(client, QUESTION, max_output_tokens=3)
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"
        assert ANSWER.startswith(response.output_text)

    def test_another_model(self, client: OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            self._ask(client, QUESTION, model="another")
        assert caught.value.code == "model_not_found"


class MessagesSuite:
    """Anthropic's client for Python."""

    @pytest.fixture(scope="class")
    @classmethod
    def claude(cls, server: RunningServer) -> Iterator[anthropic.Anthropic]:
        with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0, timeout=PATIENCE) as client:
            yield client

    def _asked(self, said: Any, **options: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        return {"model": MODEL, "max_tokens": 80, "messages": messages, "extra_body": {"temperature": 0}, **options}

    def _tools(self) -> list[Any]:
        kinds = {"get_weather": WEATHER, "get_time": TIME}
        return [{"name": name, "input_schema": kinds[name], "strict": True} for name in kinds]

    def test_an_answer(self, claude: anthropic.Anthropic) -> None:
        message = claude.messages.create(**self._asked(QUESTION))
        (block,) = message.content
        assert block.type == "text"
        assert (block.text, message.stop_reason, message.model) == (ANSWER, "end_turn", MODEL)
        assert message.usage.output_tokens == 8

    def test_a_stream(self, claude: anthropic.Anthropic) -> None:
        with claude.messages.stream(**self._asked(QUESTION)) as stream:
            texts = list(stream.text_stream)
            final = stream.get_final_message()
        assert len(texts) > 2
        assert "".join(texts) == ANSWER
        assert final.stop_reason == "end_turn"

    def test_the_prompt_is_counted(self, claude: anthropic.Anthropic) -> None:
        counted = claude.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": QUESTION}])
        usage = claude.messages.create(**self._asked(QUESTION)).usage
        assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)

    @pytest.mark.parametrize("chosen", ["any", "get_time"])
    def test_a_forced_call(self, claude: anthropic.Anthropic, chosen: str) -> None:
        choice = {"type": "any"} if chosen == "any" else {"type": "tool", "name": chosen}
        choice["disable_parallel_tool_use"] = True  # type: ignore[assignment]
        message = claude.messages.create(**self._asked(WEATHER_QUESTION, tools=self._tools(), tool_choice=choice))
        call = message.content[-1]
        assert call.type == "tool_use"
        assert message.stop_reason == "tool_use"
        assert call.name == ("get_weather" if chosen == "any" else chosen)
        jsonschema.validate(call.input, SCHEMAS[call.name])

    def test_several_turns(self, claude: anthropic.Anthropic) -> None:
        said: list[Any] = [{"role": "user", "content": WEATHER_QUESTION}]
        choice = {"type": "any", "disable_parallel_tool_use": True}
        called = claude.messages.create(**self._asked(said, tools=self._tools()[:1], tool_choice=choice))
        call: Any = called.content[-1]
        said.append({"role": "assistant", "content": called.content})
        said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]})
        reply: Any = claude.messages.create(**self._asked(said, tools=self._tools()[:1]))
        assert "21" in reply.content[0].text

    def test_a_value(self, claude: anthropic.Anthropic) -> None:
        found = claude.messages.parse(**self._asked(WEATHER_QUESTION), output_format=Weather).parsed_output
        assert isinstance(found, Weather)

    def test_an_answer_that_is_cut_off(self, claude: anthropic.Anthropic) -> None:
        assert claude.messages.create(**self._asked(QUESTION, max_tokens=3)).stop_reason == "max_tokens"

    def test_a_stop_sequence(self, claude: anthropic.Anthropic) -> None:
        message: Any = claude.messages.create(**self._asked(QUESTION, stop_sequences=[" of"]))
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " of")
        assert message.content[0].text == "The capital"

    def test_another_model(self, claude: anthropic.Anthropic) -> None:
        with pytest.raises(anthropic.NotFoundError):
            claude.messages.create(**self._asked(QUESTION, model="another"))
