"""Replies when the listener fails, or does not begin with its prefix."""

from __future__ import annotations

import numpy as np
import openai
import pytest

from unbraid.engines import EngineDown, EngineError, EngineFailed

from ...support.real_speech import RATE, recording
from .support import (
    PREFIX,
    ScriptedListener,
    SpeechServer,
    frames,
    refused,
    wav,
    weasels,
)

pytestmark = pytest.mark.system


def two_chunks() -> bytes:
    return wav(np.tile(recording("en", "demo-congrats").samples[: 20 * RATE], 2))


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineDown("it is down", retry_after=7.2), 503, "engine_down"),
        (EngineFailed("it broke"), 502, "engine_failed"),
        (RuntimeError("a secret"), 500, "internal_error"),
    ],
)
def test_failing_before_the_first_word(
    speech: SpeechServer, listener: ScriptedListener, stream: str, error: Exception, status: int, code: str
) -> None:
    """A status of its own, even where a stream was asked for."""
    listener.error = error
    found = refused(speech.post(weasels(), stream=stream), status)
    assert found["code"] == code
    assert "secret" not in found["message"]


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
@pytest.mark.parametrize("error", [EngineError("it broke"), RuntimeError("a secret")])
def test_failing_in_the_middle_of_a_stream(
    speech: SpeechServer, listener: ScriptedListener, stream_format: str, error: Exception
) -> None:
    """What is final has gone out: that of the chunks before."""
    listener.say(*PREFIX, " Hello", " there")
    listener.error, listener.heard = error, 1
    *deltas, last = frames(speech.post(two_chunks(), stream="true", stream_format=stream_format))
    texts = [each["delta"] if stream_format == "events" else each["choices"][0]["delta"]["content"] for each in deltas]
    assert "".join(texts) == "Hello there"
    assert last["error"]["type"] == "server_error"
    assert "secret" not in last["error"]["message"]


def test_the_client_is_told_of_a_failing_stream(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " Hello")
    listener.error, listener.heard = EngineFailed("it broke"), 1
    events = speech.client.audio.transcriptions.create(model="whisper-1", file=("a.wav", two_chunks()), stream=True)
    with pytest.raises(openai.APIError, match="it broke"):
        list(events)


def test_failing_in_the_middle_of_a_whole_reply(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say(*PREFIX, " Hello")
    listener.error = EngineFailed("it broke")
    refused(speech.post(weasels()), 502)


ASTRAY = [
    (" Hello", " there."),
    ("<|transcribe|>", "<|en|>", "<|notimestamps|>", " Hello", " there."),
    ("<|en|>", "<|translate|>", "<|notimestamps|>", " Hello", " there."),
    ("<|en|>", " Hello", " there."),
    ("<|startoftranscript|>", *PREFIX, " Hello", " there."),
]


@pytest.mark.parametrize("parts", ASTRAY)
def test_a_prefix_that_does_not_come(
    speech: SpeechServer, listener: ScriptedListener, caplog: pytest.LogCaptureFixture, parts: tuple[str, ...]
) -> None:
    listener.say(*parts)
    found = speech.post(weasels()).json()
    assert (found["text"], found["language"]) == ("Hello there.", None)
    assert "the language is not known" in found["warnings"][0]
    assert found["warnings"][0] in caplog.text


def test_a_prefix_that_does_not_come_before_times(speech: SpeechServer, listener: ScriptedListener) -> None:
    listener.say("<|0.00|>", " Hello", "<|2.00|>", "<|de|>")
    found = speech.post(weasels(), response_format="verbose_json").json()
    assert (found["text"], found["language"], found["language_probability"]) == ("Hello", None, None)
    assert found["warnings"]
    assert [(segment["start"], segment["end"], segment["language"]) for segment in found["segments"]] == [(0, 2, None)]


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
@pytest.mark.parametrize("parts", [*ASTRAY, ("<|en|>",), ()])
def test_a_prefix_that_does_not_come_in_a_stream(
    speech: SpeechServer, listener: ScriptedListener, parts: tuple[str, ...], stream_format: str
) -> None:
    listener.say(*parts)
    (error,) = frames(speech.post(weasels(), stream="true", stream_format=stream_format))
    assert "the language is not known" in error["error"]["message"]
    assert error["error"]["code"] == "engine_failed"
