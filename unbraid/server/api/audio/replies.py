"""Replies to transcription requests: a transcript in its response format, or a stream of events or chunks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive

from ....speech.audio.decode import AudioLimits, read
from ....speech.errors import BadAudio, TooMuchAudio
from ....speech.outputs import render_transcript, usage
from ....speech.transcriber import PrefixMissing, Transcriber
from ....speech.transcript import Delta, Transcript, TranscriptEvent
from ...errors import ApiError
from ...http import json_response, while_connected
from ..replies import Head
from ..sse import error_frame, frame, stream
from .requests import TranscriptionRequest

_log = logging.getLogger(__name__)
_MEDIA_TYPES = {"srt": "application/x-subrip", "vtt": "text/vtt"}


async def reply(receive: Receive, transcriber: Transcriber, asked: TranscriptionRequest, seconds: float) -> Response:
    """Transcribe the file of a request.

    seconds: the longest recording that is accepted.
    """
    events = _events(transcriber, asked, seconds)
    if asked.stream:
        return await stream(receive, _frames(events, asked))
    return await while_connected(receive, _whole(events, asked))


async def _events(
    transcriber: Transcriber, asked: TranscriptionRequest, seconds: float
) -> AsyncGenerator[TranscriptEvent, None]:
    """The events of the transcription, with their text trimmed. Closes the request's file."""
    limits = AudioLimits(seconds=seconds, bytes=None)
    trimmed = _Trimmed()
    try:
        with read(asked.file, limits=limits) as blocks:
            async with aclosing(transcriber.run(blocks, asked.options, stream=asked.stream)) as events:
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
    """Streamed text without white space at either end: joined, it equals the text of a whole reply."""

    def __init__(self) -> None:
        self._begun = False
        self._space = ""

    def next(self, text: str) -> str:
        text = self._space + text if self._begun else text.lstrip()
        trimmed = text.rstrip()
        self._space = text[len(trimmed) :]
        self._begun = self._begun or bool(trimmed)
        return trimmed


# Whole replies


async def _whole(events: AsyncGenerator[TranscriptEvent, None], asked: TranscriptionRequest) -> Response:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Transcript):
                rendered = render_transcript(event, asked.format, asked.options)
                if isinstance(rendered, str):
                    return PlainTextResponse(rendered, media_type=_MEDIA_TYPES.get(asked.format))
                return json_response(rendered)
    raise AssertionError("a transcription ends with a Transcript")


# Streams


async def _frames(
    events: AsyncGenerator[TranscriptEvent, None], asked: TranscriptionRequest
) -> AsyncGenerator[bytes, None]:
    writer = _ChunkWriter(Head(asked.model, "trsc")) if asked.chunks else _EventWriter()
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, Delta | Transcript):
                    yield writer.frame(event)
        except PrefixMissing as error:  # as a frame even if it is the first: the request is not at fault
            yield error_frame(error)


class _EventWriter:
    """Events as in OpenAI's API: `transcript.text.delta` and `transcript.text.done`."""

    def frame(self, event: Delta | Transcript) -> bytes:
        if isinstance(event, Delta):
            return frame({"type": "transcript.text.delta", "delta": event.text})
        done = {"type": "transcript.text.done", "text": event.text, "language": event.language}
        return frame({**done, "usage": usage(event)})


class _ChunkWriter:
    """Chunks as vLLM and SGLang send them."""

    def __init__(self, head: Head) -> None:
        self._fields = head.fields("transcription.chunk")

    def frame(self, event: Delta | Transcript) -> bytes:
        if isinstance(event, Delta):
            return frame({**self._fields, "choices": [{"delta": {"content": event.text}, "finish_reason": None}]})
        end = {**self._fields, "language": event.language}
        last = frame({**end, "choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]})
        tokens = {"prompt_tokens": event.prompt_tokens, "completion_tokens": event.completion_tokens}
        total = event.prompt_tokens + event.completion_tokens
        return last + frame({**self._fields, "choices": [], "usage": {**tokens, "total_tokens": total}})
