"""Qwen3-ASR by its own grammar, behind servers that chat as vLLM and SGLang do.

What a server is asked and says was read off the sources: vLLM 0.32 `model_executor/models/qwen3_asr.py` (a system turn
only with a prompt; `language {Name}<asr_text>` continues the assistant's turn) and
`entrypoints/openai/chat_completion/protocol.py`, SGLang 0.5.23 `transcription_adapters/qwen3_asr.py`, transformers'
`processing_qwen3_asr.py` (`language None<asr_text>` for nobody).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from unbraid import Parser, UnbraidError
from unbraid.core.events import Language
from unbraid.format_checks import check
from unbraid.speech.engines.adapters import LANGUAGE_NAMES, QWEN3_ASR
from unbraid.speech.engines.chat import ChatListener
from unbraid.speech.families import adapter_for
from unbraid.speech.loading import ListenerSettings, load_listener
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcript import Transcript

from ...support.fake_servers import Asked, FakeServer
from ...support.real_speech import recording
from ..fake_listening import read_wav
from ..listening import QUIET, run, transcript_of

MODEL = "Qwen/Qwen3-ASR-0.6B"


class FakeChat(FakeServer):
    """A server that chats, and says `said` in small pieces, whatever it hears."""

    generates = "/v1/chat/completions"

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said
        self.bodies: list[dict[str, Any]] = []

    def other(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": MODEL, "max_model_len": 65536}]}
        return super().other(asked)

    def events(self, body: Any) -> Iterator[Any]:
        self.bodies.append(body)
        [recorded] = body["messages"][-1 - bool(body.get("continue_final_message"))]["content"]
        assert recorded["type"] == "input_audio"
        assert recorded["input_audio"]["format"] == "wav"
        assert len(read_wav(base64.b64decode(recorded["input_audio"]["data"]))) > 16_000
        for at in range(0, len(self.said), 3):
            yield {"choices": [{"index": 0, "delta": {"content": self.said[at : at + 3]}, "finish_reason": None}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        yield {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49}}


@asynccontextmanager
async def listening(server: FakeServer) -> AsyncGenerator[ChatListener, None]:
    listener = ChatListener(server.url, family="qwen3-asr", model=MODEL, routing=QUIET)
    try:
        yield listener
    finally:
        await listener.close()


def heard(said: str, **options: Any) -> tuple[Transcript, dict[str, Any]]:
    async def transcribed() -> tuple[Transcript, dict[str, Any]]:
        async with FakeChat(said) as server, listening(server) as listener:
            samples = recording("en", "tt-weasels").samples
            return await transcript_of(listener, samples, TranscriptionOptions(**options)), server.bodies[0]

    return run(transcribed())


@pytest.mark.system
def test_the_language_is_read_from_the_reply() -> None:
    found, body = heard("language English<asr_text>Weasels have eaten our phone system.", prompt="Weasels")
    assert (found.text, found.language) == ("Weasels have eaten our phone system.", "en")
    assert (found.prompt_tokens, found.completion_tokens) == (40, 9)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Weasels"
    assert body["model"] == MODEL
    assert not body.get("continue_final_message")


@pytest.mark.system
def test_a_given_language_is_what_the_reply_begins_with() -> None:
    found, body = heard("Les belettes.", language="fr")
    assert (found.text, found.language) == ("Les belettes.", "fr")
    assert body["messages"][-1] == {"role": "assistant", "content": "language French<asr_text>"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.system
def test_nobody_speaks() -> None:
    found, _ = heard("language None<asr_text>")
    assert (found.text, found.language, found.segments) == ("", None, ())


@pytest.mark.system
def test_what_is_no_markup_is_text() -> None:
    found, _ = heard("The language English has <asr_text> in it.")
    assert found.text == "The language English has <asr_text> in it."


@pytest.mark.system
def test_times_are_those_of_the_speech() -> None:
    """The model writes none, and the reply has them all the same: a chunk is a segment."""
    found, _ = heard("language English<asr_text>Weasels.", timestamps=True)
    [segment] = found.segments
    assert segment.text.strip() == found.text
    assert 0.0 <= segment.start < segment.end <= found.duration


def test_the_grammar() -> None:
    """It is a format like any other: what it renders it parses, however it is cut."""
    check(QWEN3_ASR)
    for name in LANGUAGE_NAMES:
        parser = Parser(QWEN3_ASR)
        events = [event for letter in f"language {name}<asr_text>Text." for event in parser.feed(letter)]
        events += parser.finish()
        assert [event.code for event in events if isinstance(event, Language)] == [name]
        assert parser.message.content == "Text."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "translate"}, "cannot translate"),
        ({"languages": ("en", "de")}, "one language or none"),
        ({"language": "welsh"}, "does not know 'welsh'; it knows Arabic, "),
    ],
)
def test_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnbraidError, match=message):
        adapter_for(None, "qwen3-asr").check(TranscriptionOptions(**options))


@pytest.mark.parametrize("model", [None, MODEL, "qwen3-asr:", "qwen3-asr:my-name"])
def test_the_family_is_found_by_the_name_of_the_model(model: str | None) -> None:
    async def loaded() -> tuple[str, str]:
        async with FakeChat("") as server:
            listener = await load_listener(ListenerSettings(engine="chat", urls=(server.url,), model=model))
            assert isinstance(listener, ChatListener)
            await listener.close()
            return listener.family, listener.model

    assert run(loaded()) == ("qwen3-asr", "my-name" if model == "qwen3-asr:my-name" else MODEL)


def test_a_family_that_is_not_known() -> None:
    async def load() -> None:
        async with FakeChat("") as server:
            await load_listener(ListenerSettings(engine="chat", urls=(server.url,), model="llama"))

    with pytest.raises(UnbraidError, match=r"--model FAMILY:NAME, of \['qwen3-asr'\]"):
        run(load())
