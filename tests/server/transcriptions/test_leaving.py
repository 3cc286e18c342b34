"""Clients that leave in the middle, and a server that shuts down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import pytest

from unbraid.engines.base import Load
from unbraid.server import http
from unbraid.server.audio import transcription_reply as transcription_replies
from unbraid.server.http import expire_all
from unbraid.speech import transcriber
from unbraid.speech.audio.chunking import Chunk
from unbraid.speech.audio.decode import AudioBlocks, AudioLimits

from ...support.real_speech import RATE
from ...support.waiting import wait_for
from .support import (
    PREFIX,
    ScriptedListener,
    SpeechServer,
    minutes,
    weasels,
)

pytestmark = pytest.mark.system


def test_ending_in_the_middle_of_the_upload(speech: SpeechServer) -> None:
    """Who sends is told, and not waited for."""
    with speech.asking(weasels(), share=0.5) as connection:
        wait_for(lambda: bool(http._working))
        speech.server.call(expire_all)
        answer = b""
        while b"\r\n\r\n" not in answer or b"}" not in answer:
            answer += connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"shutdown"' in answer


def test_leaving_in_the_middle_of_the_upload(speech: SpeechServer, caplog: pytest.LogCaptureFixture) -> None:
    before = speech.aborted
    with speech.asking(weasels(), share=0.5):
        wait_for(lambda: bool(http._working))
    wait_for(lambda: speech.aborted == before + 1)
    assert "should not have happened" not in caplog.text


@pytest.mark.parametrize(("stream", "late"), [("false", False), ("true", False), ("true", True)])
def test_leaving_in_the_middle_of_the_decoding(speech: SpeechServer, stream: str, late: bool) -> None:
    """The model does not go on for nobody: there is work for some seconds more."""
    before = speech.aborted
    with speech.asking(minutes(), stream=stream) as connection:
        wait_for(lambda: speech.engine.load.running > 0)
        if late:
            assert connection.recv(100)
    wait_for(lambda: speech.aborted == before + 1)
    wait_for(lambda: not speech.server.service.metrics.in_flight)  # so nothing asks for more
    wait_for(lambda: speech.engine.load == Load(0, 0))


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("parts", [(), PREFIX, (*PREFIX, " Hello")])
def test_leaving_a_listener(
    speech: SpeechServer, listener: ScriptedListener, stream: str, parts: tuple[str, ...]
) -> None:
    """At whatever point it is."""
    listener.say(*parts)
    listener.hangs = True
    with speech.asking(weasels(), stream=stream):
        wait_for(lambda: listener.asked == 1)
    wait_for(lambda: listener.left == 1)


class Slow:
    """A file that is read up to some point, and on once the test lets it."""

    def __init__(self, file: BinaryIO, up_to: int) -> None:
        self._file = file
        self._up_to = up_to
        self.waits, self.go_on = threading.Event(), threading.Event()

    def read(self, count: int = -1) -> bytes:
        if self._file.tell() >= self._up_to:
            self.waits.set()
            assert self.go_on.wait(60)
        return self._file.read(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(("stream", "late"), [("false", False), ("true", False), ("false", True), ("true", True)])
def test_leaving_while_the_file_is_read(
    speech: SpeechServer,
    listener: ScriptedListener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stream: str,
    late: bool,
) -> None:
    """A thread reads it, and cannot be stopped: its file is closed when it has come back."""
    listener.say(*PREFIX, " Hello")
    slow: list[Slow] = []

    def read_slowly(file: BinaryIO, *, limits: AudioLimits) -> AudioBlocks:
        slow.append(Slow(file, 2_000_000 if late else 0))
        return AudioBlocks(cast(BinaryIO, slow[0]), limits)

    left = threading.Event()

    async def next_chunk(scanner: Any, chunks: Iterator[Chunk | None]) -> Chunk | None:
        reading = asyncio.ensure_future(real_next(scanner, chunks))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            left.set()
            reading.cancel()
            await asyncio.wait([reading])
            raise

    real_next = transcriber._Scanner.next
    monkeypatch.setattr(transcriber._Scanner, "next", next_chunk)
    monkeypatch.setattr(transcription_replies, "read", read_slowly)
    before = speech.aborted
    with speech.asking(minutes(), stream=stream) as connection:
        wait_for(lambda: bool(slow))
        assert slow[0].waits.wait(60)
        if late and stream == "true":
            assert connection.recv(1000)
    assert left.wait(60)
    slow[0].go_on.set()
    wait_for(lambda: speech.aborted == before + 1)
    wait_for(lambda: bool(slow[0]._file.closed))
    assert caplog.text == ""
    assert listener.asked == (2_000_000 // (30 * 2 * RATE) if late else 0)
