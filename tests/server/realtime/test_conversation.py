"""Conversations by voice on a model that speaks: Step-Audio 2, played, with tones for a voice."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from unbraid.engines.recording import read_recording
from unbraid.engines.replay import script
from unbraid.server.audio_input import placeholder_hook
from unbraid.server.errors import ApiError
from unbraid.server.realtime.conversation import SpokenText, read_item
from unbraid.server.realtime.options import OptionsReader
from unbraid.templates import PromptBuilder, built_in

from ...speech.live.talking import say, silence
from ...speech.word_errors import words
from ...support.places import ROOT
from ...support.running_server import RunningServer, serving
from ...support.waiting import until
from .support import CODE_MS, Client, connected, engine_of, listener, run, service, user

OPENAI_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SPOKEN = "<tts_start>"
TOOL = {
    "type": "function",
    "name": "search",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
SAID = "Sure, let me look that up."


def braided(text: str, codes: int, *, every: int = 4) -> str:
    """A spoken turn as the model writes it: the text runs ahead of the codes."""
    words_of = text.split(" ")
    out, given = "", 0
    for at, word in enumerate(words_of):
        share = min(every, codes - given)
        out += (" " if at else "") + word + "".join(f"<audio_{given + number + 1}>" for number in range(share))
        given += share
    return out + "".join(f"<audio_{number + 1}>" for number in range(given, codes)) + "<tts_end>"


TURN = braided("Hello there my friend how are you today", 50) + "<|EOT|>"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving(service([script(TURN.removesuffix("<|EOT|>"), chunks=3)], of=listener())) as running:
        yield running


def check_order(client: Client) -> None:
    """What holds for every response: items are added before they are changed and done once, in the end all is done.

    And each event is what OpenAI's SDK says that it is.
    """
    for event in client.events:
        if event["type"] != "session.updated":  # tests ask for 16 kHz, which OpenAI's type does not have
            OPENAI_EVENT.validate_python(event)
    begun: set[str] = set()
    done: set[str] = set()
    for event in client.events:
        kind = event["type"]
        if not kind.startswith("response."):
            continue
        if kind == "response.output_item.added":
            begun.add(event["item"]["id"])
        elif kind == "response.output_item.done":
            assert event["item"]["id"] in begun - done
            done.add(event["item"]["id"])
        elif "item_id" in event:
            assert event["item_id"] in begun - done, kind
    assert begun == done
    ids = [event["event_id"] for event in client.events if "event_id" in event]
    assert len(ids) == len(set(ids))


async def respond(client: Client, text: str = "Hi", **response: Any) -> dict[str, Any]:
    await client.send("conversation.item.create", item=user(text))
    await client.send("response.create", response=response)
    done: dict[str, Any] = (await client.until("response.done"))["response"]
    return done


def test_the_recorded_turn_has_speech_then_a_call() -> None:
    """The recording of Step-Audio 2: a transcript with its sound beside it, and a call."""
    recording = read_recording(ROOT / "examples" / "step-audio-2.jsonl")
    made = service(recording.scripts)
    engine_of(made)._speed = float("inf")

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=speaker") as client:
                await client.send("session.update", session={"type": "realtime", "tools": [TOOL]})
                done = await respond(client)
                check_order(client)
                speech, call = done["output"]
                transcript = speech["content"][0]["transcript"]
                assert transcript.startswith(SAID)
                assert client.text("response.output_audio_transcript.delta") == transcript
                sound = b"".join(base64.b64decode(e["delta"]) for e in client.of("response.output_audio.delta"))
                assert len(sound) == 20 * CODE_MS * 24 * 2
                assert (call["type"], call["name"]) == ("function_call", "search")
                assert call["arguments"] == '{"query": "今天北京天气"}'
                assert client.text("response.function_call_arguments.delta") == call["arguments"]
                assert done["status"] == "completed"
                assert done["output_modalities"] == ["audio"]
                # The call's result goes back, and the model is asked again.
                output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
                await client.send("conversation.item.create", item=output)
                await client.send("response.create")
                await client.until("response.done")
                prompt = engine_of(made).requests[-1].prompt
                assert isinstance(prompt, str)
                assert SAID in prompt
                assert "rain" in prompt

    run(tried)


@pytest.mark.parametrize(("kind", "rate", "size"), [("audio/pcm", 16_000, 2), ("audio/pcmu", 8_000, 1)])
def test_sound_comes_in_the_format_that_is_asked_for(server: RunningServer, kind: str, rate: int, size: int) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            format = {"type": kind, "rate": rate} if kind == "audio/pcm" else {"type": kind}
            await client.send("session.update", session={"audio": {"output": {"format": format}}})
            await respond(client)
            sound = b"".join(base64.b64decode(e["delta"]) for e in client.of("response.output_audio.delta"))
            assert len(sound) == 50 * CODE_MS * rate // 1000 * size

    run(tried)


def test_text_alone_where_that_is_asked_for(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            await client.send("session.update", session={"output_modalities": ["text"], "instructions": "Be brief."})
            done = await respond(client)
            check_order(client)
            assert done["output_modalities"] == ["text"]
            assert not client.of("response.output_audio.delta")
            prompt = engine_of(server.service).requests[-1].prompt
            assert isinstance(prompt, str)
            assert "Be brief." in prompt
            assert not prompt.endswith(SPOKEN)

    run(tried)


def test_out_of_band_responses_leave_the_conversation_alone(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            await client.send(
                "response.create", response={"conversation": "none", "input": [user("Aside")], "metadata": {"a": "b"}}
            )
            done = (await client.until("response.done"))["response"]
            assert done["conversation_id"] is None
            assert done["metadata"] == {"a": "b"}
            await client.send("response.create", event_id="e")
            error = (await client.until("error"))["error"]
            assert (error["code"], error["event_id"]) == ("empty_input", "e")

    run(tried)


class Held:
    """A vocoder that stops after some codes until the test goes on."""

    rate = 24_000
    format = "pcm16"

    def __init__(self, after: int) -> None:
        self.go_on = threading.Event()
        self.after = after
        self.fed = 0

    def voice(self) -> Held:
        return self

    def feed(self, codes: Any) -> bytes:
        self.fed += len(codes)
        if self.fed > self.after:
            self.go_on.wait(120)
        return np.zeros(len(codes) * CODE_MS * 24, "<i2").tobytes()

    def finish(self) -> bytes:
        return b""


@pytest.mark.parametrize("how", ["cancel", "truncate", "speech"])
def test_what_the_user_interrupts_is_cut_to_what_was_heard(how: str) -> None:
    vocoder = Held(20)
    made = service([script(TURN.removesuffix("<|EOT|>"), chunks=1)], of=listener())
    made.models[0].vocoder = vocoder

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=speaker") as client:
                await client.send(
                    "session.update", session={"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}}
                )
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create")
                while len(client.of("response.output_audio.delta")) < 10:
                    await client.next()
                await until(lambda: vocoder.fed > 20)  # and there it stays
                item = client.of("response.output_item.added")[0]["item"]["id"]
                if how == "cancel":
                    await client.send("response.cancel")
                elif how == "truncate":
                    await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=200)
                else:
                    await client.append(np.concatenate([silence(0.2), say(["one", "two"])]))
                done = (await client.until("response.done"))["response"]
                vocoder.go_on.set()
                check_order(client)
                assert done["status"] == "cancelled"
                reason = "turn_detected" if how == "speech" else "client_cancelled"
                assert done["status_details"] == {"type": "cancelled", "reason": reason}
                assert done["output"][0]["status"] == "incomplete"
                assert done["usage"]["input_tokens"] > 0
                assert done["usage"]["output_tokens"] > 0
                if how != "truncate":
                    await client.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=200)
                await client.until("conversation.item.truncated")
                await client.send("conversation.item.retrieve", item_id=item)
                (part,) = (await client.until("conversation.item.retrieved"))["item"]["content"]
                heard = part["transcript"]
                assert client.text("response.output_audio_transcript.delta").startswith(heard)
                assert heard in ("", "Hello", "Hello there")
                # The model is told what was heard, and no more.
                await client.send("session.update", session={"audio": {"input": {"turn_detection": None}}})
                await client.send("conversation.item.create", item=user("And?"))
                await client.send("response.create")
                await client.until("response.done")
                prompt = engine_of(made).requests[-1].prompt
                assert isinstance(prompt, str)
                assert "friend" not in prompt

    run(tried)


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["a ", "bc ", "def ", "字"]), st.integers(0, 5)), min_size=1, max_size=20
    ),
    ms=st.integers(0, 3000),
    more=st.integers(0, 3000),
)
def test_more_sound_is_never_less_text(pieces: list[tuple[str, int]], ms: int, more: int) -> None:
    spoken = SpokenText()
    for text, codes in pieces:
        spoken.said(text)
        spoken.codes += codes
        spoken.ms += CODE_MS * codes
    less, rest = spoken.heard_until(ms), spoken.heard_until(ms + more)
    assert spoken.text.startswith(rest)
    assert rest.startswith(less)
    assert spoken.heard_until(0) == ""
    assert spoken.heard_until(spoken.ms + 1) == spoken.text


def test_what_is_said_is_answered_by_its_transcript(server: RunningServer) -> None:
    """A model that does not hear gets the words, once they are there; by the detector, without being asked."""
    engine = engine_of(server.service)

    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            audio = {"format": {"type": "audio/pcm", "rate": 16_000}, "transcription": {"model": "whisper-1"}}
            await client.send("session.update", session={"audio": {"input": audio}})
            await client.append(np.concatenate([say(["one", "two", "three"], gap=0.02), silence(1.0)]))
            done = (await client.until("response.done"))["response"]
            assert done["status"] == "completed"
            heard = client.of("conversation.item.input_audio_transcription.completed")[0]["transcript"]
            assert words(heard) == ["one", "two", "three"]
            prompt = engine.requests[-1].prompt
            assert isinstance(prompt, str)
            assert heard in prompt

    run(tried)


def test_a_model_that_hears_gets_the_sound() -> None:
    made = service([script("Yes.")], of=listener(), hears=True)
    model = made.models[0].model
    model.builder = PromptBuilder(
        built_in("step-audio-2"), None, model.format, part_hook=placeholder_hook("<audio_patch>")
    )

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=speaker") as client:
                audio = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
                await client.send("session.update", session={"audio": {"input": audio}})
                sound = say(["one", "two"])
                await client.append(sound)
                await client.send("input_audio_buffer.commit")
                await client.send("response.create")
                await client.until("response.done")
                (request,) = engine_of(made).requests
                (heard,) = request.audio
                assert heard.format == "wav"
                assert len(heard.data) == 44 + 2 * len(sound)
                item = client.of("conversation.item.added")[0]["item"]["id"]
                await client.send("conversation.item.retrieve", item_id=item)
                (part,) = (await client.until("conversation.item.retrieved"))["item"]["content"]
                assert len(base64.b64decode(part["audio"])) == 2 * len(sound)

    run(tried)


WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    ("conversation.item.create", {"item": {"type": "picture"}}, "item.type"),
    ("conversation.item.create", {"item": {"type": "message", "role": "user", "content": []}}, "item.content"),
    ("conversation.item.create", {"item": user("x"), "previous_item_id": "nobody"}, "previous_item_id"),
    ("conversation.item.delete", {"item_id": "nobody"}, "item_id"),
    ("conversation.item.truncate", {"item_id": "nobody", "audio_end_ms": 1}, "item_id"),
    ("response.create", {"response": 3}, "response"),
    ("response.create", {"response": {"tools": 3}}, "response.tools"),
    ("response.create", {"response": {"max_output_tokens": 0}}, "response.max_output_tokens"),
    ("response.create", {"response": {"input": 3}}, "response.input"),
    ("response.create", {"response": {"audio": {"output": {"pitch": 3}}}}, "response.audio.output.pitch"),
    ("session.update", {"session": {"tool_choice": "sometimes"}}, "tool_choice"),
    ("response.cancel", {}, None),
]


def test_what_is_wrong_is_told_by_its_field(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            for kind, fields, param in WRONG:
                await client.send(kind, event_id="e", **fields)
                error = (await client.until("error"))["error"]
                assert (error["param"], error["event_id"]) == (param, "e"), kind
            await client.send("conversation.item.create", item={**user("x"), "id": "mine"})
            await client.until("conversation.item.done")
            await client.send("conversation.item.create", item={**user("x"), "id": "mine"})
            assert (await client.until("error"))["error"]["param"] == "item.id"
            await client.send("conversation.item.delete", item_id="mine")
            await client.until("conversation.item.deleted")

    run(tried)


SESSION = {
    "type": "realtime",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "turn_detection": {"type": "semantic_vad", "eagerness": "low", "create_response": True, "threshold": 0.5},
            "transcription": {"model": "words", "language": "en", "keywords": ["Ada"]},
        },
        "output": {"format": {"type": "audio/pcmu"}, "voice": "marin", "speed": 1},
    },
    "output_modalities": ["audio"],
    "reasoning": {"effort": "low"},
    "truncation": {"type": "retention_ratio", "retention_ratio": 0.8},
    "tool_choice": {"type": "function", "name": "search"},
    "tools": [TOOL],
    "max_output_tokens": 9,
}
RESPONSE = {
    "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000}}},
    "conversation": "none",
    "input": [user("x")],
    "metadata": {"a": "b"},
    "output_modalities": ["text"],
    "tool_choice": "none",
    "reasoning": {"effort": "low"},
}
ITEMS: list[dict[str, Any]] = [
    user("x"),
    {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "x"}]},
    {"type": "function_call", "name": "search", "arguments": "{}", "call_id": "c"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
]
FREE = ("tools", "truncation", "metadata", "input", "tool_choice")
"""What is in them is not this dialect's to name."""


