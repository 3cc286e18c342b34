"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from ...speech.adapters import Task
from ...speech.audio.decode import AudioLimits, BadAudio, TooMuchAudio, read
from ...speech.transcriber import Transcriber
from ...speech.transcript import Delta, Transcript, TranscriptEvent
from ..errors import ApiError
from ..http import while_connected
from ..service import Service
from .sse import stream
from .transcription_replies import parts_of, whole_reply
from .transcription_requests import Asked, read_request

_log = logging.getLogger(__name__)


async def transcriptions(service: Service, request: Request) -> Response:
    return await _answer(service, request, "transcribe")


async def translations(service: Service, request: Request) -> Response:
    return await _answer(service, request, "translate")


async def _answer(service: Service, request: Request, task: Task) -> Response:
    transcriber = service.transcriber
    if transcriber is None:
        raise ApiError(404, "no model that transcribes is served here: start with --transcription-model whisper-base")
    asked = await read_request(service, request, transcriber, task)
    events = _events(transcriber, asked, service.max_audio_seconds)
    if asked.stream:
        return await stream(request.receive, parts_of(events, asked))
    return await while_connected(request.receive, whole_reply(events, asked))


async def _events(transcriber: Transcriber, asked: Asked, seconds: float) -> AsyncGenerator[TranscriptEvent, None]:
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
        await asked.close()


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
