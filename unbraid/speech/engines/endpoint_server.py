"""Clients of `/v1/audio/transcriptions` and `/v1/audio/translations`, as served by OpenAI, vLLM and SGLang.

Recordings are uploaded as files. The replies become text in Whisper's notation: the language, if the server gives it,
and the times of segments become tags. Times need `response_format=verbose_json`. Servers that do not have it are asked
for `json`, in a stream, if they can.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ...engines.base import Finish, Generation, Piece
from ...engines.http.address import Form
from ...engines.reader import Reader, finish_reason
from ...engines.routing import Routing
from ...engines.server import Message, Server, ServerOptions, Servers
from ...engines.timeouts import PieceClock
from ..languages import known_code, spaced
from ..options import Task

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