def changed(value: Any, wrong: Any, free: bool = False) -> Iterator[tuple[Any, bool]]:
    """A value with each part replaced, and with an unknown name in each object; and whether that is refused."""
    yield wrong, False
    if isinstance(value, dict):
        yield {**value, "bogus": wrong}, not free
        for name, part in value.items():
            yield from (({**value, name: one}, sure) for one, sure in changed(part, wrong, free or name in FREE))
    elif isinstance(value, list):
        yield from (([one], sure) for part in value for one, sure in changed(part, wrong, free))


@pytest.mark.parametrize("wrong", [3, "x", True, [], ["x"], [["x"]], {"x": {}}, {"type": ["x"]}], ids=repr)
def test_whatever_an_event_has_it_is_taken_or_refused_by_name(wrong: Any) -> None:
    """No value of any field is a mistake of the server, and no name that is not known is left out silently."""
    names = ("words", "whisper-1")
    reader = OptionsReader(detects=True, transcribes=True, speaks=True, names=names, hears=True)
    first = reader.first("realtime", "speaker")
    assert reader.updated(first, SESSION).reasoning == {"effort": "low"}
    readers: list[tuple[Any, Callable[[Any], object]]] = [
        (SESSION, lambda update: reader.updated(first, update)),
        (RESPONSE, lambda fields: reader.for_response(first, fields)),
        *((item, lambda value: read_item(value, "item")) for item in ITEMS),
    ]
    for whole, read in readers:
        read(whole)
        for each, refused in changed(whole, wrong):
            with pytest.raises(ApiError) if refused else suppress(ApiError):
                read(each)


