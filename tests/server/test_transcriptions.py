"""Transcriptions over HTTP: OpenAI's own client with a real Whisper and real speech, and whatever else may be sent."""

from __future__ import annotations

import asyncio
import html
import io
import json
import re
import socket
import threading
import time
import wave
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, BinaryIO, cast

import httpx
import numpy as np
import openai
import pytest
from openai import OpenAI

from unbraid.core.vocabulary import Vocabulary
from unbraid.engines import EngineDown, EngineError, EngineFailed
from unbraid.engines.base import Load, Piece, TokenLogprob
from unbraid.engines.replay.replay import ReplayEngine, script
from unbraid.server.api import transcriptions
from unbraid.server.http import expire_all
from unbraid.speech.audio.decode import AudioLimits, AudioBlocks, Samples
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import WhisperEngine

from ..speech.whisper.whisper_models import WORDS, files, tokenizer
from ..support.real_speech import RATE, recording
from ..support.running_server import RunningServer, service_of

av: Any = pytest.importorskip("av", reason="av is not installed: pip install av")

TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
RESPONSE_FORMATS = ("json", "text", "verbose_json", "srt", "vtt")
WEASELS = "weasels have eaten our phone system"
CLOCK = r"\d\d:\d\d:\d\d[,.]\d{3}"

# Container, codec, options; by the endings that people know them by.
KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "wav": ("wav", "pcm_s16le", {}),
    "flac": ("flac", "flac", {}),
    "mp3": ("mp3", "libmp3lame", {}),
    "mpga": ("mp2", "mp2", {}),
    "mpeg": ("mpeg", "mp2", {}),
    "mp4": ("mp4", "aac", {}),
    "m4a": ("ipod", "aac", {}),
    "ogg": ("ogg", "vorbis", {"strict": "experimental"}),
    "opus": ("opus", "libopus", {}),
    "webm": ("webm", "libopus", {}),
}


# Recordings


@cache
def jfk() -> bytes:
    """Eleven seconds, of which every word is understood."""
    return recording("en", "jfk").path.read_bytes()


@cache
def weasels() -> bytes:
    """Three seconds."""
    return recording("en", "tt-weasels").path.read_bytes()


def wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


@cache
def minutes() -> bytes:
    """Speech that takes a while."""
    return wav(np.tile(recording("en", "demo-instruct").samples, 4))


def encoded(kind: str, name: str = "tt-weasels") -> bytes:
    """A recording in another kind of file."""
    container, codec, options = KINDS[kind]
    layout = "stereo" if codec == "vorbis" else "mono"  # FFmpeg's own encoder has stereo only
    samples = np.repeat(recording("en", name).samples, 2 if layout == "stereo" else 1)
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        try:
            stream = output.add_stream(codec, rate=RATE, layout=layout, options=options)
        except (av.FFmpegError, ValueError) as error:
            pytest.skip(f"this build of av cannot encode {codec}: {error}")
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout=layout)
        frame.sample_rate = RATE
        frame.pts = 0
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def picture() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="image2pipe") as output:
        stream = output.add_stream("png", rate=1)
        stream.width = stream.height = 64
        stream.pix_fmt = "rgb24"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


# Servers


class Hearer:
    """A server that listens: with a real Whisper, or with what a test puts in its place."""

    def __init__(self) -> None:
        self.engine = WhisperEngine(files("whisper-tiny"), parallel=2)
        self.real = Transcriber(self.engine)
        chat = ReplayEngine([script("Hi there.")], repeat=True)
        names = (self.engine.model, "whisper-1")
        self.server = RunningServer(service_of(chat, "qwen3", transcriber=self.real, listener_names=names))

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.server.url}/v1", api_key="any", max_retries=0, timeout=60)

    def post(self, file: bytes | None = None, path: str = TRANSCRIPTIONS, **fields: Any) -> httpx.Response:
        upload = {} if file is None else {"file": ("speech.wav", file)}
        return httpx.post(self.server.url + path, data=fields, files=upload or {"other": b""}, timeout=60)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.server.url.rpartition(":")[2])), timeout=10)

    @contextmanager
    def asking(self, file: bytes, share: float = 1.0, **fields: str) -> Iterator[socket.socket]:
        """A connection over which a request was sent, or a part of it. It is closed at the end."""
        body, kind = form(file, **fields)
        with self.connect() as connection:
            head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            connection.sendall(body[: int(share * len(body))])
            yield connection

    @property
    def aborted(self) -> float:
        """How many requests ended because the client had gone."""
        return float(self.server.service.metrics.aborted.labels(TRANSCRIPTIONS)._value.get())


@pytest.fixture(scope="module")
def running() -> Iterator[Hearer]:
    hearer = Hearer()
    hearer.server.start()
    yield hearer
    hearer.server.stop()


