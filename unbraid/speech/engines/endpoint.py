"""A server's transcription endpoint, as a listener: each chunk is a request of its own.

All chunks are asked for in the same way, whatever is to be replied: with times, unless the server has none. So the text
is the same in all replies. Whether it has them is found out with the first chunk that it refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Unpack

from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineError, Finish, Generation, Piece, Sampling, Unsupported
from ...engines.http.address import Form
from ...engines.http.timeouts import PieceClock
from ...engines.reader import Reader, finish_reason
from ...engines.routing import Routing
from ...engines.server import Message, Server, ServerOptions, Servers
from ...errors import UnbraidError
from ...formats import find
from ..audio.decode import Samples
from ..audio.pcm import as_wav
from ..languages import known_code, spaced
from ..listening import ListenEnd, ListenRequest
from ..options import Task, TranscriptionOptions
from .remote import RemoteListener


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest(ListenRequest):
    """A request to an endpoint."""

    task: Task = "transcribe"
    language: str | None = None
    """A code, or the text itself if there is none; None to detect it."""
    context: str = ""
    """The user's prompt, as text."""


class EndpointAdapter:
    """All endpoints. What one does not support, the server itself refuses."""

    max_seconds = 30.0
    supports_language_detection = False  # the server does that
    supports_timestamps = True
    supports_translation = True
    language: str | None = None

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        if vocabulary is not None:
            raise UnbraidError("an endpoint gives text: it has no vocabulary")
        self.format = find("whisper")

    def check(self, options: TranscriptionOptions) -> None:
        if options.languages:
            raise UnbraidError(
                "languages: the server that transcribes takes one language or none, not several candidates"
            )

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> EndpointRequest:
        return EndpointRequest(
            samples=samples,
            prompt=(),
            timestamps=options.timestamps,
            temperature=temperature,
            seed=options.seed,
            task=options.task,
            language=None if options.language is None else known_code(options.language) or options.language,
            context=options.prompt.strip(),
        )

    def language_of(self, token: int) -> str | None:
        return None


_log = logging.getLogger(__name__)
_REFUSED = (400, 404, 422, 501)  # how servers refuse a response format


class EndpointListener(RemoteListener):
    """One or more servers with OpenAI's `/v1/audio/transcriptions`; see `TranscriptionServers`."""

    vocabulary: Vocabulary | None = None

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(TranscriptionServers(urls, routing=routing, **options), parallel)
        self._timed = True
        """Whether the server gives times, as far as is known."""

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if not isinstance(request, EndpointRequest):
            raise Unsupported("EndpointListener takes the requests of EndpointAdapter, not those of a model's adapter")
        upload = TranscriptionUpload(
            prompt=request.context,
            sampling=Sampling(temperature=request.temperature, seed=request.seed),
            audio=(Audio(await asyncio.to_thread(as_wav, request.samples), "wav"),),
            task=request.task,
            language=request.language,
            timestamps=request.timestamps and self._timed,
        )
        begun = False
        try:
            async with aclosing(self._heard(upload)) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
            return
        except EngineError as error:
            if begun or not upload.timestamps or (error.status or 0) not in _REFUSED:
                raise
            refused = error
        try:
            async with aclosing(self._heard(replace(upload, timestamps=False))) as outputs:
                async for output in outputs:
                    if self._timed:
                        self._timed = False
                        _log.info("the server that transcribes gives no times: chunks are segments (%s)", refused)
                    yield output
        except EngineError as error:
            raise refused from error  # the times were not to blame


_LATEST = 30.0  # seconds: Whisper's last timestamp
_STEP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionUpload(Generation):
    """A recording and its options. The prompt is the user's."""

    task: Task = "transcribe"
    language: str | None = None
    timestamps: bool = False


class TranscriptionServers(Servers):
    """One or more servers with the same model. Each request is a `TranscriptionUpload` with one file."""

    def __init__(
        self, urls: str | Sequence[str], *, routing: Routing | None = None, **options: Unpack[ServerOptions]
    ) -> None:
        super().__init__(urls, lambda url: _TranscriptionServer(url, **options), routing)


