"""Conversations by voice on a model that writes text: a listener hears for it, and a loaded voice reads it aloud."""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unbraid.engines import Finish, Generation, Piece
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.server.realtime.conversation import SpokenText
from unbraid.server.service import Service
from unbraid.speech.synthesis.speaker import SpeakRequest, Spoken
from unbraid.speech.transcriber import Transcriber

from ...speech.live.talking import LevelVoice, say, silence
from ...speech.word_errors import words
from ...support.running_server import RunningServer, service_of, serving
from ...support.waiting import until
from ..speech.test_speech_route import ScriptedSpeaker
from .support import Client, connected, engine_of, listener, run, user
from .test_conversation import check_order, respond

FIRST, SECOND = "The weather is fine in Paris today.", " Shall we go for a walk?"
TEXT = FIRST + SECOND
WORD_MS = 500
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
HEARS_16 = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}}


class PausingEngine(ReplayEngine):
    """Stops in the middle of the second sentence, until it may go on."""

    def __init__(self, scripts: list[Script]) -> None:
        super().__init__(scripts, repeat=True)
        self.go_on = threading.Event()

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        text = ""
        async for output in super().generate(request):
            text += (output.text or "") if isinstance(output, Piece) else ""
            if len(text) > len(FIRST) + 8:
                await until(self.go_on.is_set)
            yield output


