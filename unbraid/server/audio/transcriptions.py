"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`.

What a request says is read in `transcription_request.py`, what it is answered in `transcription_reply.py`. Both are
imported with the first request that a transcriber can take: a server that only chats runs without the packages of
speech.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..service import Service

if TYPE_CHECKING:
    from ...speech.options import Task


async def transcriptions(service: Service, request: Request) -> Response:
    return await _answer(service, request, "transcribe")


async def translations(service: Service, request: Request) -> Response:
    return await _answer(service, request, "translate")


async def _answer(service: Service, request: Request, task: Task) -> Response:
    transcriber = service.transcriber
    if transcriber is None:
        raise ApiError(404, "no model that transcribes is served here: start with --transcription-model whisper-base")
    from .transcription_reply import reply
    from .transcription_request import read_request

    body = await read_request(service, request, transcriber, task)
    return await reply(request.receive, transcriber, body, service.max_audio_seconds, service.recordings)
