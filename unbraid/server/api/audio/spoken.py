"""Replies to speech requests: the bytes of a file as they are made, or OpenAI's events with the same bytes."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....speech.synthesis import MEDIA_TYPES, SoundFormat
from ....speech.synthesis.encoding import SoundWriter
from ....speech.synthesis.speaker import Speaker, SpeakRequest
from ...errors import as_api_error
from ...http import while_connected
from ..sse import frame, stream
from .speech_request import SpeechRequest


@dataclass
class _Usage:
    """What a reply cost so far."""

    read: int = 0
    made: int = 0


async def reply(receive: Receive, speaker: Speaker, asked: SpeechRequest) -> Response:
    """Speak the text of a request."""
    request = SpeakRequest(text=asked.input, voice=asked.named_voice() or speaker.voices[0], speed=asked.speed or 1.0)
    speaker.check_request(request)
    format: SoundFormat = asked.response_format or "mp3"
    usage = _Usage()
    parts = _parts(speaker, request, format, usage)
    if asked.stream_format == "sse":
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
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
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