def text_service(
    *scripts: Script, speaker: ScriptedSpeaker | None = None, engine: ReplayEngine | None = None
) -> Service:
    """A model that writes, one that listens, and one that speaks."""
    return service_of(
        engine or ReplayEngine(list(scripts), repeat=True),
        "hermes",
        names=("writer",),
        transcriber=Transcriber(listener(), detector=LevelVoice()),  # type: ignore[arg-type]
        listener_names=("words", "whisper-1"),
        speaker=speaker or ScriptedSpeaker(),
        speaker_names=("speaker",),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving(text_service(script(TEXT, chunks=4))) as running:
        yield running


def sound_of(client: Client) -> bytes:
    return b"".join(base64.b64decode(event["delta"]) for event in client.of("response.output_audio.delta"))


def spoken_ms(text: str) -> int:
    return WORD_MS * len(text.split())


def test_a_text_is_read_aloud_sentence_by_sentence(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=writer") as client:
            session = client.events[0]["session"]
            assert session["output_modalities"] == ["audio"]
            assert session["audio"]["output"]["voice"] == "low"
            done = await respond(client)
            check_order(client)
            assert (done["status"], done["output_modalities"]) == ("completed", ["audio"])
            told = [event["delta"] for event in client.of("response.output_audio_transcript.delta")]
            assert told == [FIRST, SECOND]
            (part,) = done["output"][0]["content"]
            assert part == {"type": "output_audio", "transcript": TEXT}
            assert len(sound_of(client)) == spoken_ms(TEXT) * 24 * 2
            kinds = [event["type"] for event in client.events]
            assert kinds.index("response.output_audio.delta") < kinds.index("response.output_audio.done")
            assert not client.of("response.output_text.delta")
            # Each item is told with the one before it.
            before = [event["previous_item_id"] for event in client.of("conversation.item.done")]
            assert before == [None, client.of("conversation.item.done")[0]["item"]["id"]]

    run(tried)


def test_the_first_sentence_is_heard_while_the_model_still_writes() -> None:
    engine = PausingEngine([script(TEXT, chunks=4)])
    made = text_service(engine=engine)

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create")
                while len(sound_of(client)) < spoken_ms(FIRST) * 24 * 2:
                    await client.next()
                assert client.text("response.output_audio_transcript.delta") == FIRST
                engine.go_on.set()
                done = (await client.until("response.done"))["response"]
                assert done["output"][0]["content"][0]["transcript"] == TEXT

    run(tried)


@pytest.mark.parametrize("how", ["cancel", "speech"])
def test_what_is_interrupted_is_cut_to_what_was_heard(how: str) -> None:
    speaker = ScriptedSpeaker()
    speaker.waits = True
    made = text_service(script(TEXT, chunks=4), speaker=speaker)

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                await client.send("session.update", session=HEARS_16)
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create")
                speaker.may.release(len(FIRST.split()))  # and no more
                while len(sound_of(client)) < spoken_ms(FIRST) * 24 * 2:
                    await client.next()
                item = client.of("response.output_item.added")[0]["item"]["id"]
                if how == "cancel":
                    await client.send("response.cancel")
                else:
                    await client.append(np.concatenate([silence(0.2), say(["one", "two"])]))
                done = (await client.until("response.done"))["response"]
                speaker.may.release(100)
                check_order(client)
                reason = "turn_detected" if how == "speech" else "client_cancelled"
                assert done["status_details"] == {"type": "cancelled", "reason": reason}
                assert done["output"][0]["status"] == "incomplete"
                # What was never spoken is no part of the conversation.
                assert done["output"][0]["content"][0]["transcript"] == FIRST
                heard = spoken_ms("The weather is")
                await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=heard)
                await client.until("conversation.item.truncated")
                await client.send("conversation.item.retrieve", item_id=item)
                (part,) = (await client.until("conversation.item.retrieved"))["item"]["content"]
                assert part["transcript"] in ("The weather", "The weather is")

    run(tried)


def test_a_tool_is_called_between_the_speech() -> None:
    made = text_service(script(FIRST + "\n" + CALL), script(SECOND.strip()))

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                await client.send("session.update", session={"tools": [TOOL]})
                done = await respond(client)
                check_order(client)
                speech, call = done["output"]
                assert speech["content"][0]["transcript"].strip() == FIRST
                assert (call["name"], call["arguments"]) == ("weather", '{"city": "Paris"}')
                output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
                await client.send("conversation.item.create", item=output)
                await client.send("response.create")
                done = (await client.until("response.done"))["response"]
                assert done["output"][0]["content"][0]["transcript"] == SECOND.strip()
                prompt = engine_of(made).requests[-1].prompt
                assert isinstance(prompt, str)
                assert FIRST in prompt
                assert "sunny" in prompt

    run(tried)


@pytest.mark.parametrize("transcription", ["unset", None])
def test_a_session_that_says_nothing_of_transcription_is_listened_to(
    server: RunningServer, transcription: str | None
) -> None:
    async def tried() -> None:
        async with connected(server, "?model=writer") as client:
            audio: dict[str, Any] = dict(HEARS_16["audio"]["input"])
            if transcription is None:
                audio["transcription"] = None
            await client.send("session.update", session={"audio": {"input": audio}})
            updated = (await client.until("session.updated"))["session"]["audio"]["input"]
            assert updated["transcription"] == (None if transcription is None else {"model": "words"})
            await client.append(np.concatenate([say(["one", "two", "three"], gap=0.02), silence(1.0)]))
            assert (await client.until("response.done"))["response"]["status"] == "completed"
            told = client.of("conversation.item.input_audio_transcription.completed")
            assert len(told) == (0 if transcription is None else 1)  # who wants no words is told none
            prompt = engine_of(server.service).requests[-1].prompt
            assert isinstance(prompt, str)
            assert "one two three" in prompt.lower()

    run(tried)


def test_what_is_committed_or_sent_as_an_item_is_heard_before_it_is_answered(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=writer") as client:
            audio = {**HEARS_16["audio"]["input"], "turn_detection": None}
            await client.send("session.update", session={"audio": {"input": audio}})
            await client.append(say(["one", "two"], gap=0.02))
            await client.send("input_audio_buffer.commit")
            await client.send("response.create")
            await client.until("response.done")
            sound = (say(["three"]) * 32767).astype("<i2").tobytes()
            part = {"type": "input_audio", "audio": base64.b64encode(sound).decode()}
            await client.send("conversation.item.create", item={"type": "message", "role": "user", "content": [part]})
            await client.send("response.create")
            await client.until("response.done")
            prompt = engine_of(server.service).requests[-1].prompt
            assert isinstance(prompt, str)
            heard = words(prompt)
            assert [word for word in heard if word in ("one", "two", "three")] == ["one", "two", "three"]

    run(tried)


def test_voices_and_speeds(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=writer") as client:
            await client.send("session.update", session={"audio": {"output": {"voice": "high", "speed": 2.0}}})
            out = (await client.until("session.updated"))["session"]["audio"]["output"]
            assert (out["voice"], out["speed"]) == ("high", 2.0)
            await respond(client)
            assert len(sound_of(client)) == spoken_ms(TEXT) * 24 * 2 // 2
            # A response may have a voice of its own.
            done = await respond(client, audio={"output": {"voice": "low"}})
            assert done["audio"]["output"]["voice"] == "low"
            speaker = server.service.speaker
            assert isinstance(speaker, ScriptedSpeaker)
            assert [request.voice for request in speaker.requests[-4:]] == ["high", "high", "low", "low"]

    run(tried)


WRONG = [
    ({"audio": {"output": {"voice": "nobody"}}}, "session.audio.output.voice"),
    ({"audio": {"output": {"speed": 9.0}}}, "session.audio.output.speed"),
    ({"model": "gpt-9"}, "session.model"),
    ({"audio": {"input": {"transcription": {"model": "gpt-9"}}}}, "session.audio.input.transcription.model"),
]


@pytest.mark.parametrize(("update", "param"), WRONG, ids=lambda value: value if isinstance(value, str) else None)
def test_what_would_have_no_effect_is_refused(server: RunningServer, update: dict[str, Any], param: str) -> None:
    async def tried() -> None:
        async with connected(server, "?model=writer") as client:
            await client.send("session.update", session=update)
            assert (await client.until("error"))["error"]["param"] == param

    run(tried)


def test_a_server_without_a_voice_says_so() -> None:
    made = text_service(script(TEXT))
    made.speaker = None

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                assert client.events[0]["session"]["output_modalities"] == ["text"]
                for update in ({"output_modalities": ["audio"]}, {"audio": {"output": {"voice": "alloy"}}}):
                    await client.send("session.update", session=update)
                    assert (await client.until("error"))["error"]["code"] == "unsupported"
                await client.send("session.update", session={"output_modalities": ["text"]})
                await client.until("session.updated")

    run(tried)


def test_a_noise_is_not_answered() -> None:
    """What the listener hears nothing in makes no response."""
    made = text_service(script(TEXT))

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                await client.send("session.update", session=HEARS_16)
                rattle = np.tile(np.repeat(np.array([0.1, 0.3], np.float32), 320), 15)  # loud, and no word
                await client.append(np.concatenate([silence(0.3), rattle, silence(1.0)]))
                completed = await client.until("conversation.item.input_audio_transcription.completed")
                assert completed["transcript"] == ""
                await client.append(np.concatenate([say(["one"]), silence(1.0)]))
                await client.until("response.done")
                assert len(client.of("response.created")) == 1

    run(tried)


def test_where_a_sentence_is_cut() -> None:
    spoken = SpokenText()
    spoken.read("One two three.", 1000, 1000)
    spoken.read(" Four five six.", 2000, 2000)
    assert spoken.heard_until(0) == ""
    assert spoken.heard_until(900) == "One two"
    assert spoken.heard_until(1000) == "One two three."
    assert spoken.heard_until(2000) == "One two three. Four"
    assert spoken.heard_until(9000) == "One two three. Four five six."


def test_where_a_sentence_is_cut_whose_sound_is_not_all_there() -> None:
    spoken = SpokenText()
    spoken.read("One two three four.", 500, 2000)
    assert spoken.heard_until(500) == "One"
    spoken.read("", 2500, 0)  # it is longer than was said
    spoken.read(" Five six seven.", 1000, 1000)
    assert spoken.heard_until(3000) == "One two three four."
    assert spoken.heard_until(3400) == "One two three four. Five"


class PartsSpeaker(ScriptedSpeaker):
    """Says with the first word of a sentence how long all of it is, where its sound is wanted soon."""

    async def speak(self, request: SpeakRequest) -> AsyncGenerator[Spoken, None]:
        total = self.rate * spoken_ms(request.text) // 1000
        async for spoken in super().speak(request):
            yield replace(spoken, total=total) if request.soon else spoken
            total = 0


def test_the_first_sentence_is_heard_before_its_sound_is_made() -> None:
    """It is told once, with its first sound; and one that was heard in part is cut by how long it would have been."""
    speaker = PartsSpeaker()
    speaker.waits = True
    made = text_service(script(TEXT, chunks=4), speaker=speaker)

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=writer") as client:
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create", response={})
                await until(lambda: bool(speaker.requests))
                speaker.may.release(2)
                while len(sound_of(client)) < 2 * WORD_MS * 24 * 2:
                    await client.next()
                told = [event["delta"] for event in client.of("response.output_audio_transcript.delta")]
                assert told == [FIRST]
                item = client.of("response.output_audio.delta")[0]["item_id"]
                await client.send("response.cancel")
                speaker.may.release(100)
                await client.until("response.done")
                await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=2 * WORD_MS)
                await client.until("conversation.item.truncated")
                await client.send("conversation.item.retrieve", item_id=item)
                retrieved = await client.until("conversation.item.retrieved")
                assert retrieved["item"]["content"][0]["transcript"] == "The", "by letters, 1.0 of 3.5 s"
                assert speaker.requests[0].soon

                await client.send("response.create", response={})
                done = await client.until("response.done")
                assert done["response"]["output"][0]["content"][0]["transcript"] == TEXT
                assert [request.soon for request in speaker.requests][-2:] == [True, False]

    run(tried)
