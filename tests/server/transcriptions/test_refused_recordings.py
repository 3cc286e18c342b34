"""Recordings that are refused: no sound files, and those that are too large or too long. Silence is not refused."""

from __future__ import annotations

import httpx
import numpy as np
import openai
import pytest

from ...support.real_speech import RATE
from .support import (
    FORMATS,
    PREFIX,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    ScriptedListener,
    SpeechServer,
    encoded,
    form,
    frames,
    jfk,
    picture,
    refused,
    wav,
    weasels,
)

pytestmark = pytest.mark.system


def test_no_recordings(speech: SpeechServer) -> None:
    cases = {
        b"": "is empty",
        b"Dear Sir or Madam,\n" * 500: "send one of flac, mp3",
        picture(): "send one of flac, mp3",
        jfk()[:30]: "sound",
        wav(np.zeros(0, np.float32)): "no sound",
    }
    for file, said in cases.items():
        for stream in ("false", "true"):
            error = refused(speech.post(file, stream=stream), 400)
            assert said in error["message"]
            assert error["param"] == "file"
            assert "/tmp" not in error["message"]


def test_the_client_is_told_what_is_wrong(speech: SpeechServer) -> None:
    create = speech.client.audio.transcriptions.create
    with pytest.raises(openai.BadRequestError, match="send one of flac, mp3"):
        create(model="whisper-1", file=("letter.mp3", b"Dear Sir or Madam,"))
    with pytest.raises(openai.NotFoundError, match="'whisper-9' does not transcribe here"):
        create(model="whisper-9", file=("a.wav", weasels()))


def test_no_file(speech: SpeechServer) -> None:
    for fields in ({}, {"file": "speech.wav"}):
        files = {"other": b""}
        error = refused(httpx.post(speech.server.url + TRANSLATIONS, data=fields, files=files), 400)
        assert (error["param"], "file is missing" in error["message"]) == ("file", True)


@pytest.mark.parametrize("shape", FORMATS)
def test_silence(speech: SpeechServer, shape: str) -> None:
    response = speech.post(wav(np.zeros(2 * RATE, np.float32)), response_format=shape)
    assert response.status_code == 200
    if "json" in shape:
        found = response.json()
        assert (found["text"], found["language"]) == ("", None)
        assert found.get("segments", []) == []
    else:
        assert response.text.strip() == ("WEBVTT" if shape == "vtt" else "")


@pytest.mark.parametrize("announced", [True, False])
def test_too_large(speech: SpeechServer, announced: bool) -> None:
    speech.server.service.max_audio = 50_000
    body, kind = form(weasels())
    content = body if announced else iter([body[:1000], body[1000:60_000], body[60_000:]])
    response = httpx.post(speech.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": kind})
    error = refused(response, 413)
    assert error["param"] == "file"
    assert error["message"] == "the recording is larger than 50000 bytes, the most that this server takes"


@pytest.mark.parametrize("announced", [True, False])
def test_a_form_that_is_too_large(speech: SpeechServer, announced: bool) -> None:
    """It is not read to its end."""
    speech.server.service.max_audio = 50_000
    body, kind = form(bytes(2_000_000))
    content = body if announced else iter([body[at : at + 10_000] for at in range(0, len(body), 10_000)])
    response = httpx.post(speech.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": kind})
    error = refused(response, 413)
    assert error["param"] == "file"
    assert error["message"] == "the form is larger than 1050000 bytes: a recording may have 50000, and all else 1000000"


def test_only_the_recording_counts(speech: SpeechServer, listener: ScriptedListener) -> None:
    """A file may be just as large as it may, whatever else the form has."""
    listener.say(*PREFIX, " Hello")
    speech.server.service.max_audio = len(weasels())
    assert speech.post(weasels(), prompt="word " * 10_000).json()["text"] == "Hello"
    refused(speech.post(weasels() + b"x"), 413)


def test_too_large_for_the_client(speech: SpeechServer) -> None:
    """It is told, though it still sends."""
    with pytest.raises(openai.APIStatusError, match="larger than") as raised:
        speech.client.audio.transcriptions.create(model="whisper-1", file=("a.wav", bytes(26_000_000)))
    assert raised.value.status_code == 413


def test_announced_too_large(speech: SpeechServer) -> None:
    """It is refused at once, and not waited for."""
    with speech.connect() as connection:
        head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        connection.sendall(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("promised", [True, False])
def test_too_long(speech: SpeechServer, stream: str, promised: bool) -> None:
    speech.server.service.max_audio_seconds = 2.0
    error = refused(speech.post(weasels() if promised else encoded("mp3"), stream=stream), 413)
    assert (error["param"], "0.03333 minutes" in error["message"]) == ("file", True)


def test_too_long_in_the_middle_of_a_stream(speech: SpeechServer, listener: ScriptedListener) -> None:
    """Where a file does not say how long it is, what came before stays."""
    listener.say(*PREFIX, " Hello")
    speech.server.service.max_audio_seconds = 45.0
    delta, error = frames(speech.post(encoded("mpga", "demo-instruct"), stream="true"))
    assert delta["delta"] == "Hello"
    assert error["error"]["param"] == "file"
    assert "longer than" in error["error"]["message"]
