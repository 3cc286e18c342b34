"""A running server that converses and transcribes live, with models that say what a test wants, and clients of it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import websockets
from websockets.asyncio.client import ClientConnection

from unbraid.engines.replay import ReplayEngine, Script
from unbraid.server.service import Service
from unbraid.speech.audio.decode import Samples
from unbraid.speech.audio.pcm import write_sound
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.tokens import WhisperVocabulary
from unbraid.templates import built_in

from ...speech.live.talking import LevelVoice, WordListener
from ...support.real_tokenizers import whisper_like
from ...support.running_server import RunningServer, service_of
from ...support.waiting import PATIENCE

CODE_MS = 40
"""Milliseconds of sound that a code is."""


class Tones:
    """A vocoder: each code is 40 ms of a level of its own, at 24 kHz."""

    rate = 24_000
    format = "pcm16"

    def voice(self) -> Tones:
        return Tones()

    def feed(self, codes: Sequence[int]) -> bytes:
        levels = np.repeat(np.array(codes, np.float64) / 10_000, CODE_MS * self.rate // 1000)
        return write_sound(levels.astype(np.float32), "pcm")

    def finish(self) -> bytes:
        return b""


def listener() -> WordListener:
    return WordListener(WhisperVocabulary(whisper_like()))


def service(scripts: Sequence[Script] = (), of: WordListener | None = None, **settings: Any) -> Service:
    """Step-Audio 2, played, with tones for a voice; and a listener, if one is given."""
    engine = ReplayEngine(list(scripts), repeat=True)
    if of is not None:
        settings["transcriber"] = Transcriber(of, detector=LevelVoice())  # type: ignore[arg-type]
        settings["listener_names"] = ("words", "whisper-1")
    template = built_in("step-audio-2")
    return service_of(engine, "step-audio-2", template=template, vocoder=Tones(), names=("speaker",), **settings)


def engine_of(service: Service) -> ReplayEngine:
    engine = service.models[0].engine
    assert isinstance(engine, ReplayEngine)
    return engine


class Client:
    """A client of raw events."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def append(self, samples: Samples, kind: str = "pcm") -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(write_sound(samples, kind)).decode())

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            event: dict[str, Any] = json.loads(await self.socket.recv())
        self.events.append(event)
        return event

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of a kind. Those before it are in `events`."""
        while (event := await self.next())["type"] != kind:
            assert event["type"] != "error" or kind == "error", event
        return event

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def text(self, kind: str) -> str:
        """The deltas of a kind, joined."""
        return "".join(event["delta"] for event in self.of(kind))


@asynccontextmanager
async def connected(
    server: RunningServer, query: str = "", *, headers: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[Client, None]:
    url = f"{server.url.replace('http', 'ws', 1)}/v1/realtime{query}"
    async with websockets.connect(url, additional_headers=headers, max_size=None, **options) as socket:
        client = Client(socket)
        created = await client.until("session.created")
        assert created["session"]["id"]
        yield client


def run(work: Callable[[], Awaitable[None]], seconds: float = 300.0) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await work()

    asyncio.run(bounded())


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
