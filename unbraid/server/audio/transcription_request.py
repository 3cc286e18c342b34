"""Transcription requests: a multipart form, read and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from ...errors import UnbraidError
from ...speech.errors import UnsupportedOption
from ...speech.languages import given_language
from ...speech.options import Task, TranscriptionOptions, VadOptions
from ...speech.outputs import RESPONSE_FORMATS, TIMED_FORMATS, ResponseFormat
from ...speech.transcriber import Transcriber
from ..errors import ApiError
from ..http import ClientLeft, announced_size, check_form, until_shutdown, whole_number
from ..service import Service

_KNOWN = {
    *("file", "model", "language", "languages", "prompt", "response_format", "temperature", "stream", "stream_format"),
    *("timestamp_granularities", "beam_size", "seed", "include", "chunking_strategy", "vad_filter", "hotwords"),
}
_WITHOUT_EFFECT = {"user", "stream_include_usage", "stream_continuous_usage_stats"}
"""Fields of other servers that change nothing here: a stream always ends with its usage."""
_INSTEAD = {
    "word_timestamps": "give timestamp_granularities=word and response_format=verbose_json",
    "best_of": "leave it out: chunks that fail are decoded again at higher temperatures",
    "initial_prompt": "give prompt",
    "to_language": "leave it out: /v1/audio/translations translates to English",
    "known_speaker_names": "leave it out: speakers are called A, B, … in the order in which they begin to speak",
    "known_speaker_references": "leave it out: speakers are called A, B, … in the order in which they begin to speak",
}
_PARAMS = {"words": "timestamp_granularities", "beams": "beam_size", "logprobs": "include", "vad": "vad_filter",
           "speakers": "response_format"}  # fmt: skip
"""The form's fields, by the names of the options."""
_OTHER_FIELDS = 1_000_000
"""Bytes that a form may have besides its file."""
_STRATEGY = "chunking_strategy"
_MOST_MS = 60_000.0
_VAD_KEYS = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")


@dataclass(frozen=True)
class TranscriptionRequest:
    """A request that was read. Close it: its file may be on disk."""

    file: BinaryIO
    name: str
    model: str
    options: TranscriptionOptions
    format: ResponseFormat
    stream: bool
    chunks: bool
    """Whether a stream has the chunks of vLLM and SGLang, not the events of OpenAI."""
    form: FormData

    async def close(self) -> None:
        await self.form.close()


async def read_request(
    service: Service, request: Request, transcriber: Transcriber, task: Task
) -> TranscriptionRequest:
    """Read a request. Raises `ApiError`, also for options that the model does not support."""
    form = await _form(request, service.max_audio)
    try:
        body = _read(service, form, task, transcriber)
        _check(transcriber, body.options)
    except BaseException:
        await form.close()
        raise
    return body


async def _form(request: Request, most: int) -> FormData:
    check_form(request)
    whole = most + _OTHER_FIELDS
    message = f"the form is larger than {whole} bytes: a recording may have {most}, and all else {_OTHER_FIELDS}"
    too_large = ApiError(413, message, param="file")
    if announced_size(request) > whole:
        raise too_large
    size = 0
    receive = request.receive

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > whole:
            raise too_large
        return message

    async def read() -> FormData:
        return await Request(request.scope, counted).form(max_files=1, max_fields=100)

    try:
        return await until_shutdown(read())
    except (MultiPartException, HTTPException, KeyError) as error:
        reason = error.detail if isinstance(error, HTTPException) else error
        raise ApiError(400, f"the body is not a form that can be read: {reason}") from error
    except ClientDisconnect:
        raise ClientLeft from None


def _check(transcriber: Transcriber, options: TranscriptionOptions) -> None:
    try:
        transcriber.check(options)
    except UnsupportedOption as error:
        param = _PARAMS.get(error.field, error.field)
        advice = ": start the server with --transcription-speakers" if error.field == "speakers" else ""
        raise ApiError(400, f"{param}: {error}{advice}", param=param, code="unsupported") from error
    except UnbraidError as error:
        guessed = "language" if options.language else "languages" if options.languages else None
        raise ApiError(400, str(error), param=guessed) from error


