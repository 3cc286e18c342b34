"""`POST /v1/audio/speech` with a speaker of the tests, by OpenAI's own client and by hand."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import threading
import wave
from collections.abc import AsyncGenerator, Iterator
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI

from unbraid.engines import EngineBusy, EngineFailed, Load
from unbraid.server.audio.speech import SoundName
from unbraid.server.service import Service
from unbraid.speech.synthesis import MEDIA_TYPES, SOUND_FORMATS, SoundFormat
from unbraid.speech.synthesis.speaker import CannotSpeak, SpeakRequest, Spoken

from ...speech.synthesis.test_encoding import decoded, tone
from ...support.running_server import RunningServer
from ...support.waiting import PATIENCE, wait_for

ROUTE = "/v1/audio/speech"


class ScriptedSpeaker:
    """Speaks half a second of a tone for each word. Before each, it waits until it may."""

    model = "speaker"
    rate = 24_000
    voices = ("low", "high")

    def __init__(self) -> None:
        self.requests: list[SpeakRequest] = []
        self.may = threading.Semaphore(0)
        self.waits = False
        self.error: Exception | None = None
        self.fails_after = 0
        self.left = 0
        self.closed = False

    @property
    def load(self) -> Load:
        return Load(1, 2)

    def check_request(self, request: SpeakRequest) -> None:
        if request.voice not in self.voices:
            raise CannotSpeak(f"voice: there is no {request.voice!r}; there are low, high", field="voice")

    async def speak(self, request: SpeakRequest) -> AsyncGenerator[Spoken, None]:
        self.requests.append(request)
        try:
            for number, word in enumerate(request.text.split()):
                if self.waits:
                    await asyncio.to_thread(self.may.acquire)
                if self.error is not None and number >= self.fails_after:
                    raise self.error
                yield Spoken(tone(0.5 / request.speed, 220.0 if request.voice == "low" else 440.0), len(word), 20)
        except (GeneratorExit, asyncio.CancelledError):
            self.left += 1
            raise

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServer]:
    speaker = ScriptedSpeaker()
    service = Service(models=(), speaker=speaker, speaker_names=("speaker", "tts-1"), max_speech=200)
    server = RunningServer(service)
    server.start()
    yield server
    server.stop()
    assert speaker.closed


@pytest.fixture
def speaker(running: RunningServer) -> Iterator[ScriptedSpeaker]:
    made = ScriptedSpeaker()
    before, running.service.speaker = running.service.speaker, made
    yield made
    made.may.release(100)
    running.service.speaker = before


@pytest.fixture
def client(running: RunningServer) -> OpenAI:
    return OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


def post(running: RunningServer, **body: Any) -> httpx.Response:
    return httpx.post(running.url + ROUTE, json={"input": "one two", **body}, timeout=PATIENCE)


@pytest.mark.parametrize("format", SOUND_FORMATS)
def test_every_format(client: OpenAI, speaker: ScriptedSpeaker, format: SoundFormat) -> None:
    reply = client.audio.speech.create(model="tts-1", voice="high", input="one two three", response_format=format)
    assert reply.response.headers["content-type"] == MEDIA_TYPES[format]
    rate, sound = decoded(reply.content, format)
    assert len(sound) / rate == pytest.approx(1.5, abs=0.1)
    spectrum = np.abs(np.fft.rfft(sound[rate // 4 : rate // 4 + rate]))
    assert abs(int(spectrum.argmax()) - 440) <= 2
    soon = format == "pcm"
    assert speaker.requests[0] == SpeakRequest(text="one two three", voice="high", speed=1.0, soon=soon)


def test_what_a_request_may_leave_open(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    """The format is mp3, as in OpenAI's API, and the voice the first."""
    reply = post(running, speed=2)
    assert reply.headers["content-type"] == "audio/mpeg"
    assert "content-length" not in reply.headers
    assert speaker.requests[0] == SpeakRequest(text="one two", voice="low", speed=2.0)
    post(running, voice={"id": "high"}, model="speaker", instructions="")
    assert speaker.requests[1].voice == "high"


def test_the_first_sentence_is_sent_before_the_second_is_made(client: OpenAI, speaker: ScriptedSpeaker) -> None:
    """As a user streams it: with what the client calls a streaming response."""
    speaker.waits = True
    speaker.may.release()
    options: dict[str, Any] = {"model": "tts-1", "voice": "low", "input": "one two", "response_format": "pcm"}
    with client.audio.speech.with_streaming_response.create(**options) as reply:
        parts = reply.iter_bytes()
        received = b""
        while len(received) < 24_000:
            received += next(parts)
        assert len(received) == 24_000  # half a second, and the second word is not allowed yet
        speaker.may.release()
        received += b"".join(parts)
    assert len(received) == 48_000


