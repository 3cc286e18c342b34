"""Replies to transcription requests: a transcript in its response format, or a stream of events or chunks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive

from ...engines.base import TokenLogprob
from ...fairness import FairQueue, QueueFull, client
from ...speech.audio.decode import AudioLimits, read
from ...speech.errors import BadAudio, TooMuchAudio
from ...speech.outputs import diarized_segment, render_transcript, token_logprobs, word_json
from ...speech.transcriber import PrefixMissing, Transcriber
from ...speech.transcript import Delta, Segment, Transcript, TranscriptEvent
from ..access.rates import Quota
from ..api.replies import Head
from ..api.sse import error_frame, frame, stream
from ..errors import ApiError, too_many
from ..http import json_response, while_connected
from .transcription_request import TranscriptionRequest

_log = logging.getLogger(__name__)
_MEDIA_TYPES = {"srt": "application/x-subrip", "vtt": "text/vtt"}


async def reply(
    receive: Receive, transcriber: Transcriber, request: TranscriptionRequest, seconds: float, turns: FairQueue
) -> Response:
    """Transcribe the file of a request.

    seconds: the longest recording that is accepted.
    turns: the recordings that are transcribed at once.
    """
    events = _events(transcriber, request, seconds, turns)
    if request.stream:
        return await stream(receive, _frames(events, request))
    return await while_connected(receive, _whole(events, request))


async def _events(
    transcriber: Transcriber, request: TranscriptionRequest, seconds: float, turns: FairQueue
) -> AsyncGenerator[TranscriptEvent, None]:
    """The events of the transcription, with their text trimmed. Closes the request's file."""
    limits = AudioLimits(seconds=seconds, bytes=None)
    trimmed = _Trimmed()
    blocks = read(request.file, limits=limits)
    try:
        async with turns.place(client.get()):
            with blocks:
                run = transcriber.run(blocks, request.options, stream=request.stream)
                async with aclosing(run) as events:
                    async for event in events:
                        if isinstance(event, Delta):
                            event = trimmed.next(event)
                            if not event.text:
                                continue
                        elif isinstance(event, Transcript):
                            for warning in event.warnings:
                                _log.warning("%.200r: %s", request.name, warning)
                        yield event
    except QueueFull as full:
        raise too_many("recordings to transcribe", full) from None
    except BadAudio as error:
        raise ApiError(413 if isinstance(error, TooMuchAudio) else 400, str(error), param="file") from error
    finally:
        if (quota := Quota.current()) is not None:
            quota.scan(blocks.seconds)
        await request.close()


class _Trimmed:
    """Streamed text without white space at either end: joined, it equals the text of a whole reply."""

    def __init__(self) -> None:
        self._begun = False
        self._space = ""
        self._logprobs: tuple[TokenLogprob, ...] = ()

    def next(self, delta: Delta) -> Delta:
        text = self._space + delta.text if self._begun else delta.text.lstrip()
        trimmed = text.rstrip()
        self._space = text[len(trimmed) :]
        self._begun = self._begun or bool(trimmed)
        logprobs = self._logprobs + delta.logprobs
        self._logprobs = () if trimmed else logprobs
        return Delta(trimmed, logprobs)


# Whole replies


async def _whole(events: AsyncGenerator[TranscriptEvent, None], request: TranscriptionRequest) -> Response:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Transcript):
                rendered = render_transcript(event, request.format, request.options)
                if isinstance(rendered, str):
                    return PlainTextResponse(rendered, media_type=_MEDIA_TYPES.get(request.format))
                return json_response(rendered)
    raise AssertionError("a transcription ends with a Transcript")


# Streams


async def _frames(
    events: AsyncGenerator[TranscriptEvent, None], request: TranscriptionRequest
) -> AsyncGenerator[bytes, None]:
    writer = _ChunkWriter(Head(request.model, "trsc")) if request.chunks else _EventWriter(request)
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, Transcript) and request.options.speakers:
                    for segment in event.segments:
                        yield writer.frame(segment)
                if isinstance(event, Delta | Transcript | Segment):
                    yield writer.frame(event)
        except PrefixMissing as error:  # as a frame even if it is the first: the request is not at fault
            yield error_frame(error)


class _EventWriter:
    """Events as in OpenAI's API: `transcript.text.delta` and `transcript.text.done`, and with `verbose_json`
    `transcript.text.segment` for each segment, after its text; with `diarized_json`, all of them at the end."""

    def __init__(self, request: TranscriptionRequest) -> None:
        self._asked = request
        self._segments = 0

    def frame(self, event: Delta | Transcript | Segment) -> bytes:
        if isinstance(event, Segment):
            return self._segment(event) if self._asked.format in ("verbose_json", "diarized_json") else b""
        with_logprobs = self._asked.options.logprobs
        tokens = {"logprobs": token_logprobs(event.logprobs)} if with_logprobs else {}
        if isinstance(event, Delta):
            return frame({"type": "transcript.text.delta", "delta": event.text, **tokens})
        done = {"type": "transcript.text.done", "text": event.text, "language": event.language}
        counts = {"input_tokens": event.prompt_tokens, "output_tokens": event.completion_tokens}
        usage = {"type": "tokens", **counts, "total_tokens": sum(counts.values())}  # OpenAI's type has no seconds here
        return frame({**done, **tokens, "usage": usage})

    def _segment(self, event: Segment) -> bytes:
        fields = diarized_segment(self._segments, event)
        self._segments += 1
        if not self._asked.options.speakers:
            del fields["speaker"]
        if self._asked.options.words:
            fields["words"] = [word_json(word) for word in event.words]
        return frame(fields)


class _ChunkWriter:
    """Chunks as vLLM and SGLang send them."""

    def __init__(self, head: Head) -> None:
        self._fields = head.fields("transcription.chunk")

    def frame(self, event: Delta | Transcript | Segment) -> bytes:
        if isinstance(event, Segment):
            return b""
        if isinstance(event, Delta):
            return frame({**self._fields, "choices": [{"delta": {"content": event.text}, "finish_reason": None}]})
        end = {**self._fields, "language": event.language}
        last = frame({**end, "choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]})
        tokens = {"prompt_tokens": event.prompt_tokens, "completion_tokens": event.completion_tokens}
        total = event.prompt_tokens + event.completion_tokens
        return last + frame({**self._fields, "choices": [], "usage": {**tokens, "total_tokens": total}})
