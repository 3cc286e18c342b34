"""The server that the tests of transcriptions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unbraid.speech.transcriber import Transcriber

from .support import (
    ScriptedListener,
    SpeechServer,
)


@pytest.fixture(scope="module")
def running() -> Iterator[SpeechServer]:
    speech = SpeechServer()
    speech.server.start()
    yield speech
    speech.server.stop()


@pytest.fixture
def speech(running: SpeechServer) -> Iterator[SpeechServer]:
    service = running.server.service
    most, longest = service.max_audio, service.max_audio_seconds
    yield running
    service.transcriber, service.max_audio, service.max_audio_seconds = running.real, most, longest


@pytest.fixture
def listener(speech: SpeechServer) -> ScriptedListener:
    listener = ScriptedListener(speech.engine.vocabulary)
    speech.server.service.transcriber = Transcriber(listener)
    return listener