def test_a_response_is_told_also_where_it_is_cancelled_at_once(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            await client.send("conversation.item.create", item=user("Hi"))
            await client.send("response.create")
            await client.send("response.cancel")
            assert (await client.until("response.done"))["response"]["status"] == "cancelled"
            assert len(client.of("response.created")) == 1

    run(tried)


def test_a_response_says_the_format_that_it_has(server: RunningServer) -> None:
    async def tried() -> None:
        async with connected(server, "?model=speaker") as client:
            done = await respond(client, audio={"output": {"format": {"type": "audio/pcmu"}}})
            assert done["audio"]["output"] == {"format": {"type": "audio/pcmu"}, "voice": "default"}

    run(tried)


def test_one_response_at_a_time() -> None:
    vocoder = Held(4)
    made = service([script(TURN.removesuffix("<|EOT|>"), chunks=1)])
    made.models[0].vocoder = vocoder

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=speaker") as client:
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create")
                await client.send("response.create", event_id="second")
                error = (await client.until("error"))["error"]
                assert error["code"] == "conversation_already_has_active_response"
                vocoder.go_on.set()
                assert (await client.until("response.done"))["response"]["status"] == "completed"
                assert len(client.of("response.created")) == 1

    run(tried)


def test_a_client_that_leaves_ends_the_engines_work() -> None:
    vocoder = Held(4)
    made = service([script(TURN.removesuffix("<|EOT|>"), chunks=1)])
    made.models[0].vocoder = vocoder

    async def tried() -> None:
        with serving(made) as running:
            async with connected(running, "?model=speaker") as client:
                await client.send("conversation.item.create", item=user("Hi"))
                await client.send("response.create")
                await until(lambda: vocoder.fed > 4)
                client.socket.transport.abort()
            vocoder.go_on.set()
            await until(lambda: not running._server.server_state.tasks)
            assert running.access.connections.count == 0

    run(tried)
