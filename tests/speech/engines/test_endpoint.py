"""A server's own endpoint as a listener: a real one, which is ours, and what others say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from unbraid import UnbraidError
from unbraid.engines import EngineDown, EngineFailed, Unsupported
from unbraid.speech.audio.pcm import as_wav
from unbraid.speech.engines.endpoint import EndpointListener
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.outputs import RESPONSE_FORMATS, render_transcript
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Detected, Transcript, TranscriptEvent
from unbraid.speech.whisper.listener import WhisperEngine

from ...support.fake_servers import FakeServer, Fault, _send_json
from ...support.in_loop import in_loop
from ...support.real_speech import recording
from ...support.running_server import RunningServer
from ..fake_listening import FakeEndpoint, read_wav, whisper_server
from ..listening import PLAIN, QUIET, TINY, events_of, free_url, run, speech, times, transcript_of
from ..noises import syllables
from ..whisper.whisper_models import whisper_engine


@pytest.fixture(scope="module")
def behind() -> Iterator[RunningServer]:
    with whisper_server() as server:
        yield server


@pytest.fixture(scope="module")
def embedded() -> Iterator[WhisperEngine]:
    engine = whisper_engine(TINY, parallel=2)
    yield engine
    asyncio.run(engine.close())


@asynccontextmanager
async def endpoint(*servers: RunningServer | FakeServer, **options: Any) -> AsyncGenerator[EndpointListener, None]:
    urls = [server.url for server in servers]
    listener = EndpointListener(urls, **{"model": "whisper-1", "routing": QUIET, **options})
    try:
        yield listener
    finally:
        await listener.close()


# One that is real


@pytest.mark.system
@pytest.mark.parametrize(
    ("language", "name", "options"),
    [
        ("en", "jfk", TranscriptionOptions()),
        ("fr", "demo-thanks", TranscriptionOptions(language="French")),
        ("es", "demo-thanks", TranscriptionOptions(timestamps=True)),
        ("en", "demo-congrats", TranscriptionOptions(temperature=0.0)),  # several chunks
    ],
)
def test_the_endpoint_says_what_its_model_says(
    behind: RunningServer, embedded: WhisperEngine, language: str, name: str, options: TranscriptionOptions
) -> None:
    async def both() -> tuple[Transcript, Transcript]:
        samples = recording(language, name).samples
        async with endpoint(behind) as listener:
            there = await transcript_of(listener, samples, options)
            return there, await Transcriber(embedded).transcribe([samples], options)

    there, here = run(both())
    assert there.text == here.text
    assert (there.language, here.language) == (language, language)
    assert there.duration == here.duration
    if options.timestamps:
        assert times(there) == times(here)
    assert there.warnings == ()


@pytest.mark.system
def test_translations_go_to_their_own_endpoint(behind: RunningServer, embedded: WhisperEngine) -> None:
    samples, options = recording("es", "demo-thanks").samples, TranscriptionOptions(task="translate")

    async def both() -> tuple[Transcript, Transcript]:
        async with endpoint(behind) as listener:
            there = await transcript_of(listener, samples, options)
            return there, await Transcriber(embedded).transcribe([samples], options)

    there, here = run(both())
    assert there.text == here.text
    assert there.language is None, "some endpoints say the language that is written"


@pytest.mark.system
def test_the_language_may_come_last_in_the_servers_stream(behind: RunningServer) -> None:
    async def found() -> list[TranscriptEvent]:
        async with endpoint(behind) as listener:
            return await events_of(listener, recording("fr", "tt-weasels").samples, TranscriptionOptions(), stream=True)

    events = run(found())
    assert [event.language for event in events if isinstance(event, Detected)] == ["fr"]
    assert isinstance(events[0], Detected)  # it comes first here: a chunk is sent when all of it is known


@pytest.mark.system
def test_what_an_endpoint_cannot_do(behind: RunningServer) -> None:
    async def ask(options: TranscriptionOptions, **server: Any) -> None:
        async with endpoint(behind, **server) as listener:
            await Transcriber(listener).transcribe([recording("en", "tt-weasels").samples], options)

    with pytest.raises(UnbraidError, match="takes one language or none"):
        run(ask(TranscriptionOptions(languages=("en", "de"))))
    with pytest.raises(Unsupported, match="knows no language 'klingon'"):  # the endpoint says so
        run(ask(TranscriptionOptions(language="klingon")))
    with pytest.raises(UnbraidError, match="does not transcribe here"):
        run(ask(TranscriptionOptions(), model="whisper-9"))


@pytest.mark.system
@in_loop
async def test_an_endpoint_that_is_not_there() -> None:
    listener = EndpointListener(free_url(), model="whisper-1", routing=QUIET)
    with pytest.raises(EngineDown, match="cannot be reached"):
        await Transcriber(listener).transcribe([speech()], PLAIN)
    with pytest.raises(EngineDown):
        await listener.check()
    await listener.close()


# What others say


def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"object": "transcription.chunk", "choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def delta(text: str) -> dict[str, Any]:
    return {"type": "transcript.text.delta", "delta": text}


def done(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "transcript.text.done", "text": text, **more}


VERBOSE = {
    "task": "transcribe",
    "language": "english",
    "duration": 3.0,
    "text": "Weasels. Have eaten.",
    "segments": [
        {"id": 0, "start": 0.013, "end": 1.27, "text": "Weasels."},
        {"id": 1, "start": 1.27, "end": 99.0, "text": " Have eaten."},
        {"id": 2, "start": 99.0, "end": 99.0, "text": " "},
    ],
}


async def asked_of(server: FakeEndpoint, options: TranscriptionOptions = PLAIN, **more: Any) -> Transcript:
    async with server, endpoint(server, **more) as listener:
        return await Transcriber(listener).transcribe([speech()], options)


@pytest.mark.system
@pytest.mark.parametrize(
    ("server", "text", "language"),
    [
        (FakeEndpoint(chunk(" Wea"), chunk("sels."), chunk("", "stop")), "Weasels.", None),  # vLLM and SGLang
        (FakeEndpoint(chunk("Weasels.", "stop"), {"choices": [], "usage": {"prompt_tokens": 4}}), "Weasels.", None),
        (
            FakeEndpoint(delta("Wea"), delta("sels."), {"type": "transcript.text.done", "text": "Weasels."}),
            "Weasels.",
            None,
        ),
        (
            FakeEndpoint({"type": "transcript.text.done", "text": "All at once.", "language": "de"}),
            "All at once.",
            "de",
        ),
        (
            FakeEndpoint({"text": " Weasels. ", "usage": {"type": "duration", "seconds": 3}}, whole=True),
            "Weasels.",
            None,
        ),
        (FakeEndpoint({"text": "Weasels.", "language": "English"}, whole=True), "Weasels.", "en"),
        (FakeEndpoint({"text": "Weasels.", "language": "Elvish"}, whole=True), "Weasels.", None),
        (FakeEndpoint({"text": ""}, whole=True), "", None),
        (FakeEndpoint({"type": "transcript.text.segment", "text": "x"}, done("Weasels.")), "Weasels.", None),
    ],
)
@in_loop
async def test_however_it_is_said(server: FakeEndpoint, text: str, language: str | None) -> None:
    found = await asked_of(server)
    assert (found.text, found.language, found.warnings) == (text, language, ())


@pytest.mark.system
@in_loop
async def test_segments_of_a_reply() -> None:
    """Their times are rounded to Whisper's, and lie within the chunk."""
    server = FakeEndpoint(VERBOSE, whole=True)
    found = await asked_of(server, TranscriptionOptions(timestamps=True))
    end = round(len(speech()) / 16000, 2)
    assert times(found) == [(0.02, 1.28, " Weasels."), (1.28, end, " Have eaten.")]
    assert (found.text, found.language) == ("Weasels. Have eaten.", "en")
    [asked] = server.generated
    assert asked["response_format"] == "verbose_json"
    assert asked["timestamp_granularities[]"] == "segment"
    assert "stream" not in asked


