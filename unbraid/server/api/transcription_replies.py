"""What is answered to a transcription request: a transcript in one of its shapes, or what is said of it as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import PlainTextResponse, Response

from ...speech.outputs import shaped, usage
from ...speech.transcriber import PrefixMissing
from ...speech.transcript import Delta, Transcript, TranscriptEvent
from ..http import json_response
from .replies import Head
from .sse import error_frame, frame
from .transcription_requests import Asked

_KINDS = {"srt": "application/x-subrip", "vtt": "text/vtt"}


async def whole_reply(events: AsyncGenerator[TranscriptEvent, None], asked: Asked) -> Response:
    """The reply that is not streamed."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Transcript):
                found = shaped(event, asked.shape, asked.wish)
                if isinstance(found, str):
                    return PlainTextResponse(found, media_type=_KINDS.get(asked.shape))
                return json_response(found)
    raise AssertionError("a transcript always comes")


async def parts_of(events: AsyncGenerator[TranscriptEvent, None], asked: Asked) -> AsyncGenerator[bytes, None]:
    """What a stream says."""
    said = _Chunks(Head(asked.model, "trsc")) if asked.chunks else _Events()
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, Delta | Transcript):
                    yield said.event(event)
        except PrefixMissing as error:  # in the stream even if it is the first: the request is not to blame
            yield error_frame(error)


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
