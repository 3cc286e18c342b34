"""Models behind `/v1/audio/transcriptions`, as OpenAI, vLLM and SGLang serve them.

    in    a chunk as a file, language and prompt as fields of the form
    out   {"language": "english", "segments": [{"start": 0.0, "end": 2.5, "text": " Ask not"}]}
    read  <|en|><|0.00|> Ask not<|2.50|>

The language and the times that a server gives are written into the text as Whisper's tags, so Whisper's format reads
it. All chunks are asked for in the same way, with times (`verbose_json`), so the text is the same in all replies. A
server without times refuses the first chunk; from then on it is asked for `json`, as a stream if it can.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from ...engines.base import EngineError, Finish, Generation, Piece
from ...engines.http.address import Form
from ...engines.http.timeouts import PieceClock
from ...engines.reader import Reader, finish_reason
from ...engines.routing import Routing
from ...engines.server import Message, Server, ServerOptions
from ..languages import known_code, spaced
from ..listening import ListenEnd, ListenRequest
from .adapters import EndpointRequest
from .remote import ChunkGeneration, RemoteListener

_log = logging.getLogger(__name__)
_REFUSED = (400, 404, 422, 501)  # how servers refuse a response format
_LATEST = 30.0  # seconds: Whisper's last timestamp
_STEP = 0.02


class EndpointListener(RemoteListener):
    """One or more servers with OpenAI's `/v1/audio/transcriptions`."""

    takes = EndpointRequest

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(urls, lambda url: _TranscriptionServer(url, **options), parallel, routing)
        self._timed = True
        """Whether the server gives times, as far as is known."""

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        request = replace(request, timestamps=request.timestamps and self._timed)
        begun = False
        try:
            async with aclosing(super().listen(request)) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
            return
        except EngineError as error:
            if begun or not request.timestamps or (error.status or 0) not in _REFUSED:
                raise
            refused = error
        try:
            async with aclosing(super().listen(replace(request, timestamps=False))) as outputs:
                async for output in outputs:
                    if self._timed:
                        self._timed = False
                        _log.info("the server that transcribes gives no times: chunks are segments (%s)", refused)
                    yield output
        except EngineError as error:
            raise refused from error  # the times were not to blame


def _request_of(generation: Generation) -> EndpointRequest:
    assert isinstance(generation, ChunkGeneration)
    assert isinstance(generation.request, EndpointRequest)
    return generation.request


class _TranscriptionServer(Server):
    health = "/v1/models"
    hears = True

    def __init__(self, url: str, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._described = bool(self.model)  # nothing else has to be discovered

    def body(self, request: Generation) -> dict[str, Any]:
        chunk = _request_of(request)
        fields: dict[str, Any] = {"model": self.model, "temperature": chunk.temperature}
        if chunk.context:
            fields["prompt"] = chunk.context
        if chunk.language is not None and chunk.task == "transcribe":  # translations have no such field
            fields["language"] = chunk.language
        if chunk.seed is not None:
            fields["seed"] = chunk.seed
        if chunk.timestamps:
            return {**fields, "response_format": "verbose_json", "timestamp_granularities[]": "segment"}
        return {**fields, "response_format": "json", "stream": "true"}

    def messages(
        self, request: Generation, body: dict[str, Any], clock: PieceClock
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        [recording] = request.audio
        task = "translations" if _request_of(request).task == "translate" else "transcriptions"
        fields = {name: str(value) for name, value in body.items()}
        form = Form(fields, recording.data, f"recording.{recording.format}")
        return self.address.stream(f"/v1/audio/{task}", form, clock)

    def reader(self, request: Generation, body: Mapping[str, Any]) -> _TranscriptionReader:
        return _TranscriptionReader(_request_of(request))


class _TranscriptionReader(Reader[Message, Finish]):
    """Reads a reply: one object, OpenAI's events, or the chunks of vLLM and SGLang."""

    def __init__(self, request: EndpointRequest) -> None:
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