def _read(service: Service, form: FormData, task: Task, transcriber: Transcriber) -> TranscriptionRequest:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise ApiError(400, "file is missing: send the recording as a file of the form", param="file")
    if (file.size or 0) > service.max_audio:
        message = f"the recording is larger than {service.max_audio} bytes, the most that this server takes"
        raise ApiError(413, message, param="file")
    fields = Fields(form, _KNOWN)
    format: ResponseFormat = fields.one_of("response_format", RESPONSE_FORMATS, "json")
    stream = fields.flag("stream")
    chunks = fields.one_of("stream_format", ("events", "chunks"), "events") == "chunks"
    _check_stream(format, stream, chunks)
    options = TranscriptionOptions(
        task=task,
        language=given_language(fields.text("language")),
        languages=tuple(fields.all("languages")),
        prompt=fields.text("prompt"),
        hotwords=fields.text("hotwords"),
        timestamps=format in TIMED_FORMATS,
        words=_words(fields, format),
        speakers=format == "diarized_json",
        temperature=fields.number("temperature", 0.0, 1.0),
        beams=fields.integer("beam_size", 1),
        seed=fields.integer("seed", 0),
        logprobs=_logprobs(fields, format),
        vad=read_vad(fields, transcriber.detector is not None),
    )
    return TranscriptionRequest(
        file.file,
        file.filename or "the recording",
        service.check_listener(fields.text("model") or None),
        options,
        format,
        stream,
        chunks,
        form,
    )


def _check_stream(format: ResponseFormat, stream: bool, chunks: bool) -> None:
    """A stream has the text; with `verbose_json` its events have the segments, too."""
    if stream and (format in ("srt", "vtt") or (chunks and format in TIMED_FORMATS)):
        advice = "take stream_format=events" if chunks and format not in ("srt", "vtt") else "take verbose_json"
        message = f"response_format: {format} has no stream of this kind; {advice}, or leave stream out"
        raise ApiError(400, message, param="response_format", code="unsupported")


def _logprobs(fields: Fields, format: ResponseFormat) -> bool:
    included = fields.all("include")
    unknown = set(included) - {"logprobs"}
    if unknown:
        raise ApiError(400, f"include: {min(unknown)[:64]!r} is not known; there is logprobs", param="include")
    if included and format != "json":
        raise ApiError(400, f"include: logprobs come with response_format=json, not with {format}", param="include")
    return bool(included)


def _words(fields: Fields, format: ResponseFormat) -> bool:
    """Whether times of words are asked for. As in OpenAI's API, this is refused if the reply has no place for them."""
    name = "timestamp_granularities"
    granularities = fields.all(name)
    unknown = set(granularities) - {"word", "segment"}
    if unknown:
        raise ApiError(400, f"{name}: {min(unknown)[:64]!r} is neither word nor segment", param=name)
    if "word" in granularities and format != "verbose_json":
        message = f"{name}: times of words come with response_format=verbose_json, not with {format}"
        raise ApiError(400, message, param=name)
    return "word" in granularities


def read_vad(fields: Fields, available: bool) -> VadOptions | None:
    """What counts as speech; None if all is to be decoded. A request says so with `vad_filter`, as faster-whisper's
    servers have it, or with OpenAI's `chunking_strategy`: `auto`, or an object of the type `server_vad`, as JSON or
    spread over the form.

    available: whether there is a detector.
    """
    strategy = _strategy(fields)
    filtered = fields.flag("vad_filter") if fields.text("vad_filter") else None
    if strategy is not None and filtered is False:
        raise ApiError(400, f"vad_filter: {_STRATEGY} needs it; leave one of them out", param="vad_filter")
    if (filtered or strategy is not None) and not available:
        name = "vad_filter" if strategy is None else _STRATEGY
        message = f"{name}: this server has no voice activity detector; leave it out"
        raise ApiError(400, message, param=name, code="unsupported")
    return None if filtered is False else strategy or VadOptions()


