"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Send

from ..core.errors import UnbraidError
from ..transcription.adapters import Task, Wish
from ..transcription.audio import AudioLimits, BadAudio, TooMuchAudio, read
from ..transcription.outputs import SHAPES, TIMED, Shape, as_json, as_srt, as_verbose_json, as_vtt, usage
from ..transcription.transcriber import PrefixMissing, Transcriber
from ..transcription.transcript import Delta, Transcript, TranscriptEvent
from .errors import ApiError, as_api_error
from .http import FAREWELL, ClientLeft, EventStream, json_response, part, while_connected
from .replies import DONE, Head, frame
from .service import Service

_log = logging.getLogger(__name__)

_KNOWN = {
    *("file", "model", "language", "languages", "prompt", "response_format", "temperature", "stream", "stream_format"),
    *("timestamp_granularities", "seed", "include", "chunking_strategy", "user"),
}


@dataclass(frozen=True)
class Asked:
    """A request, read."""

    file: BinaryIO
    name: str
    model: str
    wish: Wish
    shape: Shape
    stream: bool
    chunks: bool
    """Streamed as vLLM and SGLang do it."""


async def transcriptions(service: Service, request: Request) -> Response:
    return await _answer(service, request, "transcribe")


async def translations(service: Service, request: Request) -> Response:
    return await _answer(service, request, "translate")


async def _answer(service: Service, request: Request, task: Task) -> Response:
    transcriber = service.transcriber
    if transcriber is None:
        raise ApiError(404, "no model that transcribes is served here: start with --transcription-model whisper-base")
    form = await _form(request, service.max_audio)
    try:
        asked = _read(service, form, task)
        _check(transcriber, asked.wish)
    except BaseException:
        await form.close()
        raise
    events = _events(transcriber, asked, service.max_audio_seconds, form)
    if asked.stream:
        return await _stream(request, asked, events)
    return _shaped(await while_connected(request.receive, _last(events)), asked)


async def _events(
    transcriber: Transcriber, asked: Asked, seconds: float, form: FormData
) -> AsyncGenerator[TranscriptEvent, None]:
    limits = AudioLimits(seconds=seconds, bytes=None)
    trimmed = _Trimmed()
    try:
        with read(asked.file, limits=limits) as blocks:
            async with aclosing(transcriber.run(blocks, asked.wish, stream=asked.stream)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        event = Delta(trimmed.next(event.text))
                        if not event.text:
                            continue
                    elif isinstance(event, Transcript):
                        for warning in event.warnings:
                            _log.warning("%.200r: %s", asked.name, warning)
                    yield event
    except BadAudio as error:
        raise ApiError(413 if isinstance(error, TooMuchAudio) else 400, str(error), param="file") from error
    finally:
        await form.close()


class _Trimmed:
    """Text as it comes, without the space around the whole of it: joined, it is the text that is not streamed."""

    def __init__(self) -> None:
        self._begun = False
        self._space = ""

    def next(self, text: str) -> str:
        text = self._space + text if self._begun else text.lstrip()
        trimmed = text.rstrip()
        self._space = text[len(trimmed) :]
        self._begun = self._begun or bool(trimmed)
        return trimmed


async def _last(events: AsyncGenerator[TranscriptEvent, None]) -> Transcript:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Transcript):
                return event
    raise AssertionError("a transcript always comes")


def _shaped(transcript: Transcript, asked: Asked) -> Response:
    if asked.shape == "text":
        return PlainTextResponse(transcript.text + "\n")
    if asked.shape == "srt":
        return PlainTextResponse(as_srt(transcript), media_type="application/x-subrip")
    if asked.shape == "vtt":
        return PlainTextResponse(as_vtt(transcript), media_type="text/vtt")
    return json_response(
        as_verbose_json(transcript, asked.wish.task) if asked.shape == "verbose_json" else as_json(transcript)
    )


# Streams


async def _stream(request: Request, asked: Asked, events: AsyncGenerator[TranscriptEvent, None]) -> Response:
    """The reply, once there is something to say: until then a failure has a status of its own."""
    try:
        first = await while_connected(request.receive, _first(events))
    except PrefixMissing as error:
        return EventStream(partial(_fail, error), FAREWELL)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(partial(_write, first, events, asked), FAREWELL)


async def _first(events: AsyncGenerator[TranscriptEvent, None]) -> Delta | Transcript:
    async for event in events:
        if isinstance(event, Delta | Transcript):
            return event
    raise AssertionError("a transcript always comes")


async def _write(
    first: Delta | Transcript, events: AsyncGenerator[TranscriptEvent, None], asked: Asked, send: Send
) -> None:
    said = _Chunks(Head(asked.model, "trsc")) if asked.chunks else _Events()
    async with aclosing(events):
        try:
            await send(part(said.event(first)))
            async for event in events:
                if isinstance(event, Delta | Transcript):
                    await send(part(said.event(event)))
            await send(part(DONE))
        except OSError:
            raise
        except Exception as error:
            await _fail(error, send)


