"""A conversation that one can hold: OpenAI's client, Whisper, Kokoro, and a model that writes what a test wants.

What is said is synthetic speech, and what comes back is transcribed again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.service import Service
from unbraid.speech.audio.decode import Samples
from unbraid.speech.audio.pcm import Resampler, write_sound
from unbraid.speech.audio.vad import SpeechDetector
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.synthesis.kokoro import KokoroSpeaker
from unbraid.speech.synthesis.speaker import SpeakRequest
from unbraid.speech.transcriber import Transcriber

from ...speech.synthesis.kokoro_models import kokoro_files
from ...speech.whisper.whisper_models import whisper_engine
from ...speech.word_errors import words
from ...support.running_server import RunningServer, service_of, serving
from .support import engine_of, run

pytestmark = pytest.mark.system

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris. It is a very old city, and it lies on the river."
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
PATIENT: Any = {"ping_timeout": None}
"""A machine with much to do may not answer in twenty seconds."""
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = ReplayEngine([script(ANSWER, chunks=4)], repeat=True)
    transcriber = Transcriber(whisper_engine("whisper-base"), detector=SpeechDetector())
    made = service_of(
        engine,
        "hermes",
        names=("writer",),
        transcriber=transcriber,
        listener_names=("whisper-base", "whisper-1"),
        speaker=KokoroSpeaker(kokoro_files()),
        speaker_names=("kokoro",),
    )
    with serving(made) as running:
        yield running


async def spoken(service: Service, text: str) -> Samples:
    """The text, said by another voice; at 24 kHz, with silence before and after it."""
    assert service.speaker is not None
    request = SpeakRequest(text=text, voice="am_michael")
    parts = [stretch.sound async for stretch in service.speaker.speak(request)]
    pause = np.zeros(24_000, np.float32)
    return np.concatenate([pause, *parts, pause])


async def transcribed(service: Service, sound: bytes) -> str:
    assert service.transcriber is not None
    samples = np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32768)
    resampler = Resampler(24_000, 16_000)
    options = TranscriptionOptions(language="en")
    return (await service.transcriber.transcribe([resampler.feed(samples), resampler.finish()], options)).text


@dataclass
class Heard:
    """What a client got."""

    kinds: list[str] = field(default_factory=list)
    asked: str = ""
    said: str = ""
    sound: bytes = b""
    item: str = ""
    transcript: str = ""
    """Of an item that was asked for."""
    done: Any = None


async def listen(connection: Any, until: str = "response.done", sound: int = 0) -> Heard:
    """All events up to one of a kind, or to so many bytes of sound."""
    heard = Heard()
    async with asyncio.timeout(300):
        async for event in connection:
            heard.kinds.append(event.type)
            assert event.type != "error", event
            if event.type == "conversation.item.input_audio_transcription.completed":
                heard.asked = event.transcript
            elif event.type == "response.output_audio_transcript.delta":
                heard.said += event.delta
            elif event.type == "response.output_audio.delta":
                heard.sound += base64.b64decode(event.delta)
                heard.item = event.item_id
            elif event.type == "conversation.item.retrieved":
                heard.transcript = event.item.content[0].transcript
            elif event.type == "response.done":
                heard.done = event.response
            if event.type == until or 0 < sound <= len(heard.sound):
                break
    return heard


async def speak(connection: Any, sound: Samples) -> None:
    data = write_sound(sound, "pcm")
    for at in range(0, len(data), 9_600):
        await connection.input_audio_buffer.append(audio=base64.b64encode(data[at : at + 9_600]).decode())


def test_a_question_is_heard_and_answered_aloud(server: RunningServer) -> None:
    async def tried() -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        async with client.realtime.connect(model="writer", websocket_connection_options=PATIENT) as connection:
            voice: Any = {"type": "realtime", "output_modalities": ["audio"], "audio": {"output": {"voice": "marin"}}}
            await connection.session.update(session=voice)
            await speak(connection, await spoken(server.service, QUESTION))
            heard = await listen(connection)
            assert words(heard.asked) == words(QUESTION)
            prompt = engine_of(server.service).requests[-1].prompt
            assert isinstance(prompt, str)
            assert heard.asked in prompt
            assert heard.said == ANSWER
            assert words(await transcribed(server.service, heard.sound)) == words(ANSWER)
            order = ["input_audio_buffer.speech_started", "input_audio_buffer.committed", "response.created"]
            order += ["response.output_audio_transcript.delta", "response.output_audio.delta", "response.done"]
            assert [heard.kinds.index(kind) for kind in order] == sorted(heard.kinds.index(kind) for kind in order)
        await client.close()

    run(tried)


def test_whoever_speaks_interrupts_and_the_item_is_cut(server: RunningServer) -> None:
    async def tried() -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        long = "The capital of France is Paris. " + "It is a very old city, and it lies on the river. " * 8
        engine_of(server.service)._scripts = [script(long, chunks=4)]
        interruption = await spoken(server.service, "Stop, thank you, that is enough.")
        async with client.realtime.connect(model="writer", websocket_connection_options=PATIENT) as connection:
            await speak(connection, await spoken(server.service, QUESTION))
            begun = await listen(connection, sound=2 * 24_000)
            await speak(connection, interruption)
            rest = await listen(connection)
            assert rest.done.status == "cancelled"
            assert rest.done.status_details.reason == "turn_detected"
            assert len(begun.said + rest.said) < len(long)
            await connection.conversation.item.truncate(item_id=begun.item, content_index=0, audio_end_ms=1000)
            await listen(connection, "conversation.item.truncated")
            await connection.conversation.item.retrieve(item_id=begun.item)
            cut = (await listen(connection, "conversation.item.retrieved")).transcript
            assert 0 < len(cut) < len("The capital of France is Paris.")
            assert long.startswith(cut)
        await client.close()

    run(tried)


def test_a_tool_is_called_and_its_result_is_told(server: RunningServer) -> None:
    async def tried() -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        engine_of(server.service)._scripts = [script(CALL), script("It is sunny in Paris.")]
        async with client.realtime.connect(model="writer", websocket_connection_options=PATIENT) as connection:
            await connection.session.update(session={"type": "realtime", "tools": [TOOL]})
            await speak(connection, await spoken(server.service, "How is the weather in Paris?"))
            (call,) = (await listen(connection)).done.output
            assert (call.name, call.arguments) == ("weather", '{"city": "Paris"}')
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
            await connection.conversation.item.create(item=result)
            await connection.response.create()
            heard = await listen(connection)
            assert words(await transcribed(server.service, heard.sound)) == words("It is sunny in Paris.")
        await client.close()

    run(tried)
