"""Anthropic's own client on scripted outputs: messages, streams, tools, thinking, JSON, counting and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import ToolParam
from pydantic import BaseModel

from unbraid.engines import EngineFailed, Generation
from unbraid.engines.replay import Script, script

from ..support.real_tokenizers import encode
from ..support.scripted_server import HELLO, Scripted
from ..support.waiting import PATIENCE

ASKED: dict[str, Any] = {"model": "qwen", "max_tokens": 500, "messages": HELLO}
WEATHER: ToolParam = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THOUGHT = "<think>\nA city, 你好。\n</think>\n\n"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'


@pytest.fixture(scope="module")
def api() -> Iterator[Scripted]:
    scripted = Scripted()
    scripted.server.start()
    yield scripted
    scripted.server.stop()


@pytest.fixture
def client(api: Scripted) -> Iterator[Anthropic]:
    with Anthropic(base_url=api.server.url, api_key="any", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.mark.parametrize("chunks", [1, 5, 1000])
def test_a_stream_is_the_whole_message(api: Scripted, client: Anthropic, chunks: int) -> None:
    api.say(f"{THOUGHT}I look. 👋\n{CALL}<|im_end|>", chunks)
    whole = client.messages.create(**ASKED, tools=[WEATHER])
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.stop_reason == "tool_use"
    with client.messages.stream(**ASKED, tools=[WEATHER]) as stream:
        said = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert said == "I look. 👋"
    for message in (whole, streamed):
        thinking, _, call = message.model_dump()["content"]
        assert thinking["thinking"] == "A city, 你好。"
        assert call["input"] == {"city": "Zürich"}
    assert streamed.content[0] == whole.content[0]
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert streamed.usage.input_tokens == whole.usage.input_tokens


def test_a_conversation_with_tools_and_thinking(api: Scripted, client: Anthropic) -> None:
    """The client's own loop: what the model wrote goes back as it came, with its signature."""
    cities: list[str] = []

    @beta_tool  # type: ignore[untyped-decorator]
    def weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: Which one.
        """
        cities.append(city)
        return "sunny"

    def choose(request: Generation) -> Script:
        text = f"{THOUGHT}{CALL}" if not cities else "It is sunny."
        return script(encode(api.tokenizer, f"{text}<|im_end|>"))

    api.choose = choose
    runner = client.beta.messages.tool_runner(**ASKED, tools=[weather], thinking={"type": "adaptive"})
    last = runner.until_done()
    assert cities == ["Zürich"]
    assert last.content[0].type == "text"
    assert last.content[0].text == "It is sunny."
    prompt = api.prompt()
    assert "A city, 你好。\n</think>" in prompt
    assert "<tool_response>\nsunny\n</tool_response>" in prompt


def test_json(api: Scripted, client: Anthropic) -> None:
    class City(BaseModel):
        name: str
        people: int

    api.say('{"name": "Ulm", "people": 126329}<|im_end|>')
    parsed = client.messages.parse(**ASKED, output_format=City, thinking={"type": "disabled"})
    assert parsed.parsed_output == City(name="Ulm", people=126329)
    assert api.engine.requests[-1].constraint is not None


def test_counting(api: Scripted, client: Anthropic) -> None:
    api.say("Hi.")
    asked: dict[str, Any] = {"model": "qwen", "messages": HELLO, "tools": [WEATHER], "system": "Be brief."}
    count = client.messages.count_tokens(**asked).input_tokens
    assert client.messages.create(**asked, max_tokens=5).usage.input_tokens == count


def test_errors(api: Scripted, client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="top_p") as wrong:
        client.messages.create(**ASKED, extra_body={"top_p": 7})
    assert wrong.value.request_id
    with pytest.raises(anthropic.NotFoundError, match="not served here"):
        client.messages.create(**{**ASKED, "model": "claude"})
    api.choose = lambda _: script(encode(api.tokenizer, "Hi there."), ending=EngineFailed("out of order"))
    with pytest.raises(anthropic.InternalServerError, match="out of order"):
        client.messages.create(**ASKED)
    with (
        pytest.raises(anthropic.APIStatusError, match="out of order"),
        client.messages.stream(**ASKED) as stream,
    ):
        stream.until_done()
    api.service.api_keys = ("sesame",)
    try:
        with pytest.raises(anthropic.AuthenticationError):
            client.messages.create(**ASKED)
    finally:
        api.service.api_keys = ()


def test_models(client: Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["qwen"]
    assert client.models.retrieve("qwen").max_input_tokens == 4096


def test_the_asynchronous_client(api: Scripted) -> None:
    async def ask() -> str:
        async with (
            AsyncAnthropic(base_url=api.server.url, auth_token="any", max_retries=0, timeout=PATIENCE) as client,
            client.messages.stream(**ASKED) as stream,
        ):
            return str(await stream.get_final_text())

    api.say("Hi there.<|im_end|>", 2)
    assert asyncio.run(ask()) == "Hi there."