async def _fail(error: Exception, send: Send) -> None:
    await send(part(frame(as_api_error(error).body()) + DONE))


class _Events:
    """As OpenAI's API streams transcripts."""

    def event(self, event: Delta | Transcript) -> bytes:
        if isinstance(event, Delta):
            return frame({"type": "transcript.text.delta", "delta": event.text})
        done = {"type": "transcript.text.done", "text": event.text, "language": event.language}
        return frame({**done, "usage": usage(event)})


class _Chunks:
    """As vLLM and SGLang do."""

    def __init__(self, head: Head) -> None:
        self._fields = head.fields("transcription.chunk")

    def event(self, event: Delta | Transcript) -> bytes:
        if isinstance(event, Delta):
            return frame({**self._fields, "choices": [{"delta": {"content": event.text}, "finish_reason": None}]})
        end = {**self._fields, "language": event.language}
        last = frame({**end, "choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]})
        tokens = {"prompt_tokens": event.prompt_tokens, "completion_tokens": event.completion_tokens}
        total = event.prompt_tokens + event.completion_tokens
        return last + frame({**self._fields, "choices": [], "usage": {**tokens, "total_tokens": total}})


# Requests


async def _form(request: Request, most: int) -> FormData:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ApiError(400, "the body must be multipart/form-data, with the recording as `file`")
    announced = request.headers.get("content-length", "")
    too_large = ApiError(
        413, f"the recording is larger than {most} bytes, the most that this server takes", param="file"
    )
    if announced.isdigit() and int(announced) > most:
        raise too_large
    size = 0
    receive = request.receive

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise too_large
        return message

    try:
        return await Request(request.scope, counted).form(max_files=1, max_fields=100)
    except (MultiPartException, HTTPException, KeyError) as error:
        reason = error.detail if isinstance(error, HTTPException) else error
        raise ApiError(400, f"the body is not a form that can be read: {reason}") from error
    except ClientDisconnect:
        raise ClientLeft from None


def _check(transcriber: Transcriber, wish: Wish) -> None:
    try:
        transcriber.adapter.check(wish)
    except UnbraidError as error:
        param = "language" if wish.language else "languages" if wish.languages else None
        raise ApiError(400, str(error), param=param) from error


def _read(service: Service, form: FormData, task: Task) -> Asked:
    fields = _Fields(form)
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise ApiError(400, "file is missing: send the recording as a file of the form", param="file")
    shape = fields.one_of("response_format", SHAPES, "json")
    granularities = fields.all("timestamp_granularities")
    unknown = set(granularities) - {"word", "segment"}
    if unknown:
        message = f"timestamp_granularities: {min(unknown)[:64]!r} is neither word nor segment"
        raise ApiError(400, message, param="timestamp_granularities")
    if "word" in granularities:
        message = "timestamp_granularities: this model does not tell when each word was said; ask for segments"
        raise ApiError(400, message, param="timestamp_granularities", code="unsupported")
    wish = Wish(
        task=task,
        language=fields.text("language") or None,
        languages=tuple(fields.all("languages")),
        prompt=fields.text("prompt"),
        timestamps=shape in TIMED,
        temperature=fields.number("temperature", 0.0, 1.0),
        seed=None if (seed := fields.number("seed", 0, 2**63)) is None else int(seed),
    )
    return Asked(
        file.file,
        file.filename or "the recording",
        service.check_listener(fields.text("model") or None),
        wish,
        shape,
        fields.flag("stream"),
        fields.one_of("stream_format", ("events", "chunks"), "events") == "chunks",
    )


class _Fields:
    """The fields of a form, which are all text."""

    def __init__(self, form: FormData) -> None:
        self._form = form
        for name in form:
            if name.removesuffix("[]") not in _KNOWN:
                _log.warning("a transcription request has a field %.64r that is not known here", name)

    def all(self, name: str) -> list[str]:
        found = [*self._form.getlist(name), *self._form.getlist(f"{name}[]")]
        return [value for value in found if isinstance(value, str) and value]

    def text(self, name: str) -> str:
        value = self._form.get(name, "")
        if not isinstance(value, str):
            raise ApiError(400, f"{name} must be text, not a file", param=name)
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ApiError(400, f"{name} must be a number from {least:g} to {most:g}, not {text[:64]!r}", param=name)
        return value

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "0", "1", "false", "true"):
            raise ApiError(400, f"{name} must be true or false, not {text[:64]!r}", param=name)
        return text in ("1", "true")

    def one_of(self, name: str, known: tuple[Any, ...], otherwise: Any) -> Any:
        text = self.text(name) or otherwise
        if text not in known:
            raise ApiError(400, f"{name} must be one of {', '.join(known)}, not {text[:64]!r}", param=name)
        return text
