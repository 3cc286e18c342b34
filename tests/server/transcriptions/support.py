"""A server with a real Whisper or a scripted listener, recordings in many formats, and requests to it."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import wave
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.base import Piece, TokenLogprob
from unbraid.engines.replay import ReplayEngine, script
from unbraid.speech.audio.decode import Samples
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import WhisperEngine

from ...speech.whisper.whisper_models import files, tokenizer
from ...support.real_speech import RATE, recording
from ...support.running_server import RunningServer, service_of

av: Any = pytest.importorskip("av", reason="av is not installed: pip install av")

TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
FORMATS = ("json", "text", "verbose_json", "srt", "vtt")
WEASELS = "weasels have eaten our phone system"

# Container, codec, options; by the endings that people know them by.
KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "wav": ("wav", "pcm_s16le", {}),
    "flac": ("flac", "flac", {}),
    "mp3": ("mp3", "libmp3lame", {}),
    "mpga": ("mp2", "mp2", {}),
    "mpeg": ("mpeg", "mp2", {}),
    "mp4": ("mp4", "aac", {}),
    "m4a": ("ipod", "aac", {}),
    "ogg": ("ogg", "vorbis", {"strict": "experimental"}),
    "opus": ("opus", "libopus", {}),
    "webm": ("webm", "libopus", {}),
}


@cache
def jfk() -> bytes:
    """Eleven seconds, of which every word is understood."""
    return recording("en", "jfk").path.read_bytes()


@cache
def weasels() -> bytes:
    """Three seconds."""
    return recording("en", "tt-weasels").path.read_bytes()


def wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


@cache
def minutes() -> bytes:
    """Speech that takes a while."""
    return wav(np.tile(recording("en", "demo-instruct").samples, 4))


def encoded(kind: str, name: str = "tt-weasels") -> bytes:
    """A recording in another kind of file."""
    container, codec, options = KINDS[kind]
    layout = "stereo" if codec == "vorbis" else "mono"  # FFmpeg's own encoder has stereo only
    samples = np.repeat(recording("en", name).samples, 2 if layout == "stereo" else 1)
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        try:
            stream = output.add_stream(codec, rate=RATE, layout=layout, options=options)
        except (av.FFmpegError, ValueError) as error:
            pytest.skip(f"this build of av cannot encode {codec}: {error}")
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout=layout)
        frame.sample_rate = RATE
        frame.pts = 0
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def picture() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="image2pipe") as output:
        stream = output.add_stream("png", rate=1)
        stream.width = stream.height = 64
        stream.pix_fmt = "rgb24"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


class SpeechServer:
    """A server that listens: with a real Whisper, or with what a test puts in its place."""

    def __init__(self) -> None:
        self.engine = WhisperEngine(files("whisper-tiny"), parallel=2)
        self.real = Transcriber(self.engine)
        chat = ReplayEngine([script("Hi there.")], repeat=True)
        names = (self.engine.model, "whisper-1")
        self.server = RunningServer(service_of(chat, "qwen3", transcriber=self.real, listener_names=names))

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.server.url}/v1", api_key="any", max_retries=0, timeout=120)

    def post(self, file: bytes | None = None, path: str = TRANSCRIPTIONS, **fields: Any) -> httpx.Response:
        upload = {} if file is None else {"file": ("speech.wav", file)}
        return httpx.post(self.server.url + path, data=fields, files=upload or {"other": b""}, timeout=120)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.server.url.rpartition(":")[2])), timeout=120)

    @contextmanager
    def asking(self, file: bytes, share: float = 1.0, **fields: str) -> Iterator[socket.socket]:
        """A connection over which a request was sent, or a part of it. It is closed at the end."""
        body, kind = form(file, **fields)
        with self.connect() as connection:
            head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            connection.sendall(body[: int(share * len(body))])
            yield connection

    @property
    def aborted(self) -> float:
        """How many requests ended because the client had gone."""
        return float(self.server.service.metrics.aborted.labels(TRANSCRIPTIONS)._value.get())


class ScriptedListener:
    """A listener that says what the test wants, a token at a time."""

    model = "listener"
    parallel = 1

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokens: list[int] = []
        self.error: Exception | None = None
        self.heard = 0
        """How many chunks it hears before it fails with the error."""
        self.hangs = False
        self.requests: list[ListenRequest] = []
        self.left = 0

    @property
    def asked(self) -> int:
        return len(self.requests)

    def say(self, *parts: str) -> None:
        """Each part a special token, or else text."""
        for part in parts:
            token = self.vocabulary.token_id(part) if part.startswith("<|") else None
            self.tokens += [token] if token is not None else encode(part)

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        try:
            for token in self.tokens:
                yield Piece((token,), logprobs=(TokenLogprob(token, b"", -0.1),))
            if self.error is not None and len(self.requests) > self.heard:
                raise self.error
            if self.hangs:
                await asyncio.Event().wait()
            yield ListenEnd("stop", len(request.prompt), len(self.tokens))
        except (GeneratorExit, asyncio.CancelledError):
            self.left += 1
            raise

    async def close(self) -> None:
        pass


def encode(text: str) -> list[int]:
    """Text that spells no token, whatever it looks like."""
    pieces = [text[:1], text[1:]] if text.startswith("<|") else [text]
    return [token for piece in pieces for token in tokenizer().encode(piece, add_special_tokens=False).ids]


PREFIX = ("<|en|>", "<|transcribe|>")


def words(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", "", text.casefold()).split())


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, which is always of the same shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return dict(error)


def frames(response: httpx.Response) -> list[Any]:
    """What a stream says, which ends as it should."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *found, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in found]


def form(file: bytes, **fields: str) -> tuple[bytes, str]:
    """A form's body, and its content type."""
    request = httpx.Request("POST", "http://x", data=fields, files={"file": ("speech.wav", file)})
    return request.read(), request.headers["content-type"]