@pytest.mark.system
@in_loop
async def test_a_time_that_is_no_number() -> None:
    """Some servers' JSON has NaN in it, and so has Python's."""
    segment = {"id": 0, "start": float("nan"), "end": 1.27, "text": "Weasels."}
    found = await asked_of(
        FakeEndpoint({**VERBOSE, "segments": [segment]}, whole=True), TranscriptionOptions(timestamps=True)
    )
    assert times(found) == [(0.0, 1.28, " Weasels.")]


@pytest.mark.system
@in_loop
async def test_a_reply_without_segments_is_one() -> None:
    found = await asked_of(FakeEndpoint({"text": "Weasels."}, whole=True), TranscriptionOptions(timestamps=True))
    assert times(found) == [(0.0, round(len(speech()) / 16000, 2), " Weasels.")]


@pytest.mark.system
@in_loop
async def test_what_is_asked() -> None:
    server = FakeEndpoint({"text": "Weasels."}, whole=True)
    options = TranscriptionOptions(language="English", prompt=" Weasels ", temperature=0.3, seed=7)
    found = await asked_of(server, options, model="whisper-large", api_key="secret")
    assert found.language == "en", "what was given, where the reply does not say it"
    [asked] = server.generated
    file = asked.pop("file")
    assert asked == {
        "model": "whisper-large",
        "language": "en",
        "prompt": "Weasels",
        "temperature": "0.3",
        "seed": "7",
        "response_format": "verbose_json",
        "timestamp_granularities[]": "segment",
    }
    assert np.array_equal(read_wav(file), speech())
    assert server.asked[0].headers["authorization"] == "Bearer secret"