def _strategy(fields: Fields) -> VadOptions | None:
    text = fields.text(_STRATEGY).strip()
    if text == "auto":
        return VadOptions()
    strategy: Any = fields.inside(_STRATEGY)
    if text:
        try:
            strategy = json.loads(text)
        except (ValueError, RecursionError):
            strategy = None
    if strategy == {} and not text:
        return None
    if not isinstance(strategy, Mapping) or strategy.get("type") != "server_vad":
        raise ApiError(400, f"{_STRATEGY} must be auto or an object with the type server_vad", param=_STRATEGY)
    unknown = set(strategy) - set(_VAD_KEYS)
    if unknown:
        message = f"{_STRATEGY}.{min(unknown)[:64]} is not known; there are {', '.join(_VAD_KEYS)}"
        raise ApiError(400, message, param=_STRATEGY)
    default = VadOptions()
    return VadOptions(
        threshold=_number(strategy, "threshold", default.threshold, 1.0),
        padding=_number(strategy, "prefix_padding_ms", 1000 * default.padding, _MOST_MS) / 1000,
        pause=_number(strategy, "silence_duration_ms", 1000 * default.pause, _MOST_MS) / 1000,
    )


def _number(strategy: Mapping[str, Any], key: str, default: float, most: float) -> float:
    value = strategy.get(key)
    return default if value is None else number_in(value, f"{_STRATEGY}.{key}", 0.0, most)


class Fields:
    """The fields of a form, all of which are text.

    names: those that have a meaning. Others are refused: what they ask for would be missing without a word.
    """

    def __init__(self, form: FormData, names: Collection[str]) -> None:
        self._form = form
        for name in form:
            plain = name.partition("[")[0]
            if plain not in names and plain not in _WITHOUT_EFFECT and form[name] != "":
                near = difflib.get_close_matches(plain[:64], names, n=1, cutoff=0.85)
                advice = _INSTEAD.get(plain) or (f"did you mean {near[0]}?" if near else "leave it out")
                message = f"{plain:.64} is no field of this request: {advice}"
                raise ApiError(400, message, param=plain[:64], code="unknown_parameter")

    def all(self, name: str) -> list[str]:
        values = [*self._form.getlist(name), *self._form.getlist(f"{name}[]")]
        return [value for value in values if isinstance(value, str) and value]

    def inside(self, name: str) -> dict[str, str]:
        """The fields of an object that is spread over the form: `name[key]`."""
        inner = {}
        for key, value in self._form.multi_items():
            if key.startswith(f"{name}[") and key.endswith("]") and isinstance(value, str):
                inner[key[len(name) + 1 : -1]] = value
        return inner

    def text(self, name: str) -> str:
        value = self._form.get(name, "")
        if not isinstance(value, str):
            raise ApiError(400, f"{name} must be text, not a file", param=name)
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        text = self.text(name)
        return number_in(text, name, least, most) if text else None

    def integer(self, name: str, least: int) -> int | None:
        text = self.text(name)
        if not text:
            return None
        number = whole_number(text)
        if number is None or number < least:
            raise ApiError(400, f"{name} must be a whole number, {least} or more, not {text[:64]!r}", param=name)
        return number

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "0", "1", "false", "true"):
            raise ApiError(400, f"{name} must be true or false, not {text[:64]!r}", param=name)
        return text in ("1", "true")

    def one_of(self, name: str, choices: tuple[Any, ...], otherwise: Any) -> Any:
        text = self.text(name) or otherwise
        if text not in choices:
            raise ApiError(400, f"{name} must be one of {', '.join(choices)}, not {text[:64]!r}", param=name)
        return text


def number_in(text: object, name: str, least: float, most: float) -> float:
    """A number, by its text. Raises `ApiError` for another one."""
    try:
        value = float(str(text))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ApiError(400, f"{name} must be a number from {least:g} to {most:g}, not {str(text)[:64]!r}", param=name)
    return value
