"""Requests that are refused: wrong fields, broken forms, missing keys."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .support import (
    PREFIX,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    ScriptedListener,
    SpeechServer,
    form,
    refused,
    weasels,
)

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"language": "klingon"}, "language", "no language 'klingon'"),
        ({"language": "germn"}, "language", "near it are german"),
        ({"languages": ["de", "klingon"]}, "languages", "no language 'klingon'"),
        ({"response_format": "xml"}, "response_format", "json, text, verbose_json, srt, vtt, diarized_json, not 'xml'"),
        ({"response_format": "diarized_json"}, "response_format", "start the server with --transcription-speakers"),
        ({"known_speaker_names[]": "Ann"}, "known_speaker_names", "speakers are called A, B"),
        ({"temperature": "hot"}, "temperature", "a number from 0 to 1, not 'hot'"),
        ({"temperature": "1.5"}, "temperature", "not '1.5'"),
        ({"temperature": "-1"}, "temperature", "not '-1'"),
        ({"temperature": "nan"}, "temperature", "not 'nan'"),
        ({"seed": "x"}, "seed", "a whole number, 0 or more, not 'x'"),
        ({"seed": "1.5"}, "seed", "not '1.5'"),
        ({"seed": "9" * 5000}, "seed", "a whole number"),
        ({"beam_size": "0"}, "beam_size", "a whole number, 1 or more, not '0'"),
        ({"beam_size": "many"}, "beam_size", "not 'many'"),
        ({"beam_size": "100"}, "beam_size", "beam_size: this model takes 1 to 8 beams, not 100"),
        ({"beam_size": "2", "temperature": "0.5"}, "beam_size", "beam search needs temperature 0"),
        ({"stream": "yes"}, "stream", "true or false, not 'yes'"),
        ({"stream_format": "sse"}, "stream_format", "one of events, chunks"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "=verbose_json, not with json"),
        (
            {"timestamp_granularities": ["segment", "word"], "response_format": "srt"},
            "timestamp_granularities",
            "=verbose_json, not with srt",
        ),
        (
            {"include[]": "logprobs", "response_format": "verbose_json"},
            "include",
            "with response_format=json, not with verbose_json",
        ),
        ({"include[]": "item.weather"}, "include", "'item.weather' is not known; there is logprobs"),
        ({"stream": "true", "response_format": "srt"}, "response_format", "srt has no stream"),
        (
            {"stream": "true", "response_format": "verbose_json", "stream_format": "chunks"},
            "response_format",
            "take stream_format=events",
        ),
        ({"chunking_strategy": "hourly"}, "chunking_strategy", "must be auto or an object"),
        ({"chunking_strategy": "auto"}, "chunking_strategy", "no voice activity detector; leave it out"),
        ({"vad_filter": "true"}, "vad_filter", "no voice activity detector; leave it out"),
        ({"timestamp_granularities": "letter"}, "timestamp_granularities", "neither word nor segment"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
def test_fields_that_are_wrong(speech: SpeechServer, path: str, fields: dict[str, Any], param: str, said: str) -> None:
    error = refused(speech.post(weasels(), path, **fields), 400)
    assert said in error["message"]
    assert error["param"] == param


def test_an_unknown_model(speech: SpeechServer) -> None:
    error = refused(speech.post(weasels(), model="whisper-9"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "'whisper-1'" in error["message"]


def test_a_field_that_is_a_file(speech: SpeechServer) -> None:
    upload = {"file": ("a.wav", weasels()), "prompt": ("b.txt", b"hello")}
    refused(httpx.post(speech.server.url + TRANSCRIPTIONS, files=upload), 400)
    error = refused(httpx.post(speech.server.url + TRANSCRIPTIONS, files={"language": ("b.txt", b"de")}), 400)
    assert error["param"] in ("file", "language")


def test_no_form(speech: SpeechServer) -> None:
    url = speech.server.url + TRANSCRIPTIONS
    for response in (
        httpx.post(url, json={"file": "speech.wav", "model": "whisper-1"}),
        httpx.post(url, content=weasels(), headers={"Content-Type": "audio/wav"}),
        httpx.post(url, data={"model": "whisper-1"}),
        httpx.post(url),
    ):
        assert "multipart/form-data" in refused(response, 415)["message"]


def test_a_content_type_in_capitals(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " Hello")
    body, kind = form(weasels())
    headers = {"Content-Type": kind.replace("multipart/form-data", "Multipart/Form-Data")}
    assert httpx.post(speech.server.url + TRANSCRIPTIONS, content=body, headers=headers).json()["text"] == "Hello"


def test_broken_forms(speech: SpeechServer) -> None:
    body, kind = form(weasels(), model="whisper-1")
    cases = {
        b"no form at all": kind,
        b"": kind,
        body[:-20]: kind,
        body[: len(body) // 2]: kind,
        body: "multipart/form-data; boundary=another",
        body + b"": "multipart/form-data",
        body.replace(b"Content-Disposition", b"Content-Nothing"): kind,
    }
    for content, content_type in cases.items():
        response = httpx.post(
            speech.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": content_type}, timeout=30
        )
        refused(response, 400)


def test_a_flood_of_fields(speech: SpeechServer) -> None:
    refused(speech.post(weasels(), **{f"field_{at}": "x" for at in range(200)}), 400)
    refused(speech.post(weasels(), prompt="x" * 2_000_000), 400)


def test_no_model_that_transcribes(speech: SpeechServer) -> None:
    speech.server.service.transcriber = None
    assert "--transcription-model" in refused(speech.post(weasels()), 404)["message"]


def test_a_key_that_is_missing(speech: SpeechServer) -> None:
    speech.server.service.api_keys = ("right",)
    try:
        refused(speech.post(weasels()), 401)
    finally:
        speech.server.service.api_keys = ()
