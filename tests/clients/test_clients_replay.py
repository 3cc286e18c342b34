"""OpenAI's client, and what the small model of the other tests cannot do by itself: reasoning, calls side by side and
speech. The outputs are scripted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import OpenAI

from unbraid.engines.replay import ReplayEngine, script
from unbraid.templates import built_in
from unbraid.tokens import vocabulary

from ..support.real_tokenizers import encode, qwen3_huggingface, step_audio_2
from ..support.running_server import folded, service_of, serving
from ..support.spoken_turn import spoken_turn
from ..support.waiting import PATIENCE
from .client_suite import essence, written

MODEL = "replay"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]
THOUGHT = "\nThe user greets me.\nI greet back: 你好！\n"
REASONING = f"<think>{THOUGHT}</think>\n\nHello! 👋<|im_end|>"
CALLS = (
    "I look it up.\n"
    '<tool_call>\n{"name": "search", "arguments": {"query": "weather in Shanghai"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "search", "arguments": {"query": "上海的天气"}}\n</tool_call><|im_end|>'
)
CHUNKINGS = [1, (1, 7), 10_000]


@contextmanager
def client_of(format: str, output: str, chunks: Any, **settings: Any) -> Iterator[OpenAI]:
    """A client of a server whose model always writes the same, in tokens of Qwen3."""
    tokenizer = qwen3_huggingface()
    scripts = [script(encode(tokenizer, output), chunks=chunks)]
    engine = ReplayEngine(scripts, vocabulary=vocabulary(tokenizer), model=MODEL, repeat=True)
    with (
        serving(service_of(engine, format, tokenizer=tokenizer, **settings)) as server,
        client_to(server.url) as client,
    ):
        yield client


def client_to(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


def replies(client: OpenAI, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a whole reply, and that of a streamed one."""
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], **options}
    whole: Any = client.chat.completions.create(**asked)
    stream: Any = client.chat.completions.create(**asked, stream=True)
    streamed = folded([chunk.model_dump(exclude_unset=True) for chunk in stream])[0]
    found = written(whole.choices[0])
    assert essence(streamed) == essence(found)
    return found, streamed


# Reasoning


@pytest.mark.parametrize("chunks", CHUNKINGS, ids=str)
def test_reasoning(chunks: Any) -> None:
    with client_of("qwen3", REASONING, chunks) as client:
        for message in replies(client):
            assert message["content"].strip() == "Hello! 👋"
            assert message["reasoning_content"] == message["reasoning"]
            assert message["reasoning"].strip() == THOUGHT.strip()
            assert message["finish_reason"] == "stop"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_one_field_of_reasoning(field: str) -> None:
    (other,) = {"reasoning_content", "reasoning"} - {field}
    with client_of("qwen3", REASONING, 1, reasoning_field=field) as client:
        for message in replies(client):
            assert message[field].strip() == THOUGHT.strip()
            assert other not in message


def test_reasoning_as_attributes() -> None:
    """Fields that the client has no types for are there all the same."""
    with client_of("qwen3", REASONING, 3) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
        message: Any = client.chat.completions.create(**asked).choices[0].message
        assert message.reasoning_content.strip() == message.reasoning.strip() == THOUGHT.strip()
        thought = ""
        for chunk in client.chat.completions.create(**asked, stream=True):
            delta: Any = chunk.choices[0].delta
            thought += getattr(delta, "reasoning_content", None) or ""
        assert thought.strip() == THOUGHT.strip()


def test_reasoning_that_is_not_separated() -> None:
    with client_of("qwen3", REASONING, 2) as client:
        for message in replies(client, extra_body={"separate_reasoning": False}):
            assert THOUGHT.strip() in message["content"]
            assert "Hello! 👋" in message["content"]
            assert message.get("reasoning_content") is None


# Calls


@pytest.mark.parametrize("format", ["hermes", "qwen3"])
@pytest.mark.parametrize("chunks", CHUNKINGS, ids=str)
def test_calls_side_by_side(format: str, chunks: Any) -> None:
    with client_of(format, CALLS, chunks) as client:
        for message in replies(client, tools=TOOLS):
            assert message["content"].strip() == "I look it up."
            assert message["finish_reason"] == "tool_calls"
            calls = message["tool_calls"]
            assert [call["function"]["name"] for call in calls] == ["search", "search"]
            queries = [json.loads(call["function"]["arguments"])["query"] for call in calls]
            assert queries == ["weather in Shanghai", "上海的天气"]
            assert len({call["id"] for call in calls}) == 2
            assert {call["type"] for call in calls} == {"function"}


def test_the_helper_for_streams_with_calls_side_by_side() -> None:
    with client_of("hermes", CALLS, 1) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS}
        with client.chat.completions.stream(**asked) as stream:
            events: list[Any] = list(stream)
            final: Any = stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.index for event in done] == [0, 1]
    assert [call.function.arguments for call in final.choices[0].message.tool_calls] == [e.arguments for e in done]


# Speech


@pytest.mark.parametrize("chunks", CHUNKINGS, ids=str)
def test_a_spoken_turn(chunks: Any) -> None:
    """The mixed turn of Step-Audio 2: text and audio in turn, then a call."""
    turn, tokenizer = spoken_turn(), step_audio_2()
    scripts = [script(turn.output, chunks=chunks)]
    engine = ReplayEngine(scripts, vocabulary=vocabulary(tokenizer), model=MODEL, repeat=True)
    service = service_of(engine, "step-audio-2", tokenizer=tokenizer, template=built_in("step-audio-2"))
    with serving(service) as server, client_to(server.url) as client:
        asked: dict[str, Any] = {"tools": TOOLS, "extra_body": {"tts_output": True}}
        for message in replies(client, **asked):
            assert message["tts_content"]["tts_text"] == turn.said
            assert message["tts_content"]["tts_audio"] == "".join(f"<audio_{code}>" for code in turn.codes)
            (call,) = message["tool_calls"]
            assert call["function"] == {"name": "search", "arguments": turn.arguments}
            assert message["finish_reason"] == "tool_calls"
            assert not message.get("content")
            assert message.get("reasoning_content") is None


def test_speech_as_attributes() -> None:
    turn, tokenizer = spoken_turn(), step_audio_2()
    engine = ReplayEngine([script(turn.output)], vocabulary=vocabulary(tokenizer), model=MODEL, repeat=True)
    service = service_of(engine, "step-audio-2", tokenizer=tokenizer, template=built_in("step-audio-2"))
    with serving(service) as server, client_to(server.url) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS}
        asked["extra_body"] = {"tts_output": True}
        message: Any = client.chat.completions.create(**asked).choices[0].message
        assert message.tts_content["tts_text"] == turn.said
        assert message.reasoning_content is None
        said = {"tts_text": "", "tts_audio": ""}
        pieces = 0
        for chunk in client.chat.completions.create(**asked, stream=True):
            speech = getattr(chunk.choices[0].delta, "tts_content", None) or {}
            pieces += bool(speech)
            for key, text in speech.items():
                said[key] += text
        assert said == message.tts_content
        assert pieces > 81
