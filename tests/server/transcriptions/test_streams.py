"""Transcriptions in a stream: the events of OpenAI, and the chunks of vLLM and SGLang."""

from __future__ import annotations

import numpy as np
import pytest
from openai.types.audio import TranscriptionStreamEvent
from pydantic import TypeAdapter

from ...support.real_speech import RATE, recording
from .support import (
    PREFIX,
    ScriptedListener,
    SpeechServer,
    frames,
    wav,
    weasels,
)

pytestmark = pytest.mark.system


def test_a_stream(speech: SpeechServer) -> None:
    """More than one chunk: joined, it is the text that is not streamed."""
    file = recording("en", "demo-congrats").path.read_bytes()
    create = speech.client.audio.transcriptions.create
    events = list(create(model="whisper-1", file=("a.wav", file), stream=True))
    *deltas, done = events
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    text = "".join(event.delta for event in deltas if event.type == "transcript.text.delta")
    assert len(deltas) > 50
    assert text == done.text == create(model="whisper-1", file=("a.wav", file)).text
    assert done.to_dict()["language"] == "en"
    for event in events:
        TypeAdapter(TranscriptionStreamEvent).validate_python(event.to_dict())
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert done.usage.output_tokens > 50


def test_a_stream_of_chunks(speech: SpeechServer) -> None:
    """As SGLang and vLLM do it."""
    *chunks, end, usage = frames(speech.post(weasels(), stream="true", stream_format="chunks", model="whisper-1"))
    assert {(chunk["object"], chunk["id"], chunk["model"]) for chunk in [*chunks, end, usage]} == {
        ("transcription.chunk", end["id"], "whisper-1")
    }
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == speech.post(weasels()).json()["text"]
    assert end["choices"] == [{"delta": {"content": ""}, "finish_reason": "stop"}]
    assert end["language"] == "en"
    counts = usage["usage"]
    assert usage["choices"] == []
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"] > 5


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
def test_silence_in_a_stream(speech: SpeechServer, stream_format: str) -> None:
    found = frames(speech.post(wav(np.zeros(RATE, np.float32)), stream="true", stream_format=stream_format))
    if stream_format == "events":
        assert [event["type"] for event in found] == ["transcript.text.done"]
        assert (found[0]["text"], found[0]["language"]) == ("", None)
    else:
        assert [chunk["choices"] for chunk in found] == [[{"delta": {"content": ""}, "finish_reason": "stop"}], []]


@pytest.mark.parametrize("parts", [[" A b", " ", " c. "], [" ", "\n A b", "  c", ".\n"], [" A b  c."]])
def test_space_around_a_text(speech: SpeechServer, listener: ScriptedListener, parts: list[str]) -> None:
    """None of it is streamed that the whole text does not have."""
    listener.say(*PREFIX, *parts)
    *deltas, done = frames(speech.post(weasels(), stream="true"))
    assert "".join(event["delta"] for event in deltas) == done["text"] == "A b  c."
    assert all(event["delta"] for event in deltas)
    assert speech.post(weasels()).json()["text"] == done["text"]


def test_a_stream_with_segments_and_with_logprobs(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " A b.")
    told = frames(speech.post(weasels(), stream="true", response_format="verbose_json"))
    assert [event["type"].rpartition(".")[2] for event in told] == [*["delta"] * (len(told) - 2), "segment", "done"]
    assert told[-2]["text"] == told[-1]["text"] == "A b."
    assert told[-2]["id"] == "seg_0"
    assert 0 == told[-2]["start"] < told[-2]["end"]
    *deltas, done = frames(speech.post(weasels(), stream="true", **{"include[]": "logprobs"}))
    whole = speech.post(weasels(), **{"include[]": "logprobs"}).json()["logprobs"]
    assert [token for event in deltas for token in event["logprobs"]] == done["logprobs"] == whole
    assert bytes(byte for token in whole for byte in token["bytes"]).decode() == " A b."
    assert {token["logprob"] for token in whole} == {-0.1}
    assert "".join(token["token"] for token in whole) == " A b."
