"""Which model listens, and where: the settings of `unbraid serve` and of `unbraid transcribe`."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from unbraid import UnbraidError
from unbraid.cli import main
from unbraid.server.loading.service import load
from unbraid.server.settings import Settings
from unbraid.server.settings_sources import add_flags, read_settings
from unbraid.speech.loading import ListenerSettings, load_listener
from unbraid.speech.options import TranscriptionOptions

from ...support.places import ROOT
from ...support.real_speech import recording
from ...support.running_server import RunningServer, serving
from ..fake_listening import FakeSGLangWhisper, whisper_server
from ..listening import TINY, free_url, run, speech
from ..whisper.whisper_models import files


@pytest.fixture(scope="module")
def behind() -> Iterator[RunningServer]:
    with whisper_server() as server:
        yield server


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"engine": "vllm"}, "--engine vllm needs --url"),
        ({"engine": "sglang", "model": "m"}, "--engine sglang needs --url"),
        ({"urls": ("http://x",)}, "--url is for servers: give --engine vllm or sglang or openai"),
        ({"engine": "vllm-local", "urls": ("http://x",)}, "--url is for servers"),
        ({"engine": "vllm-local"}, "--engine vllm-local needs --model"),
        ({"engine": "sglang", "urls": ("http://127.0.0.1:9",)}, "which model has .* Start it first, or give --model"),
        (
            {"engine": "sglang", "urls": ("http://127.0.0.1:9",), "model": "/nowhere"},
            "which model has .*; and there is no tokenizer '/nowhere'",
        ),
    ],
)
def test_settings_that_do_not_fit(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UnbraidError, match=message):
        run(load_listener(ListenerSettings(**chosen)))


@pytest.mark.system
def test_sglang_with_another_model(tmp_path: Path) -> None:
    """Which is no Whisper."""
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
    )

    async def choose() -> None:
        async with FakeSGLangWhisper(folder=str(tmp_path)) as server:
            await load_listener(ListenerSettings(engine="sglang", urls=(server.url,), flag_prefix="--transcription-"))

    with pytest.raises(UnbraidError, match=r"not the vocabulary of a Whisper.*--transcription-engine openai"):
        run(choose())


def options(**more: Any) -> Settings:
    """A server whose chat is a recording."""
    return Settings(replay=str(ROOT / "examples" / "step-audio-2.jsonl"), format="hermes", **more)


@pytest.mark.system
def test_sglang_says_which_tokens_its_model_has() -> None:
    async def ask() -> tuple[tuple[str, ...], str, Any]:
        async with FakeSGLangWhisper(folder=str(files(TINY).folder)) as server:
            service = await load(options(transcription_engine="sglang", transcription_url=(server.url,)))
            assert service.transcriber is not None
            found = await service.transcriber.transcribe([speech()], TranscriptionOptions())
            await service.transcriber.listener.close()
            return service.listener_names, found.text, server.generated[0]["sampling_params"]["logit_bias"]

    names, text, biases = run(ask())
    assert names == ("fake", "whisper-1")
    assert "phone system" in text
    assert len(biases) > 50


@pytest.mark.system
def test_our_server_before_another(behind: RunningServer) -> None:
    """Real clients, two servers, one Whisper."""
    chosen = options(transcription_engine="openai", transcription_url=(f"{behind.url}/v1",))
    with serving(asyncio.run(load(chosen))) as front:
        client = OpenAI(base_url=f"{front.url}/v1", api_key="any", max_retries=0, timeout=60)
        file = ("jfk.wav", recording("en", "jfk").path.read_bytes())
        found = client.audio.transcriptions.create(model="whisper-1", file=file)
        assert "ask not what your country" in found.text
        assert found.to_dict()["language"] == "en"
        with client.audio.transcriptions.create(model="whisper-1", file=file, stream=True) as stream:
            *deltas, done = list(stream)
        assert done.type == "transcript.text.done"
        assert done.text == found.text == "".join(event.delta for event in deltas)
        srt = client.audio.transcriptions.create(model="whisper-1", file=file, response_format="srt")
        assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:\d\d,\d{3}\n", srt)
        translated = client.audio.translations.create(
            model="whisper-1", file=("a.wav", recording("es", "demo-thanks").path.read_bytes())
        )
        assert translated.text
        refused = httpx.post(
            f"{front.url}/v1/audio/transcriptions", files={"file": file}, data={"languages": ["en", "de"]}, timeout=60
        )
        assert refused.status_code == 400
        assert "takes one language or none" in refused.json()["error"]["message"]


@pytest.mark.system
@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_a_server_starts_though_the_other_is_down(kind: str) -> None:
    chosen = options(transcription_engine=kind, transcription_url=(free_url(),))
    with serving(asyncio.run(load(chosen))) as front:
        answer = httpx.post(
            f"{front.url}/v1/audio/transcriptions",
            files={"file": recording("en", "tt-weasels").path.read_bytes()},
            data={"model": "whisper-1"},
            timeout=60,
        )
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_down"
        assert "retry-after" in answer.headers


def test_settings_of_a_server() -> None:
    with pytest.raises(UnbraidError, match="--transcription-engine openai needs --transcription-url"):
        asyncio.run(load(options(transcription_engine="openai")))
    with pytest.raises(UnbraidError, match="--transcription-url is for servers"):
        asyncio.run(load(options(transcription_url=("http://x",), transcription_model=TINY)))
    assert asyncio.run(load(options())).transcriber is None


def test_settings_in_the_environment_and_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text('transcription-engine = "vllm"\ntranscription_url = ["http://a", "http://b"]\n')
    command = argparse.ArgumentParser()
    add_flags(command)
    found = read_settings(command.parse_args(["--config", str(file)]), {"UNBRAID_TRANSCRIPTION_API_KEY": "secret"})
    assert (found.transcription_engine, found.transcription_url) == ("vllm", ("http://a", "http://b"))
    assert found.transcription_api_key == "secret"
    environment = {"UNBRAID_TRANSCRIPTION_ENGINE": "sglang", "UNBRAID_TRANSCRIPTION_URL": "http://c, http://d"}
    found = read_settings(command.parse_args(["--config", str(file)]), environment)
    assert (found.transcription_engine, found.transcription_url) == ("sglang", ("http://c", "http://d"))
    with pytest.raises(UnbraidError, match="UNBRAID_TRANSCRIPTION_ENGINE must be one of embedded, vllm-local, vllm"):
        read_settings(command.parse_args([]), {"UNBRAID_TRANSCRIPTION_ENGINE": "whisper"})


@pytest.mark.system
def test_the_command(behind: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    weasels = str(recording("en", "tt-weasels").path)
    command = partial(main, ["transcribe", weasels, "--engine", "openai", "--url", behind.url, "--format", "json"])
    assert command() == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["text"], found["language"]) == ("Weasels have eaten our phone system.", "en")
    assert main(["transcribe", weasels, "--engine", "openai"]) == 2
    assert "--engine openai needs --url" in capsys.readouterr().err
    assert main(["transcribe", weasels, "--engine", "openai", "--url", free_url()]) == 2
    assert "cannot be reached" in capsys.readouterr().err
