"""`POST /v1/audio/speech`: a text, spoken; and `GET /v1/audio/voices`, as vLLM-Omni and others have it.

What is spoken goes out sentence by sentence, as bytes of one file or, with `stream_format: "sse"`, as OpenAI's events.
Nothing is said before the first sentence is there: until then, what goes wrong is a reply of its own. The packages of
speech are imported with the first request that a speaker can take.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ....speech.synthesis.formats import SoundFormat
from ...errors import ApiError
from ...http import json_response
from ...service import Service
from ..bodies import read_request
from ..fields import Object

_NONE = "no model that speaks is served here: start with --speech-model kokoro"


class SpeechRequest(Struct, kw_only=True):
    """The body of `POST /v1/audio/speech`."""

    input: Annotated[str, Meta(min_length=1)]
    model: str | None = None
    voice: str | Object | None = None
    """A name, or an object with it as `id`. The first voice of the model, where there is none."""
    response_format: SoundFormat | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4.0)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: str | None = None
    user: str | None = None

    def named_voice(self) -> str | None:
        """The name of the voice. Raises `ApiError` for an object that has none."""
        if not isinstance(self.voice, dict):
            return self.voice or None
        if not isinstance(self.voice.get("id"), str):
            raise ApiError(400, 'voice must be a name, or {"id": NAME}', param="voice")
        return str(self.voice["id"])


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