@pytest.fixture
def hearer(running: Hearer) -> Iterator[Hearer]:
    service = running.server.service
    most, longest = service.max_audio, service.max_audio_seconds
    yield running
    service.transcriber, service.max_audio, service.max_audio_seconds = running.real, most, longest


class Saying:
    """A listener that says what the test wants, a token at a time."""

    model = "saying"
    parallel = 1

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokens: list[int] = []
        self.error: Exception | None = None
        self.hangs = False
        self.requests: list[ListenRequest] = []
        self.left = 0

    @property
    def asked(self) -> int:
        return len(self.requests)

    def say(self, *parts: str) -> None:
        """Each part a special token, or else text."""
        for part in parts:
            token = self.vocabulary.token_id(part) if part.startswith("<|") else None
            self.tokens += [token] if token is not None else encode(part)

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        self.requests.append(request)
        try:
            for token in self.tokens:
                yield Piece((token,), logprobs=(TokenLogprob(token, b"", -0.1),))
            if self.error is not None:
                raise self.error
            if self.hangs:
                await asyncio.Event().wait()
            yield ListenEnd("stop", len(request.prompt), len(self.tokens))
        except (GeneratorExit, asyncio.CancelledError):
            self.left += 1
            raise

    async def close(self) -> None:
        pass


def encode(text: str) -> list[int]:
    """Text that spells no token, whatever it looks like."""
    pieces = [text[:1], text[1:]] if text.startswith("<|") else [text]
    return [token for piece in pieces for token in tokenizer().encode(piece, add_special_tokens=False).ids]


@pytest.fixture
def saying(hearer: Hearer) -> Saying:
    listener = Saying(hearer.engine.vocabulary)
    hearer.server.service.transcriber = Transcriber(listener)
    return listener


PREFIX = ("<|en|>", "<|transcribe|>", "<|notimestamps|>")


