"""`POST /v1/audio/speech`: a text, spoken; and `GET /v1/audio/voices`, as vLLM-Omni and others have it.

What is spoken goes out sentence by sentence, as bytes of one file or, with `stream_format: "sse"`, as OpenAI's events.
Nothing is said before the first sentence is there: until then, what goes wrong is a reply of its own. The packages of
speech are imported with the first request that a speaker can take.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...errors import ApiError
from ...http import json_response
from ...service import Service
from ..bodies import read_request
from .speech_request import SpeechRequest

_NONE = "no model that speaks is served here: start with --speech-model kokoro"


async def speech(service: Service, request: Request) -> Response:
    if service.speaker is None:
        raise ApiError(404, _NONE)
    asked = await read_request(service, request, SpeechRequest)
    service.check_speaker(asked.model or None)
    if len(asked.input) > service.max_speech:
        message = f"input has {len(asked.input)} characters, and {service.max_speech} are the most: send it in parts"
        raise ApiError(400, message, param="input", code="string_above_max_length")
    if (asked.instructions or "").strip():
        message = "instructions: this model takes none; choose another voice, and leave them out"
        raise ApiError(400, message, param="instructions", code="unsupported")
    from .spoken import reply

    return await reply(request.receive, service.speaker, asked)


async def voices(service: Service, request: Request) -> Response:
    if service.speaker is None:
        raise ApiError(404, _NONE)
    return json_response({"voices": list(service.speaker.voices)})