class _TranscriptionServer(Server):
    health = "/v1/models"
    hears = True

    def __init__(self, url: str, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._described = bool(self.model)  # nothing else has to be discovered

    def body(self, request: Generation) -> dict[str, Any]:
        assert isinstance(request, TranscriptionUpload)
        fields: dict[str, Any] = {"model": self.model, "temperature": request.sampling.temperature}
        if request.prompt:
            fields["prompt"] = request.prompt
        if request.language is not None and request.task == "transcribe":  # translations have no such field
            fields["language"] = request.language
        if request.sampling.seed is not None:
            fields["seed"] = request.sampling.seed
        if request.timestamps:
            return {**fields, "response_format": "verbose_json", "timestamp_granularities[]": "segment"}
        return {**fields, "response_format": "json", "stream": "true"}

    def messages(
        self, request: Generation, body: dict[str, Any], clock: PieceClock
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        assert isinstance(request, TranscriptionUpload)
        [recording] = request.audio
        path = "/v1/audio/translations" if request.task == "translate" else "/v1/audio/transcriptions"
        fields = {name: str(value) for name, value in body.items()}
        return self.address.stream(path, Form(fields, recording.data, f"recording.{recording.format}"), clock)

    def reader(self, request: Generation, body: Mapping[str, Any]) -> _TranscriptionReader:
        assert isinstance(request, TranscriptionUpload)
        return _TranscriptionReader(request)


class _TranscriptionReader(Reader[Message, Finish]):
    """Reads a reply: one object, OpenAI's events, or the chunks of vLLM and SGLang."""

    def __init__(self, request: TranscriptionUpload) -> None:
        self._request = request
        self._tagged = False
        self._begun = False
        self._reason: str | None = None
        self._usage: Mapping[str, Any] = {}

    def read(self, message: Message) -> Piece | None:
        self._usage = message.get("usage") or self._usage
        if "choices" in message:
            text = self._chunk(message)
        elif message.get("type") == "transcript.text.delta":
            text = self._text(message["delta"])
        elif message.get("type") == "transcript.text.done":
            self._reason = "stop"
            text = self._tag(message) + ("" if self._begun else self._text(message["text"]))
        elif "text" in message and "type" not in message:
            self._reason = "stop"
            text = self._tag(message) + self._whole(message)
        else:
            return None  # other events, of segments for instance
        return Piece(text=text) if text else None

    def _chunk(self, message: Mapping[str, Any]) -> str:
        if not message["choices"]:
            return ""
        choice = message["choices"][0]
        self._reason = choice.get("finish_reason") or self._reason
        return self._text((choice.get("delta") or {}).get("content") or "") + self._tag(message)

    def _whole(self, message: Mapping[str, Any]) -> str:
        segments = message.get("segments") or ()
        if not self._request.timestamps or not segments:
            return self._text(message["text"])
        return "".join(
            f"{_time(one['start'])}{spaced(one['text'])}{_time(one['end'])}" for one in segments if one["text"].strip()
        )

    def _text(self, text: str) -> str:
        """The next text. Before the first come the language tag, if it is known, and a space, because the text of
        another chunk may precede it."""
        if not text or self._begun:
            return text
        self._begun = True
        return self._tag({}) + spaced(text)

    def _tag(self, message: Mapping[str, Any]) -> str:
        """The language tag, once. For translations some servers give the language of the translation: it is ignored."""
        language = message.get("language") if self._request.task == "transcribe" else None
        code = known_code(self._request.language or str(language or ""))
        if self._tagged or code is None:
            return ""
        self._tagged = True
        return f"<|{code}|>"

    def finish(self) -> Finish | None:
        if self._reason is None:
            return None
        usage = self._usage
        read = usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        return Finish(
            finish_reason(self._reason), read, usage.get("completion_tokens") or usage.get("output_tokens") or 0
        )


def _time(seconds: float) -> str:
    # In this order NaN, which some servers send, becomes 0.
    return f"<|{round(min(max(0.0, seconds), _LATEST) / _STEP) * _STEP:.2f}|>"