REPLIES = (
    TranscriptionOptions(),
    TranscriptionOptions(timestamps=True),
    TranscriptionOptions(temperature=0.0),
)


class Without(FakeEndpoint):
    """A server that has no `verbose_json`, as OpenAI's newer models and vLLM's without times."""

    async def _stream(self, body: Any, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]) -> None:
        if body["response_format"] == "verbose_json":
            refusal = {"error": {"message": "response_format 'verbose_json' is not supported", "code": 400}}
            _send_json(writer, 400, refusal, {"Content-Type": "application/json"})
            return
        await super()._stream(body, writer, ahead)


@pytest.mark.system
@pytest.mark.parametrize(
    ("server", "asked", "text"),
    [
        (FakeEndpoint(VERBOSE, whole=True), ["verbose_json"] * 6, "Weasels. Have eaten."),
        (Without({"text": "Weasels."}, whole=True), ["verbose_json", *["json"] * 6], "Weasels."),
        (Without(chunk("Wea"), chunk("sels."), chunk("", "stop")), ["verbose_json", *["json"] * 6], "Weasels."),
    ],
    ids=["times", "none", "streamed"],
)
@in_loop
async def test_one_text_in_all_replies(server: FakeEndpoint, asked: list[str], text: str) -> None:
    """The law of speech: a server is asked the same whatever is to be replied, so its text is the same. One that gives
    no times is asked for them once."""
    async with server, endpoint(server) as listener:
        for options in REPLIES:
            whole = await transcript_of(listener, speech(), options)  # streamed, too
            assert whole.text == text
            for format in RESPONSE_FORMATS:
                rendered = render_transcript(whole, format, options)
                words = rendered["text"] if isinstance(rendered, dict) else rendered
                assert all(word in words for word in text.split())
            assert "".join(segment.text for segment in whole.segments).strip() == text
    assert [body["response_format"] for body in server.generated] == asked
    questions = [{key: value for key, value in body.items() if key != "file"} for body in server.generated[1:]]
    assert all(question == questions[0] for question in questions)


@pytest.mark.system
@in_loop
async def test_what_is_refused_for_another_reason_is_told() -> None:
    """It is asked without times, in vain, and the first refusal is passed on."""
    server = FakeEndpoint(fault=Fault("status", status=400, message="no such language"))
    for _ in range(2):
        with pytest.raises(Unsupported, match="no such language"):
            await asked_of(server)
    assert [body["response_format"] for body in server.generated] == ["verbose_json", "json"] * 2


@pytest.mark.system
@in_loop
async def test_the_model_is_asked_for() -> None:
    server = FakeEndpoint({"text": "Weasels."}, whole=True)
    await asked_of(server, TranscriptionOptions(), model=None)
    assert [asked["model"] for asked in server.generated] == ["fake"]


@pytest.mark.parametrize(
    ("first", "joined"), [("Eins.", "Eins. Eins."), ("你好。", "你好。你好。"), (" Un.", "Un. Un.")]
)
@in_loop
async def test_chunks_are_joined_as_their_script_has_it(first: str, joined: str) -> None:
    server = FakeEndpoint({"text": first}, whole=True)
    async with server, endpoint(server) as listener:
        found = await Transcriber(listener).transcribe([syllables(40.0)], TranscriptionOptions())
    assert found.text == joined


@pytest.mark.system
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault("status", status=400, message="no such language"), Unsupported, "no such language"),
        (Fault("status", status=503, message="busy"), EngineDown, "busy"),
        (Fault("cut", after=1), EngineFailed, "the connection"),
        (Fault("garbage", after=1), EngineFailed, "no JSON object"),
        (Fault("error", after=1, message="out of memory"), EngineFailed, "out of memory"),
    ],
)
@in_loop
async def test_faults(fault: Fault, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await asked_of(FakeEndpoint(chunk("Wea"), chunk("sels."), chunk("", "stop"), fault=fault))


@pytest.mark.system
@in_loop
async def test_a_stream_that_does_not_end() -> None:
    with pytest.raises(EngineFailed, match="broke off"):
        await asked_of(FakeEndpoint(chunk("Wea")))


@pytest.mark.system
@in_loop
async def test_another_server_where_one_fails() -> None:
    broken = FakeEndpoint(fault=Fault("status", status=500))
    async with broken, FakeEndpoint({"text": "Weasels."}, whole=True) as well, endpoint(broken, well) as listener:
        for _ in range(3):
            assert (await Transcriber(listener).transcribe([speech()], TranscriptionOptions())).text == "Weasels."
        assert len(well.generated) == 3


def test_samples_as_a_file() -> None:
    samples = np.array([0.0, 0.5, -1.0, 1.0, 2.0, 1 / 32768], np.float32)
    assert list(read_wav(as_wav(samples)) * 32768) == [0, 16384, -32768, 32767, 32767, 1]
