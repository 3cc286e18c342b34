"""Live transcription over a WebSocket, by OpenAI's protocol and by vLLM's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
import websockets

from unbraid.engines.base import EngineDown
from unbraid.speech.audio.pcm import Resampler

from ...speech.live.talking import WordListener, say, silence
from ...speech.word_errors import words
from ...support.running_server import RunningServer, serving
from ...support.waiting import until
from .support import Client, connected, listener, run, service

DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
FORMATS = [("audio/pcm", 16_000), ("audio/pcm", 24_000), ("audio/pcmu", 8_000), ("audio/pcma", 8_000)]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[RunningServer, WordListener]]:
    of = listener()
    with serving(service(of=of)) as running:
        yield running, of


async def configure(client: Client, **given: object) -> dict[str, object]:
    audio = {"format": {"type": "audio/pcm", "rate": 16_000}, **given}
    await client.send("session.update", session={"type": "transcription", "audio": {"input": audio}})
    return dict((await client.until("session.updated"))["session"])


@pytest.mark.parametrize(("kind", "rate"), FORMATS)
def test_utterances_by_the_detector(server: tuple[RunningServer, WordListener], kind: str, rate: int) -> None:
    """Two utterances: each has its events in order, and its deltas are its transcript."""
    sound = np.concatenate(
        [silence(0.5), say(["one", "two", "three"], gap=0.02), silence(1.0), say(["four"]), silence(1.0)]
    )
    sent = sound if rate == 16_000 else Resampler(16_000, rate).feed(sound)

    async def tried() -> None:
        async with connected(server[0], "?intent=transcription") as client:
            await configure(client, format={"type": kind, "rate": rate} if kind == "audio/pcm" else {"type": kind})
            for at in range(0, len(sent), rate // 5):
                await client.append(
                    sent[at : at + rate // 5], {"audio/pcmu": "pcmu", "audio/pcma": "pcma"}.get(kind, "pcm")
                )
            first, second = await client.until(COMPLETED), await client.until(COMPLETED)
            ids = [event["item_id"] for event in client.of("input_audio_buffer.committed")]
            assert {first["item_id"], second["item_id"]} == set(ids)
            for done in (first, second):
                assert done["transcript"] == "".join(
                    e["delta"] for e in client.of(DELTA) if e["item_id"] == done["item_id"]
                )
                assert done["languages"] == [{"code": "en"}]
                assert done["usage"]["type"] == "duration"
            by_id = {event["item_id"]: words(event["transcript"]) for event in (first, second)}
            if kind == "audio/pcm":
                assert [by_id[id] for id in ids] == [["one", "two", "three"], ["four"]]
            kinds = [event["type"] for event in client.events if event.get("item_id") == ids[0]]
            in_order = [k for k in kinds if k != DELTA]
            assert in_order == [
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                COMPLETED,
            ]
            added = client.of("conversation.item.added")
            assert [event["item"]["id"] for event in added] == ids
            assert added[1]["previous_item_id"] == ids[0]
            started = client.of("input_audio_buffer.speech_started")[0]["audio_start_ms"]
            assert 100 <= started <= 600

    run(tried)


def test_by_hand_words_wait_for_the_commit(server: tuple[RunningServer, WordListener]) -> None:
    running, of = server

    async def tried() -> None:
        async with connected(running, "?model=whisper-1") as client:
            session = await configure(client, turn_detection=None)
            assert session["audio"]["input"]["turn_detection"] is None  # type: ignore[index]
            await client.send("input_audio_buffer.commit", event_id="too early")
            error = (await client.until("error"))["error"]
            assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "too early")
            before = len(of.requests)
            await client.append(say(["five", "six", "seven"], gap=0.02))
            await until(lambda: len(of.requests) > before)  # it listens already
            await client.append(np.concatenate([silence(5.0), say(["eight"])]))
            await client.send("input_audio_buffer.commit")
            committed = await client.until("input_audio_buffer.committed")
            assert not client.of(DELTA)
            done = await client.until(COMPLETED)
            assert done["item_id"] == committed["item_id"]
            assert words(done["transcript"]) == ["five", "six", "seven", "eight"]
            assert client.text(DELTA) == done["transcript"]
            await client.append(say(["one"]))
            await client.send("input_audio_buffer.clear")
            await client.until("input_audio_buffer.cleared")
            await client.send("input_audio_buffer.commit")
            assert (await client.until("error"))["error"]["code"] == "input_audio_buffer_commit_empty"

    run(tried)


def test_the_language_may_change_between_utterances(server: tuple[RunningServer, WordListener]) -> None:
    running, of = server

    async def tried() -> None:
        async with connected(running, "?intent=transcription") as client:
            await configure(client, turn_detection=None)
            found = []
            for language in ("de", "fr"):
                of.language = language
                await client.append(say(["one", "two"]))
                await client.send("input_audio_buffer.commit")
                found.append((await client.until(COMPLETED))["languages"][0]["code"])
            assert found == ["de", "fr"]

    try:
        run(tried)
    finally:
        of.language = "en"


def test_a_listener_that_fails_is_told_and_the_session_goes_on(server: tuple[RunningServer, WordListener]) -> None:
    running, of = server

    async def tried() -> None:
        async with connected(running, "?intent=transcription") as client:
            await configure(client, turn_detection=None)
            of.error = EngineDown("the engine sleeps", retry_after=1.0)
            await client.append(say(["one", "two"]))
            await client.send("input_audio_buffer.commit")
            failed = await client.until("conversation.item.input_audio_transcription.failed")
            assert failed["error"]["code"] == "engine_down"
            of.error = None
            await client.append(say(["three"]))
            await client.send("input_audio_buffer.commit")
            assert words((await client.until(COMPLETED))["transcript"]) == ["three"]

    try:
        run(tried)
    finally:
        of.error = None


def test_the_beta_has_other_names(server: tuple[RunningServer, WordListener]) -> None:
    async def tried() -> None:
        headers = {"OpenAI-Beta": "realtime=v1"}
        async with connected(server[0], "?intent=transcription", headers=headers) as client:
            flat = {"input_audio_format": "g711_ulaw", "turn_detection": None}
            await client.send("transcription_session.update", session=flat)
            session = (await client.until("transcription_session.updated"))["session"]
            assert session["input_audio_format"] == "g711_ulaw"
            await client.append(Resampler(16_000, 8_000).feed(say(["one"])), "pcmu")
            await client.send("input_audio_buffer.commit")
            await client.until(COMPLETED)
            assert client.of("conversation.item.created")
            assert not client.of("conversation.item.added")

    run(tried)


WRONG = [
    ({"type": "realtime"}, "session.type"),
    ({"audio": {"input": {"format": {"type": "audio/opus"}}}}, "session.audio.input.format"),
    ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 7}}}}, "session.audio.input.format"),
    ({"audio": {"input": {"turn_detection": {"type": "magic"}}}}, "session.audio.input.turn_detection"),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 7}}}},
        "session.audio.input.turn_detection.threshold",
    ),
    ({"audio": {"input": {"transcription": {"languages": 3}}}}, "session.audio.input.transcription.languages"),
    ({"include": ["item.input_audio_transcription.logprobs"]}, "session.include"),
    ({"no_such_field": 1}, "session.no_such_field"),
    ({"audio": []}, None),
    ("nothing", "session"),
]


def test_what_is_wrong_is_told_and_changes_nothing(server: tuple[RunningServer, WordListener]) -> None:
    async def tried() -> None:
        async with connected(server[0], "?intent=transcription") as client:
            for at, (session, param) in enumerate(WRONG):
                await client.send("session.update", session=session, event_id=f"e{at}")
                event = await client.next()
                if param is None:
                    continue
                assert event["type"] == "error", session
                assert (event["error"]["param"], event["error"]["event_id"]) == (param, f"e{at}")
            await client.send("session.update", session={})
            await client.until("session.updated")
            await client.send("response.create", event_id="r")
            assert (await client.until("error"))["error"]["code"] == "unsupported"

    run(tried)


GARBAGE: list[str | bytes] = [
    "",
    "{",
    "[]",
    "null",
    '{"type": 3}',
    '{"type": "no.such"}',
    "\x00",
    '{"a":' * 3000,
    b"\x00\xff",
    b"",
]


def test_garbage_is_refused_frame_by_frame(server: tuple[RunningServer, WordListener]) -> None:
    async def tried() -> None:
        async with connected(server[0], "?intent=transcription") as client:
            for frame in GARBAGE:
                await client.socket.send(frame)
                assert (await client.next())["type"] == "error", frame
            for audio in (None, 3, "???", "AA="):
                await client.send("input_audio_buffer.append", audio=audio)
                assert (await client.next())["error"]["code"] == "invalid_audio"
            await configure(client)

    run(tried)


# vLLM's protocol


def test_as_vllms_clients_do(server: tuple[RunningServer, WordListener]) -> None:
    """Their example: update with the model, a commit to begin, the sound, and a last commit."""

    async def tried() -> None:
        async with connected(server[0]) as client:
            created = client.events[0]
            assert created["id"]
            assert created["created"]
            await client.send("session.update", model="whisper-1")
            for said in (["one", "two", "three"], ["four"]):
                await client.send("input_audio_buffer.commit")
                sound = say(said, gap=0.02)
                for at in range(0, len(sound), 1600):
                    await client.append(sound[at : at + 1600])
                client.events.clear()
                await client.send("input_audio_buffer.commit", final=True)
                done = await client.until("transcription.done")
                assert words(done["text"]) == said
                assert (
                    done["usage"]["total_tokens"] == done["usage"]["prompt_tokens"] + done["usage"]["completion_tokens"]
                )
                told = client.text("transcription.delta")
                assert done["text"].endswith(told)

    run(tried)


def test_vllms_errors_are_text(server: tuple[RunningServer, WordListener]) -> None:
    async def tried() -> None:
        async with connected(server[0]) as client:
            for kind, fields, code in (
                ("session.update", {"model": "nothing"}, "model_not_found"),
                ("input_audio_buffer.commit", {}, "model_not_validated"),
                ("input_audio_buffer.append", {"audio": "?"}, "invalid_audio"),
                ("no.such", {}, "unknown_event"),
            ):
                await client.send(kind, **fields)
                error = await client.until("error")
                assert error["code"] == code
                assert isinstance(error["error"], str)
            await client.socket.send("{")
            assert (await client.next())["code"] == "invalid_json"

    run(tried)


# Nothing grows, nothing hangs


def sessions(server: RunningServer) -> int:
    return len(server._server.server_state.tasks)


def test_clients_that_vanish_leave_nothing_behind(server: tuple[RunningServer, WordListener]) -> None:
    running, of = server

    async def tried() -> None:
        of.gate = asyncio.Event()  # never set: whoever waits for it has to be cancelled
        before = of.closed
        for _ in range(5):
            async with connected(running, "?intent=transcription") as client:
                await configure(client, turn_detection=None)
                asked = len(of.requests)
                await client.append(say(["one", "two", "three"]))
                await until(lambda asked=asked: len(of.requests) > asked)  # type: ignore[misc]
                client.socket.transport.abort()
        await until(lambda: of.closed >= before + 5)
        await until(lambda: sessions(running) == 0)

    try:
        run(tried)
    finally:
        of.gate = None
    assert running.access.connections.count == 0


def test_minutes_of_silence_and_ten_thousand_appends(server: tuple[RunningServer, WordListener]) -> None:
    """Half an hour in pieces of a fifth of a second: no pass is made, and no sound is held."""
    running, of = server

    async def tried() -> None:
        async with connected(running, "?intent=transcription") as client:
            await configure(client)
            before = len(of.requests)
            quiet = silence(0.2)
            for _ in range(10_000):
                await client.append(quiet)
            await client.append(np.concatenate([say(["nine"]), silence(1.0)]))
            done = await client.until(COMPLETED)
            assert words(done["transcript"]) == ["nine"]
            assert len(of.requests) - before <= 3
            assert max(len(request.samples) for request in of.requests[before:]) < 3 * 16_000
            assert client.of("input_audio_buffer.speech_started")[0]["audio_start_ms"] > 1_990_000

    run(tried)


def test_a_backlog_holds_up_its_sender(server: tuple[RunningServer, WordListener]) -> None:
    """While the model works on nothing, the server stops to read: what waits in it has a bound."""
    running, of = server

    async def tried() -> None:
        of.gate = asyncio.Event()
        async with connected(running, "?intent=transcription") as client:
            await configure(client, turn_detection=None)
            loud = np.tile(say(["one", "two", "three", "four", "five"]), 5)  # ten seconds
            sent = 0

            async def flood() -> None:
                nonlocal sent
                for _ in range(200):  # half an hour, 64 MB
                    await client.append(loud)
                    sent += 1

            flooding = asyncio.create_task(flood())
            stuck = -1
            while stuck != sent:  # until it gets no further
                stuck = sent
                for _ in range(40):
                    await asyncio.sleep(0.05)
            assert sent < 150
            flooding.cancel()
            client.socket.transport.abort()
        running.call(of.gate.set)
        await until(lambda: sessions(running) == 0)

    try:
        run(tried)
    finally:
        of.gate = None


def test_a_message_that_is_too_large_ends_the_connection(server: tuple[RunningServer, WordListener]) -> None:
    async def tried() -> None:
        async with connected(server[0], "?intent=transcription") as client:
            with suppress(websockets.ConnectionClosed):
                await client.socket.send("x" * (17 << 20))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is None or closed.value.rcvd.code == 1009

    run(tried)