def test_events(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    """The same bytes, as OpenAI shapes its events."""
    whole = post(running, response_format="wav").content
    reply = post(running, response_format="wav", stream_format="sse")
    assert reply.headers["content-type"].startswith("text/event-stream")
    *frames, end, rest = reply.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert [event["type"] for event in events] == ["speech.audio.delta", "speech.audio.delta", "speech.audio.done"]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == whole
    assert events[-1]["usage"] == {"input_tokens": 6, "output_tokens": 40, "total_tokens": 46}
    with wave.open(io.BytesIO(whole)) as file:
        assert file.getframerate() == 24_000


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"voice": "shimmer"}, "voice", "there are low, high"),
        ({"voice": {"name": "low"}}, "voice", '{"id": NAME}'),
        ({"input": ""}, "input", "length >= 1"),
        ({"input": "x" * 201}, "input", "201 characters, and 200 are the most"),
        ({"speed": 5}, "speed", "<= 4.0"),
        ({"response_format": "midi"}, "response_format", "midi"),
        ({"stream_format": "chunks"}, "stream_format", "chunks"),
        ({"instructions": "Whisper."}, "instructions", "takes none"),
        ({"inputs": "x"}, "inputs", "did you mean input?"),
    ],
)
def test_what_is_refused(
    running: RunningServer, speaker: ScriptedSpeaker, body: dict[str, Any], param: str, message: str
) -> None:
    reply = post(running, **body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert message in error["message"]
    assert speaker.requests == []


def test_models_and_voices(running: RunningServer, client: OpenAI, speaker: ScriptedSpeaker) -> None:
    assert [model.id for model in client.models.list()] == ["speaker", "tts-1"]
    assert client.models.retrieve("tts-1").id == "tts-1"
    assert httpx.get(f"{running.url}/v1/audio/voices").json() == {"voices": ["low", "high"]}
    assert httpx.get(f"{running.url}/ready").json() == {"status": "ready"}
    with pytest.raises(NotFoundError, match="does not speak here; it is 'speaker', 'tts-1'"):
        client.audio.speech.create(model="tts-9", voice="low", input="Hi.")
    with pytest.raises(NotFoundError, match="only transcribes or speaks"):
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "Hi"}])


def test_no_model_that_speaks(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    running.service.speaker = None
    for reply in (post(running), httpx.get(f"{running.url}/v1/audio/voices")):
        assert reply.status_code == 404
        assert "start with --speech-model kokoro" in reply.json()["error"]["message"]
    running.service.speaker = speaker


def test_an_engine_that_is_busy_or_fails_at_once(
    running: RunningServer, client: OpenAI, speaker: ScriptedSpeaker
) -> None:
    speaker.error = EngineBusy("the model has 2 texts to speak: try again later")
    reply = post(running)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_busy")
    assert "retry-after" in reply.headers
    speaker.error = CannotSpeak("input has nothing that can be spoken", field="input")
    with pytest.raises(BadRequestError, match="nothing that can be spoken"):
        client.audio.speech.create(model="tts-1", voice="low", input="?")
    speaker.error = EngineFailed("out of breath")
    for stream_format in ("audio", "sse"):
        with pytest.raises(APIStatusError, match="out of breath"):
            client.audio.speech.create(
                model="tts-1", voice="low", input="a", extra_body={"stream_format": stream_format}
            )


def test_a_file_that_is_not_whole_is_cut_off(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    """There is no other way to say so. As an event, there is."""
    speaker.error, speaker.fails_after = EngineFailed("out of breath"), 1
    with pytest.raises(httpx.RemoteProtocolError):
        post(running, response_format="pcm")
    reply = post(running, response_format="pcm", stream_format="sse")
    assert "speech.audio.delta" in reply.text
    assert "out of breath" in reply.text
    assert "speech.audio.done" not in reply.text


def test_a_client_that_leaves_ends_the_work(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    speaker.waits = True
    speaker.may.release()
    body = json.dumps({"input": "one two three", "response_format": "pcm"}).encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    speaker.may.release()
    wait_for(lambda: speaker.left == 1)


def test_metrics(running: RunningServer, speaker: ScriptedSpeaker) -> None:
    post(running)
    text = httpx.get(f"{running.url}/metrics").text
    assert 'unbraid_engine_running{model="speaker"} 1.0' in text
    assert 'unbraid_engine_waiting{model="speaker"} 2.0' in text
    assert f'unbraid_requests_total{{route="{ROUTE}",status="200"}}' in text


def test_the_formats_of_a_request_are_those_that_can_be_written() -> None:
    assert get_args(SoundName) == SOUND_FORMATS
