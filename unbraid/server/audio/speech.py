"""`POST /v1/audio/speech`: a text, spoken; and `GET /v1/audio/voices`, as vLLM-Omni and others have it.

What is spoken goes out sentence by sentence, as bytes of one file or, with `stream_format: "sse"`, as OpenAI's events.
Nothing is said before the first sentence is there: until then, what goes wrong is a reply of its own. The packages of
speech are imported with the first request that a speaker can take; `SpeechRequest` needs none of them.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..api.bodies import read_request
from ..api.fields import Object
from ..api.sse import frame, stream
from ..errors import ApiError, as_api_error
from ..http import UNBUFFERED, json_response, while_connected
from ..service import Service

if TYPE_CHECKING:
    from ...speech.synthesis import SoundFormat
    from ...speech.synthesis.speaker import Speaker, SpeakRequest

_NONE = "no model that speaks is served here: start with --speech-model kokoro"
SoundName = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
"""The names of `speech.synthesis.formats`, which a server without speech does not import."""


class SpeechRequest(Struct, kw_only=True):
    """The body of `POST /v1/audio/speech`."""

    input: Annotated[str, Meta(min_length=1)]
    model: str | None = None
    voice: str | Object | None = None
    """A name, or an object with it as `id`. The first voice of the model, where there is none."""
    response_format: SoundName | None = None
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


class VoiceNames(TypedDict):
    voices: list[str]


async def speech(service: Service, request: Request) -> Response:
    if service.speaker is None:
        raise ApiError(404, _NONE)
    body = await read_request(service, request, SpeechRequest)
    service.check_speaker(body.model or None)
    if len(body.input) > service.max_speech:
        message = f"input has {len(body.input)} characters, and {service.max_speech} are the most: send it in parts"
        raise ApiError(400, message, param="input", code="string_above_max_length")
    if (body.instructions or "").strip():
        message = "instructions: this model takes none; choose another voice, and leave them out"
        raise ApiError(400, message, param="instructions", code="unsupported")
    return await _reply(request.receive, service.speaker, body)


async def voices(service: Service, request: Request) -> Response:
    if service.speaker is None:
        raise ApiError(404, _NONE)
    return json_response(VoiceNames(voices=list(service.speaker.voices)))


@dataclass
class _Usage:
    """What a reply cost so far."""

    read: int = 0
    made: int = 0


async def _reply(receive: Receive, speaker: Speaker, body: SpeechRequest) -> Response:
    """Speak the text of a request."""
    from ...speech.synthesis import MEDIA_TYPES
    from ...speech.synthesis.speaker import SpeakRequest

    format: SoundFormat = body.response_format or "mp3"
    request = SpeakRequest(
        text=body.input,
        voice=body.named_voice() or speaker.voices[0],
        speed=body.speed or 1.0,
        soon=format == "pcm" or body.stream_format == "sse",  # what is played while it comes
    )
    speaker.check_request(request)
    usage = _Usage()
    parts = _parts(speaker, request, format, usage)
    if body.stream_format == "sse":
        return await stream(receive, _events(parts, usage))
    try:
        first = await while_connected(receive, anext(parts, b""))
    except BaseException:
        await parts.aclose()
        raise
    return SoundStream(first, parts, MEDIA_TYPES[format])


async def _parts(
    speaker: Speaker, request: SpeakRequest, format: SoundFormat, usage: _Usage
) -> AsyncGenerator[bytes, None]:
    """The bytes of the file. They are encoded in threads: an encoder holds up the event loop for milliseconds."""
    from ...speech.synthesis.encoding import SoundWriter

    writer = await asyncio.to_thread(SoundWriter, format, speaker.rate)
    try:
        async with aclosing(speaker.speak(request)) as stretches:
            async for spoken in stretches:
                usage.read += spoken.read
                usage.made += spoken.made
                part = await asyncio.to_thread(writer.write, spoken.sound)
                if part:
                    yield part
    finally:
        rest = writer.finish()  # not in a thread: it is quick, and the reply may be given up just now
    if rest:
        yield rest


async def _events(parts: AsyncGenerator[bytes, None], usage: _Usage) -> AsyncGenerator[bytes, None]:
    async with aclosing(parts):
        async for part in parts:
            yield frame({"type": "speech.audio.delta", "audio": b64encode(part).decode()})
    counts = {"input_tokens": usage.read, "output_tokens": usage.made, "total_tokens": usage.read + usage.made}
    yield frame({"type": "speech.audio.done", "usage": counts})


class SoundStream(Response):
    """A file that is sent while it is made. If that fails, the connection is cut: there is no other way to say that
    the file is not whole."""

    def __init__(self, first: bytes, parts: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(media_type=media_type, headers=UNBUFFERED)
        del self.headers["content-length"]
        self._first = first
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await while_connected(receive, self._send(send))
        finally:
            await self._parts.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        try:
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for part in self._parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except OSError:  # the connection: there is nobody to tell
            raise
        except Exception as error:
            raise as_api_error(error) from error
