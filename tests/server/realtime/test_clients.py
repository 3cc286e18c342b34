"""The clients that people use: `openai`'s realtime interface, and the realtime sessions of `openai-agents`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from unbraid.engines.replay import script
from unbraid.speech.audio.pcm import Resampler, write_sound

from ...speech.live.talking import say, silence
from ...speech.word_errors import words
from ...support.running_server import RunningServer, serving
from .support import listener, run, service

CALL = '<tool_call>function\nweather\n{"city": "Paris"}</tool_call>'
SPEECH = "It<audio_100> is<audio_200> sunny.<audio_300><tts_end>"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving(service([script(CALL), script(SPEECH)], of=listener())) as running:
        yield running


def pcm24(sound: np.ndarray) -> bytes:
    return write_sound(Resampler(16_000, 24_000).feed(sound), "pcm")


def test_openai_transcribes(server: RunningServer) -> None:
    async def tried() -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        async with client.realtime.connect(model="whisper-1", extra_query={"intent": "transcription"}) as connection:
            await connection.session.update(session={"type": "transcription"})
            sound = pcm24(np.concatenate([silence(0.4), say(["one", "two", "three"], gap=0.02), silence(1.0)]))
            for at in range(0, len(sound), 4_800):
                await connection.input_audio_buffer.append(audio=base64.b64encode(sound[at : at + 4_800]).decode())
            text = ""
            async for event in connection:
                if event.type == "conversation.item.input_audio_transcription.delta":
                    text += event.delta or ""
                if event.type == "conversation.item.input_audio_transcription.completed":
                    assert event.transcript == text
                    break
            assert words(text) == ["one", "two", "three"]
        await client.close()

    run(tried)


def test_openai_converses() -> None:
    async def tried() -> None:
        with serving(service([script(SPEECH)])) as running:
            client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="any")
            async with client.realtime.connect(model="speaker") as connection:
                item: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
                await connection.conversation.item.create(item=item)
                await connection.response.create()
                text, sound = "", b""
                async for event in connection:
                    if event.type == "response.output_audio_transcript.delta":
                        text += event.delta
                    elif event.type == "response.output_audio.delta":
                        sound += base64.b64decode(event.delta)
                    elif event.type == "response.done":
                        assert event.response.status == "completed"
                        break
                assert text == "It is sunny."
                assert len(sound) == 3 * 40 * 24 * 2
            await client.close()

    run(tried)


def test_an_agent_calls_its_tool_and_speaks(server: RunningServer) -> None:
    from agents import function_tool  # takes seconds: not when tests are collected
    from agents.realtime import RealtimeAgent, RealtimeRunner

    asked: list[str] = []

    @function_tool  # type: ignore[untyped-decorator]
    def weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return "sunny"

    async def tried() -> None:
        agent = RealtimeAgent(name="guide", instructions="Answer.", tools=[weather])
        runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "speaker"}})
        url = f"{server.url.replace('http', 'ws', 1)}/v1/realtime?model=speaker"
        session = await runner.run(model_config={"url": url, "api_key": "any"})
        sound, turns = b"", 0
        async with session:
            await session.send_message("How is the weather in Paris?")
            async with asyncio.timeout(120):
                async for event in session:
                    assert event.type != "error", event
                    if event.type == "audio":
                        sound += event.audio.data
                    elif event.type == "agent_end":
                        turns += 1
                        if sound:
                            break
        assert asked == ["Paris"]
        assert turns == 2
        assert len(sound) == 3 * 40 * 24 * 2

    run(tried)
