"""Fields of a form that are honoured or refused, and outputs without words, with a listener of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx
import pytest

from unbraid.engines.base import Piece, TokenLogprob
from unbraid.server.service import Service
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber

from ...speech.live.talking import WordListener, encode, say, special_tokens
from ...support.real_tokenizers import whisper_like
from ...support.running_server import RunningServer, serving
from ..realtime.support import listener
from .support import TRANSCRIPTIONS, wav


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    made = Service(models=(), transcriber=Transcriber(listener()), listener_names=("words", "whisper-1"))
    with serving(made) as running:
        yield running


def post(server: RunningServer, **fields: Any) -> httpx.Response:
    file = {"file": ("speech.wav", wav(say(["one", "two"])))}
    return httpx.post(server.url + TRANSCRIPTIONS, data=fields, files=file, timeout=60)


def heard_by(server: RunningServer) -> ListenRequest:
    transcriber = server.service.transcriber
    assert transcriber is not None
    assert isinstance(transcriber.listener, WordListener)
    return transcriber.listener.requests[-1]


def test_hotwords_stand_before_the_prompt(server: RunningServer) -> None:
    assert post(server, hotwords="Kokoro, Zürich", prompt="A talk.").status_code == 200
    before = whisper_like().decode(list(heard_by(server).prompt[1:-1]))
    assert before == " Kokoro, Zürich A talk."


def test_hotwords_stay_where_the_prompt_is_too_long(server: RunningServer) -> None:
    assert post(server, hotwords="Kokoro", prompt="and so on " * 300).status_code == 200
    prompt = heard_by(server).prompt
    assert len(prompt) == 225  # what Whisper takes, and the tokens around it
    assert whisper_like().decode(list(prompt[1:-1])).startswith(" Kokoro ")
    assert post(server, hotwords="Kokoro " * 300, prompt="The end.").status_code == 200
    assert whisper_like().decode(list(heard_by(server).prompt[1:-1])).endswith(" The end.")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("diarize", "leave it out"),
        ("promt", "did you mean prompt?"),
        ("word_timestamps", "timestamp_granularities=word"),
        ("known_speaker_names[]", "leave it out"),
    ],
)
def test_fields_that_are_not_known_are_refused(server: RunningServer, field: str, said: str) -> None:
    response = post(server, **{field: "x"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unknown_parameter")
    assert error["param"] == field.removesuffix("[]")
    assert said in error["message"]


def test_fields_that_change_nothing_are_taken(server: RunningServer) -> None:
    assert post(server, user="me", stream_include_usage="true", diarize="").status_code == 200


class Wordless(WordListener):
    """Writes times, and no words between them."""

    supports_word_times = True

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        special = special_tokens()
        begun = [min(some) for some in request.prefix.sets]
        ids = [*begun, special.timestamp(0.0), *encode(" "), special.timestamp(1.0), special.eot]
        for token in ids:
            yield Piece((token,), logprobs=(TokenLogprob(token, b"", -0.1),))
        yield ListenEnd("stop", 1, len(ids), times=tuple(0.1 * at for at in range(len(ids) + 1)))


def test_an_output_with_times_and_no_words() -> None:
    transcriber = Transcriber(Wordless(listener().vocabulary))
    options = TranscriptionOptions(timestamps=True, words=True)
    transcript = asyncio.run(transcriber.transcribe([say(["one", "two", "three"])], options))
    assert (transcript.text, transcript.segments) == ("", ())
