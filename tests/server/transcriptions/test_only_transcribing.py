"""A server that only transcribes: no chat model is loaded, and requests for one are told so."""

from __future__ import annotations

import argparse

import httpx
import pytest

from unbraid.server.service import Service
from unbraid.server.settings import Settings
from unbraid.server.settings_sources import add_flags, read_settings
from unbraid.speech.transcriber import Transcriber

from ...support.running_server import serving
from .support import PREFIX, ScriptedListener, SpeechServer, weasels


def settings(*flags: str) -> Settings:
    command = argparse.ArgumentParser()
    add_flags(command)
    return read_settings(command.parse_args(flags), {})


@pytest.mark.parametrize(
    ("flags", "models"),
    [
        ((), 1),
        (("--transcription-model", "whisper-tiny"), 0),
        (("--transcription-engine", "vllm", "--transcription-url", "http://gpu:1"), 0),
        (("--transcription-model", "whisper-tiny", "--model", "smollm2-135m-instruct"), 1),
        (("--transcription-model", "whisper-tiny", "--sglang", "http://gpu:1"), 1),
        (("--transcription-model", "whisper-tiny", "--model", "a=x.gguf", "--model", "b=y.gguf"), 2),
    ],
)
def test_which_models_are_loaded(flags: tuple[str, ...], models: int) -> None:
    assert len(settings(*flags).each_model()) == models


@pytest.mark.system
def test_it_transcribes_and_says_that_it_does_nothing_else(listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " Hello.")
    service = Service(models=(), transcriber=Transcriber(listener), listener_names=("whisper-1",))
    with serving(service) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/ready").json() == {"status": "ready"}
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["whisper-1"]
        assert client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"] == []
        heard = client.post("/v1/audio/transcriptions", files={"file": ("a.wav", weasels())})
        assert heard.json()["text"] == "Hello."
        asked = {"messages": [{"role": "user", "content": "Hi"}]}
        for name in ({}, {"model": "gpt-4"}):
            refused = client.post("/v1/chat/completions", json=asked | name)
            assert refused.status_code == 404
            assert "only transcribes" in refused.json()["error"]["message"]


@pytest.mark.system
def test_the_gauges_count_chunks(speech: SpeechServer) -> None:
    text = speech.server.service.metrics.text().decode()
    assert 'unbraid_engine_running{model="whisper-tiny"} 0.0' in text
    assert 'unbraid_engine_waiting{model="whisper-tiny"} 0.0' in text


@pytest.mark.system
def test_auto_is_no_language(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " Hello.")
    assert speech.post(weasels(), language="auto").json()["language"] == "en"
    assert len(listener.requests[0].prefix.sets[0]) > 90