def words(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", "", text.casefold()).split())


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, which is always of the same shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return dict(error)


def frames(response: httpx.Response) -> list[Any]:
    """What a stream says, which ends as it should."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *found, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in found]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# OpenAI's client


def test_json(hearer: Hearer) -> None:
    found = hearer.client.audio.transcriptions.create(model="whisper-1", file=("jfk.wav", jfk()))
    assert words(found.text) == WORDS
    assert found.text == found.text.strip()
    assert found.to_dict()["language"] == "en"
    assert found.to_dict()["usage"] == {"type": "duration", "seconds": 11}


def test_text(hearer: Hearer) -> None:
    found = hearer.client.audio.transcriptions.create(model="whisper-1", file=("a", weasels()), response_format="text")
    assert isinstance(found, str)
    assert words(found) == WEASELS
    assert found.endswith(".\n")


def test_verbose_json(hearer: Hearer) -> None:
    found = hearer.client.audio.transcriptions.create(
        model=hearer.engine.model,
        file=("jfk.wav", jfk()),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
        temperature=0.0,
    )
    assert (words(found.text), found.language) == (WORDS, "english")
    assert float(found.duration) == pytest.approx(11.0, abs=0.1)
    more = cast(dict[str, Any], found.to_dict())
    assert (more["task"], more["language_code"], more["warnings"]) == ("transcribe", "en", [])
    assert 0.5 < more["language_probability"] <= 1.0
    assert found.segments
    assert "".join(segment.text for segment in found.segments).strip() == found.text
    last = 0.0
    for number, segment in enumerate(found.segments):
        assert (segment.id, segment.temperature) == (number, 0.0)
        assert last <= segment.start < segment.end <= 11.1
        assert -1.0 < segment.avg_logprob < 0.0
        assert 0.0 <= segment.no_speech_prob < 0.6
        assert 0.5 < segment.compression_ratio < 2.4
        text = [token for token in segment.tokens if token < hearer.engine.tokens.eot]
        assert tokenizer().decode(text).strip() == segment.text.strip()
        last = segment.end


@pytest.mark.parametrize("granularities", [["word"], ["word", "segment"]])
def test_words_and_their_times(hearer: Hearer, granularities: list[Any]) -> None:
    found = hearer.client.audio.transcriptions.create(
        model="whisper-1",
        file=("jfk.wav", jfk()),
        response_format="verbose_json",
        timestamp_granularities=granularities,
    )
    assert found.words
    assert " ".join(word.word for word in found.words) == found.text
    assert words(found.text) == WORDS
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == sorted(times)
    [americans] = [word for word in found.words if words(word.word) == "americans"]
    assert 1.2 < americans.start < 1.8 < americans.end < 2.4
    # Segments are there in any case, and as long as their words.
    assert found.segments
    assert (found.segments[0].start, found.segments[-1].end) == (times[0], times[-1])
    more = cast(list[dict[str, Any]], found.to_dict()["words"])
    assert all(set(word) == {"word", "start", "end", "probability"} and 0 < word["probability"] <= 1 for word in more)


def test_words_of_a_translation(hearer: Hearer) -> None:
    file = recording("es", "demo-thanks").path.read_bytes()
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    found = hearer.post(file, TRANSLATIONS, **more).json()
    assert " ".join(word["word"] for word in found["words"]) == found["text"]


def test_no_words_that_were_not_asked_for(hearer: Hearer) -> None:
    found = hearer.post(weasels(), response_format="verbose_json", **{"timestamp_granularities[]": "segment"})
    assert "words" not in found.json()
    assert hearer.post(weasels(), **{"timestamp_granularities[]": "segment"}).status_code == 200  # does no harm
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    silence = hearer.post(wav(np.zeros(RATE, np.float32)), **more).json()
    assert (silence["words"], silence["segments"]) == ([], [])


def test_a_model_that_tells_no_words(hearer: Hearer, saying: Saying) -> None:
    more = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    error = refused(hearer.post(weasels(), **more), 400)
    assert error["message"] == (
        "timestamp_granularities: this model does not tell when each word was said; ask for segments"
    )
    assert (error["param"], error["code"]) == ("timestamp_granularities", "unsupported")
    error = refused(hearer.post(weasels(), beam_size="2"), 400)
    assert error["message"] == "beam_size: this model has no beam search: it takes 1 beam, not 2"
    assert (error["param"], error["code"]) == ("beam_size", "unsupported")
    assert saying.asked == 0


def test_beams(hearer: Hearer) -> None:
    create = hearer.client.audio.transcriptions.create
    found = create(model="whisper-1", file=("a.wav", jfk()), extra_body={"beam_size": 2})
    assert words(found.text) == WORDS
    *deltas, done = frames(hearer.post(jfk(), beam_size="2", stream="true"))
    assert "".join(event["delta"] for event in deltas) == done["text"] == found.text


def test_srt_and_vtt(hearer: Hearer) -> None:
    create = hearer.client.audio.transcriptions.create
    srt = create(model="whisper-1", file=("a.wav", jfk()), response_format="srt")
    vtt = create(model="whisper-1", file=("a.wav", jfk()), response_format="vtt")
    number, times, text = srt.split("\n")[:3]
    assert (number, words(text)[:9]) == ("1", "and so my")
    assert re.fullmatch(f"{CLOCK} --> {CLOCK}", times)
    assert "," in times
    assert re.match(f"WEBVTT\n\n{CLOCK} --> {CLOCK}\n", vtt)
    assert "," not in vtt.split("\n")[2]
    lines = [line for line in srt.split("\n") if line and "-->" not in line and not line.isdigit()]
    assert words(" ".join(lines)) == WORDS


def test_a_language_that_is_given(hearer: Hearer) -> None:
    file = recording("fr", "tt-weasels").path.read_bytes()
    found = hearer.client.audio.transcriptions.create(
        model="whisper-1", file=("a.wav", file), language="French", response_format="verbose_json"
    )
    assert found.language == "french"
    assert "téléphonique" in found.text
    assert found.to_dict()["language_probability"] is None


def test_languages_that_it_may_be(hearer: Hearer) -> None:
    """Spoken is Spanish: the nearest of those is taken."""
    file = recording("es", "demo-thanks").path.read_bytes()
    create = hearer.client.audio.transcriptions.create
    found = create(model="whisper-1", file=("a.wav", file), extra_body={"languages": ["ru", "Italian"]})
    assert found.to_dict()["language"] == "it"


@pytest.mark.parametrize(
    ("fields", "languages"),
    [
        ({}, 99),
        ({"language": "en"}, 1),
        ({"language": "en-GB"}, 1),
        ({"languages": ["de", "English"]}, 2),
        ({"languages[]": ["de", "en", "fr"]}, 3),
        ({"language": "en", "languages": ["de", "fr"]}, 1),
        ({"language": "", "languages": ""}, 99),
    ],
)
def test_languages_to_choose_from(hearer: Hearer, saying: Saying, fields: dict[str, Any], languages: int) -> None:
    saying.say(*PREFIX, " Hello")
    assert hearer.post(weasels(), **fields).json()["language"] == "en"
    assert [len(tokens) for tokens in saying.requests[0].prefix.sets] == [languages, 1, 1]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # says the client
def test_a_translation(hearer: Hearer) -> None:
    file = recording("es", "demo-thanks").path.read_bytes()
    found = hearer.client.audio.translations.create(model="whisper-1", file=("a.wav", file))
    assert "thank" in found.text.casefold()
    more = hearer.client.audio.translations.create(
        model="whisper-1", file=("a.wav", file), response_format="verbose_json"
    )
    assert more.to_dict()["task"] == "translate"


def test_a_prompt(hearer: Hearer) -> None:
    """It says how a name is written."""
    file = recording("en", "demo-thanks").path.read_bytes()
    create = hearer.client.audio.transcriptions.create
    assert "Asterisk" not in create(model="whisper-1", file=("a.wav", file)).text
    assert "Asterisk" in create(model="whisper-1", file=("a.wav", file), prompt="Asterisk").text


def test_a_prompt_that_spells_tokens(hearer: Hearer, saying: Saying) -> None:
    """They are text."""
    saying.say(*PREFIX, " Hello")
    assert hearer.post(weasels(), prompt="<|endoftext|> <|de|><|0.00|>").status_code == 200
    first, *plain, last = saying.requests[0].prompt
    tokens = hearer.engine.tokens
    assert (first, last) == (tokens.startofprev, tokens.sot)
    assert len(plain) > 10
    assert max(plain) < tokens.eot


def test_a_temperature(hearer: Hearer) -> None:
    """The same seed gives the same text."""
    found = [hearer.post(weasels(), temperature=1.0, seed=3).json()["text"] for _ in range(2)]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_files(hearer: Hearer, kind: str) -> None:
    found = hearer.client.audio.transcriptions.create(model="whisper-1", file=(f"speech.{kind}", encoded(kind)))
    assert words(found.text) == WEASELS


def test_several_at_once(hearer: Hearer) -> None:
    """They are decoded together, and each gets its own."""
    asked = [(language, stream) for language in ("en", "fr", "it") for stream in ("false", "true")]

    def ask(language: str, stream: str) -> tuple[str | None, str]:
        response = hearer.post(recording(language, "demo-thanks").path.read_bytes(), stream=stream)
        found = response.json() if stream == "false" else frames(response)[-1]
        return found["language"], found["text"]

    with ThreadPoolExecutor(len(asked)) as threads:
        found = list(threads.map(ask, *zip(*asked, strict=True)))
    assert [language for language, _ in found] == [language for language, _ in asked]
    for whole, streamed in zip(found[::2], found[1::2], strict=True):
        assert whole == streamed


def test_it_is_among_the_models(hearer: Hearer) -> None:
    assert {"whisper-tiny", "whisper-1"} < {model.id for model in hearer.client.models.list()}


# Streams


def test_a_stream(hearer: Hearer) -> None:
    """More than one chunk: joined, it is the text that is not streamed."""
    file = recording("en", "demo-congrats").path.read_bytes()
    create = hearer.client.audio.transcriptions.create
    events = list(create(model="whisper-1", file=("a.wav", file), stream=True))
    *deltas, done = events
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    text = "".join(event.delta for event in deltas if event.type == "transcript.text.delta")
    assert len(deltas) > 50
    assert text == done.text == create(model="whisper-1", file=("a.wav", file)).text
    assert done.to_dict()["language"] == "en"
    assert done.to_dict()["usage"] == {"type": "duration", "seconds": 31}


def test_a_stream_of_chunks(hearer: Hearer) -> None:
    """As SGLang and vLLM do it."""
    *chunks, end, usage = frames(hearer.post(weasels(), stream="true", stream_format="chunks", model="whisper-1"))
    assert {(chunk["object"], chunk["id"], chunk["model"]) for chunk in [*chunks, end, usage]} == {
        ("transcription.chunk", end["id"], "whisper-1")
    }
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == hearer.post(weasels()).json()["text"]
    assert end["choices"] == [{"delta": {"content": ""}, "finish_reason": "stop"}]
    assert end["language"] == "en"
    counts = usage["usage"]
    assert usage["choices"] == []
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"] > 5


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
def test_silence_in_a_stream(hearer: Hearer, stream_format: str) -> None:
    found = frames(hearer.post(wav(np.zeros(RATE, np.float32)), stream="true", stream_format=stream_format))
    if stream_format == "events":
        assert [event["type"] for event in found] == ["transcript.text.done"]
        assert (found[0]["text"], found[0]["language"]) == ("", None)
    else:
        assert [chunk["choices"] for chunk in found] == [[{"delta": {"content": ""}, "finish_reason": "stop"}], []]


@pytest.mark.parametrize("parts", [[" A b", " ", " c. "], [" ", "\n A b", "  c", ".\n"], [" A b  c."]])
def test_space_around_a_text(hearer: Hearer, saying: Saying, parts: list[str]) -> None:
    """None of it is streamed that the whole text does not have."""
    saying.say(*PREFIX, *parts)
    *deltas, done = frames(hearer.post(weasels(), stream="true"))
    assert "".join(event["delta"] for event in deltas) == done["text"] == "A b  c."
    assert all(event["delta"] for event in deltas)
    assert hearer.post(weasels()).json()["text"] == done["text"]


# What is no recording


def test_no_recordings(hearer: Hearer) -> None:
    cases = {
        b"": "is empty",
        b"Dear Sir or Madam,\n" * 500: "send one of flac, mp3",
        picture(): "send one of flac, mp3",
        jfk()[:30]: "sound",
        wav(np.zeros(0, np.float32)): "no sound",
    }
    for file, said in cases.items():
        for stream in ("false", "true"):
            error = refused(hearer.post(file, stream=stream), 400)
            assert said in error["message"]
            assert error["param"] == "file"
            assert "/tmp" not in error["message"]


def test_the_client_is_told_what_is_wrong(hearer: Hearer) -> None:
    create = hearer.client.audio.transcriptions.create
    with pytest.raises(openai.BadRequestError, match="send one of flac, mp3"):
        create(model="whisper-1", file=("letter.mp3", b"Dear Sir or Madam,"))
    with pytest.raises(openai.NotFoundError, match="'whisper-9' does not transcribe here"):
        create(model="whisper-9", file=("a.wav", weasels()))


def test_no_file(hearer: Hearer) -> None:
    for fields in ({}, {"file": "speech.wav"}):
        files = {"other": b""}
        error = refused(httpx.post(hearer.server.url + TRANSLATIONS, data=fields, files=files), 400)
        assert (error["param"], "file is missing" in error["message"]) == ("file", True)


@pytest.mark.parametrize("shape", RESPONSE_FORMATS)
def test_silence(hearer: Hearer, shape: str) -> None:
    response = hearer.post(wav(np.zeros(2 * RATE, np.float32)), response_format=shape)
    assert response.status_code == 200
    if "json" in shape:
        found = response.json()
        assert (found["text"], found["language"]) == ("", None)
        assert found.get("segments", []) == []
    else:
        assert response.text.strip() == ("WEBVTT" if shape == "vtt" else "")


@pytest.mark.parametrize("announced", [True, False])
def test_too_large(hearer: Hearer, announced: bool) -> None:
    hearer.server.service.max_audio = 50_000
    body, kind = form(weasels())
    content = body if announced else iter([body[:1000], body[1000:60_000], body[60_000:]])
    response = httpx.post(hearer.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": kind})
    error = refused(response, 413)
    assert error["param"] == "file"
    assert error["message"] == "the recording is larger than 50000 bytes, the most that this server takes"


@pytest.mark.parametrize("announced", [True, False])
def test_a_form_that_is_too_large(hearer: Hearer, announced: bool) -> None:
    """It is not read to its end."""
    hearer.server.service.max_audio = 50_000
    body, kind = form(bytes(2_000_000))
    content = body if announced else iter([body[at : at + 10_000] for at in range(0, len(body), 10_000)])
    response = httpx.post(hearer.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": kind})
    error = refused(response, 413)
    assert error["param"] == "file"
    assert error["message"] == "the form is larger than 1050000 bytes: a recording may have 50000, and all else 1000000"


def test_only_the_recording_counts(hearer: Hearer, saying: Saying) -> None:
    """A file may be just as large as it may, whatever else the form has."""
    saying.say(*PREFIX, " Hello")
    hearer.server.service.max_audio = len(weasels())
    assert hearer.post(weasels(), prompt="word " * 10_000).json()["text"] == "Hello"
    refused(hearer.post(weasels() + b"x"), 413)


def test_too_large_for_the_client(hearer: Hearer) -> None:
    """It is told, though it still sends."""
    with pytest.raises(openai.APIStatusError, match="larger than") as raised:
        hearer.client.audio.transcriptions.create(model="whisper-1", file=("a.wav", bytes(26_000_000)))
    assert raised.value.status_code == 413


def test_announced_too_large(hearer: Hearer) -> None:
    """It is refused at once, and not waited for."""
    with hearer.connect() as connection:
        head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        connection.sendall(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("promised", [True, False])
def test_too_long(hearer: Hearer, stream: str, promised: bool) -> None:
    hearer.server.service.max_audio_seconds = 2.0
    error = refused(hearer.post(weasels() if promised else encoded("mp3"), stream=stream), 413)
    assert (error["param"], "0.03333 minutes" in error["message"]) == ("file", True)


def test_too_long_in_the_middle_of_a_stream(hearer: Hearer, saying: Saying) -> None:
    """Where a file does not say how long it is, what came before stays."""
    saying.say(*PREFIX, " Hello")
    hearer.server.service.max_audio_seconds = 45.0
    delta, error = frames(hearer.post(encoded("mpga", "demo-instruct"), stream="true"))
    assert delta["delta"] == "Hello"
    assert error["error"]["param"] == "file"
    assert "longer than" in error["error"]["message"]


# Requests that are wrong


def form(file: bytes, **fields: str) -> tuple[bytes, str]:
    """A form's body, and its content type."""
    request = httpx.Request("POST", "http://x", data=fields, files={"file": ("speech.wav", file)})
    return request.read(), request.headers["content-type"]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"language": "klingon"}, "language", "no language 'klingon'"),
        ({"language": "germn"}, "language", "near it are german"),
        ({"languages": ["de", "klingon"]}, "languages", "no language 'klingon'"),
        ({"response_format": "xml"}, "response_format", "one of json, text, verbose_json, srt, vtt, not 'xml'"),
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
        ({"beam_size": "2", "temperature": "0.5"}, "beam_size", "nothing to chance"),
        ({"stream": "yes"}, "stream", "true or false, not 'yes'"),
        ({"stream_format": "sse"}, "stream_format", "one of events, chunks"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "=verbose_json; not with json"),
        (
            {"timestamp_granularities": ["segment", "word"], "response_format": "srt"},
            "timestamp_granularities",
            "=verbose_json; not with srt",
        ),
        (
            {"timestamp_granularities": "word", "response_format": "verbose_json", "stream": "true"},
            "timestamp_granularities",
            "a stream has none",
        ),
        ({"timestamp_granularities": "letter"}, "timestamp_granularities", "neither word nor segment"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
def test_fields_that_are_wrong(hearer: Hearer, path: str, fields: dict[str, Any], param: str, said: str) -> None:
    error = refused(hearer.post(weasels(), path, **fields), 400)
    assert said in error["message"]
    assert error["param"] == param


def test_an_unknown_model(hearer: Hearer) -> None:
    error = refused(hearer.post(weasels(), model="whisper-9"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "'whisper-1'" in error["message"]


def test_a_field_that_is_a_file(hearer: Hearer) -> None:
    upload = {"file": ("a.wav", weasels()), "prompt": ("b.txt", b"hello")}
    refused(httpx.post(hearer.server.url + TRANSCRIPTIONS, files=upload), 400)
    error = refused(httpx.post(hearer.server.url + TRANSCRIPTIONS, files={"language": ("b.txt", b"de")}), 400)
    assert error["param"] in ("file", "language")


def test_no_form(hearer: Hearer) -> None:
    url = hearer.server.url + TRANSCRIPTIONS
    for response in (
        httpx.post(url, json={"file": "speech.wav", "model": "whisper-1"}),
        httpx.post(url, content=weasels(), headers={"Content-Type": "audio/wav"}),
        httpx.post(url, data={"model": "whisper-1"}),
        httpx.post(url),
    ):
        assert "multipart/form-data" in refused(response, 400)["message"]


def test_a_content_type_in_capitals(hearer: Hearer, saying: Saying) -> None:
    saying.say(*PREFIX, " Hello")
    body, kind = form(weasels())
    headers = {"Content-Type": kind.replace("multipart/form-data", "Multipart/Form-Data")}
    assert httpx.post(hearer.server.url + TRANSCRIPTIONS, content=body, headers=headers).json()["text"] == "Hello"


def test_broken_forms(hearer: Hearer) -> None:
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
            hearer.server.url + TRANSCRIPTIONS, content=content, headers={"Content-Type": content_type}, timeout=30
        )
        refused(response, 400)


def test_a_flood_of_fields(hearer: Hearer) -> None:
    refused(hearer.post(weasels(), **{f"field_{at}": "x" for at in range(200)}), 400)
    refused(hearer.post(weasels(), prompt="x" * 2_000_000), 400)


def test_fields_that_are_not_known_have_no_effect(hearer: Hearer, caplog: pytest.LogCaptureFixture) -> None:
    assert hearer.post(weasels(), diarize="true").status_code == 200
    assert "diarize" in caplog.text


def test_no_model_that_transcribes(hearer: Hearer) -> None:
    hearer.server.service.transcriber = None
    assert "--transcription-model" in refused(hearer.post(weasels()), 404)["message"]


def test_a_key_that_is_missing(hearer: Hearer) -> None:
    hearer.server.service.api_keys = ("right",)
    try:
        refused(hearer.post(weasels()), 401)
    finally:
        hearer.server.service.api_keys = ()


# A server that ends


def test_ending_in_the_middle_of_the_upload(hearer: Hearer) -> None:
    """Who sends is told, and not waited for."""
    with hearer.asking(weasels(), share=0.5) as connection:
        wait_for(lambda: bool(hearer.server.service.metrics.in_flight._value.get()))
        time.sleep(0.1)
        hearer.server.call(expire_all)
        answer = b""
        while b"\r\n\r\n" not in answer or b"}" not in answer:
            answer += connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"shutdown"' in answer


# Clients that leave


def test_leaving_in_the_middle_of_the_upload(hearer: Hearer, caplog: pytest.LogCaptureFixture) -> None:
    before = hearer.aborted
    with hearer.asking(weasels(), share=0.5):
        time.sleep(0.1)
    wait_for(lambda: hearer.aborted == before + 1)
    assert "should not have happened" not in caplog.text


@pytest.mark.parametrize(("stream", "late"), [("false", False), ("true", False), ("true", True)])
def test_leaving_in_the_middle_of_the_decoding(hearer: Hearer, stream: str, late: bool) -> None:
    """The model does not go on for nobody: there is work for some seconds more."""
    before = hearer.aborted
    with hearer.asking(minutes(), stream=stream) as connection:
        wait_for(lambda: hearer.engine.load.running > 0)
        if late:
            assert connection.recv(100)
    wait_for(lambda: hearer.aborted == before + 1)
    wait_for(lambda: hearer.engine.load == Load(0, 0))
    time.sleep(0.05)
    assert hearer.engine.load == Load(0, 0)


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("parts", [(), PREFIX, (*PREFIX, " Hello")])
def test_leaving_a_listener(hearer: Hearer, saying: Saying, stream: str, parts: tuple[str, ...]) -> None:
    """At whatever point it is."""
    saying.say(*parts)
    saying.hangs = True
    with hearer.asking(weasels(), stream=stream):
        wait_for(lambda: saying.asked == 1)
    wait_for(lambda: saying.left == 1)


class Slow:
    """A file that is read up to some point, and on once the test lets it."""

    def __init__(self, file: BinaryIO, up_to: int) -> None:
        self._file = file
        self._up_to = up_to
        self.waits, self.go_on = threading.Event(), threading.Event()

    def read(self, count: int = -1) -> bytes:
        if self._file.tell() >= self._up_to:
            self.waits.set()
            assert self.go_on.wait(30)
        return self._file.read(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(("stream", "late"), [("false", False), ("true", False), ("false", True), ("true", True)])
def test_leaving_while_the_file_is_read(
    hearer: Hearer,
    saying: Saying,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stream: str,
    late: bool,
) -> None:
    """A thread reads it, and cannot be stopped: its file is closed when it has come back."""
    saying.say(*PREFIX, " Hello")
    slow: list[Slow] = []

    def read_slowly(file: BinaryIO, *, limits: AudioLimits) -> AudioBlocks:
        slow.append(Slow(file, 2_000_000 if late else 0))
        return AudioBlocks(cast(BinaryIO, slow[0]), limits)

    monkeypatch.setattr(transcriptions, "read", read_slowly)
    before = hearer.aborted
    with hearer.asking(minutes(), stream=stream) as connection:
        wait_for(lambda: bool(slow))
        assert slow[0].waits.wait(30)
        if late and stream == "true":
            assert connection.recv(1000)
    time.sleep(0.1)
    slow[0].go_on.set()
    wait_for(lambda: hearer.aborted == before + 1)
    wait_for(lambda: bool(slow[0]._file.closed))
    assert caplog.text == ""
    assert saying.asked == (2_000_000 // (30 * 2 * RATE) if late else 0)


# Listeners that fail


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
    hearer: Hearer, saying: Saying, stream: str, error: Exception, status: int, code: str
) -> None:
    """A status of its own, even where a stream was asked for."""
    saying.error = error
    found = refused(hearer.post(weasels(), stream=stream), status)
    assert found["code"] == code
    assert "secret" not in found["message"]


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
@pytest.mark.parametrize("error", [EngineError("it broke"), RuntimeError("a secret")])
def test_failing_in_the_middle_of_a_stream(
    hearer: Hearer, saying: Saying, stream_format: str, error: Exception
) -> None:
    saying.say(*PREFIX, " Hello", " there")
    saying.error = error
    *deltas, last = frames(hearer.post(weasels(), stream="true", stream_format=stream_format))
    texts = [each["delta"] if stream_format == "events" else each["choices"][0]["delta"]["content"] for each in deltas]
    assert "".join(texts) == "Hello there"
    assert last["error"]["type"] == "server_error"
    assert "secret" not in last["error"]["message"]


def test_the_client_is_told_of_a_failing_stream(hearer: Hearer, saying: Saying) -> None:
    saying.say(*PREFIX, " Hello")
    saying.error = EngineFailed("it broke")
    events = hearer.client.audio.transcriptions.create(model="whisper-1", file=("a.wav", weasels()), stream=True)
    with pytest.raises(openai.APIError, match="it broke"):
        list(events)


def test_failing_in_the_middle_of_a_whole_reply(hearer: Hearer, saying: Saying) -> None:
    saying.say(*PREFIX, " Hello")
    saying.error = EngineFailed("it broke")
    refused(hearer.post(weasels()), 502)


# Tokens that are none of the text


ASTRAY = [
    (" Hello", " there."),
    ("<|transcribe|>", "<|en|>", "<|notimestamps|>", " Hello", " there."),
    ("<|en|>", "<|translate|>", "<|notimestamps|>", " Hello", " there."),
    ("<|en|>", " Hello", " there."),
    ("<|startoftranscript|>", *PREFIX, " Hello", " there."),
]


@pytest.mark.parametrize("parts", ASTRAY)
def test_a_prefix_that_does_not_come(
    hearer: Hearer, saying: Saying, caplog: pytest.LogCaptureFixture, parts: tuple[str, ...]
) -> None:
    saying.say(*parts)
    found = hearer.post(weasels()).json()
    assert (found["text"], found["language"]) == ("Hello there.", None)
    assert "the language is not known" in found["warnings"][0]
    assert found["warnings"][0] in caplog.text


def test_a_prefix_that_does_not_come_before_times(hearer: Hearer, saying: Saying) -> None:
    saying.say("<|0.00|>", " Hello", "<|2.00|>", "<|de|>")
    found = hearer.post(weasels(), response_format="verbose_json").json()
    assert (found["text"], found["language"], found["language_probability"]) == ("Hello", None, None)
    assert found["warnings"]
    assert [(segment["start"], segment["end"], segment["language"]) for segment in found["segments"]] == [(0, 2, None)]


@pytest.mark.parametrize("stream_format", ["events", "chunks"])
@pytest.mark.parametrize("parts", [*ASTRAY, ("<|en|>",), ()])
def test_a_prefix_that_does_not_come_in_a_stream(
    hearer: Hearer, saying: Saying, parts: tuple[str, ...], stream_format: str
) -> None:
    saying.say(*parts)
    (error,) = frames(hearer.post(weasels(), stream="true", stream_format=stream_format))
    assert "the language is not known" in error["error"]["message"]
    assert error["error"]["code"] == "engine_failed"


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("shape", RESPONSE_FORMATS)
def test_special_tokens_reach_nobody(hearer: Hearer, saying: Saying, shape: str, stream: str) -> None:
    """And what only looks like one does."""
    timed = shape in ("verbose_json", "srt", "vtt")
    saying.say(*(PREFIX[:2] if timed else PREFIX), *(["<|0.00|>"] if timed else []))
    saying.say(" I", " say", "<|hello|>", "<|de|>", "<|startofprev|>", "<|nocaptions|>", " to", "<|transcribe|>")
    saying.say("<|en|> you"[:1], "|en|> you.", "<|2.00|>", "<|endoftext|>")
    response = hearer.post(weasels(), response_format=shape, stream=stream)
    text = response.text
    if stream == "true":
        text = "".join(event.get("delta", "") for event in frames(response))
    assert response.status_code == 200
    if shape == "vtt" and stream == "false":
        assert "<" not in text
        text = html.unescape(text)
    assert set(re.findall(r"<\|[^|]*\|>", text)) == {"<|hello|>", "<|en|>"}
    assert "I say<|hello|> to<|en|> you." in text
    assert "\ufffd" not in text


def test_cues_cannot_be_cut_short(hearer: Hearer, saying: Saying) -> None:
    """A text with an empty line, or with what looks like a time, stays one cue."""
    saying.say(*PREFIX[:2], "<|0.00|>", " a\n\n00:01 --> 00:02\nb", "<|2.00|>", "<|endoftext|>")
    assert hearer.post(weasels(), response_format="srt").text == (
        "1\n00:00:00,000 --> 00:00:02,000\na 00:01 -> 00:02 b\n"
    )
    assert hearer.post(weasels(), response_format="vtt").text == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\na 00:01 --&gt; 00:02 b\n"
    )


def test_cues_have_no_markup(hearer: Hearer, saying: Saying) -> None:
    """In a .vtt file signs of it are written as what they stand for."""
    saying.say(*PREFIX[:2], "<|0.00|>", ' R&D <b>is</b> "fun"', "<|2.00|>", "<|endoftext|>")
    assert '\nR&amp;D &lt;b&gt;is&lt;/b&gt; "fun"\n' in hearer.post(weasels(), response_format="vtt").text
    assert '\nR&D <b>is</b> "fun"\n' in hearer.post(weasels(), response_format="srt").text
