"""vLLM's dialect of live transcription, where it differs from OpenAI's (seen in vLLM 0.32).

A client says its model in `session.update` itself, not in a `session`. A commit begins a transcription, and one with
`final: true` ends it. Words come as `transcription.delta`, and all of them as `transcription.done`. Sound is PCM of
16 kHz. An error is a text. The first `session.update` tells the two dialects apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...speech.audio.pcm import SoundFormat
from ...speech.options import TranscriptionOptions
from ..errors import ApiError, api_error_of
from ..service import Service
from .conversation import read_base64
from .event_writer import EventWriter
from .input_audio import InputAudio, Utterance
from .options import SessionOptions, Transcribed

_RATE = 16_000


def is_vllm(event: Mapping[str, Any]) -> bool:
    """Whether an event is of this dialect."""
    return event.get("type") == "session.update" and "session" not in event and "model" in event


class VllmSession:
    """One session."""

    def __init__(self, service: Service, out: EventWriter) -> None:
        if service.transcriber is None:
            raise ApiError(400, "this server does not transcribe: start it with --transcription-model")
        self._service = service
        self._out = out
        options = SessionOptions(
            kind="transcription",
            model="",
            input_format=SoundFormat("pcm", _RATE),
            transcription=Transcribed({}, TranscriptionOptions()),
        )
        self.audio = InputAudio(service.transcriber, options, self, keep=False)
        self._has_model = False

    @property
    def busy(self) -> bool:
        return bool(self.audio.unfinished)

    async def take(self, event: Mapping[str, Any]) -> None:
        try:
            await self._take(event)
        except OSError:
            raise
        except Exception as error:
            await self.error(api_error_of(error))

    async def error(self, error: ApiError) -> None:
        await self._out.raw({"type": "error", "error": error.message, "code": error.code})

    async def close(self) -> None:
        await self.audio.close()

    async def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "session.update":
            if not isinstance(event.get("model"), str):
                raise ApiError(400, "Missing required field: model", code="invalid_event")
            self._service.check_listener(event["model"])
            self._has_model = True
        elif kind == "input_audio_buffer.append":
            data = read_base64(event.get("audio"), "audio")
            if not data:
                raise ApiError(400, "audio has no samples", code="invalid_audio")
            await self.audio.append(data)
        elif kind == "input_audio_buffer.commit":
            if not self._has_model:
                message = "the model is not known: send a session.update with it first"
                raise ApiError(400, message, code="model_not_validated")
            if not event.get("final"):
                await self.audio.release()
            elif self.audio.open is not None and self.audio.open.seconds < 0.1:
                self.audio.open.seconds = 0.1  # a transcription that was begun has an end, whatever came
                await self.audio.commit()
            else:
                await self.audio.commit()
        else:
            raise ApiError(400, f"Unknown event type: {kind:.80}", code="unknown_event")

    # Utterances

    async def started(self, utterance: Utterance, seconds: float) -> None: ...

    async def stopped(self, utterance: Utterance, seconds: float) -> None: ...

    async def committed(self, utterance: Utterance, by_detector: bool) -> None: ...

    async def heard(self, utterance: Utterance, text: str) -> None:
        await self._out.raw({"type": "transcription.delta", "delta": text})

    async def transcribed(self, utterance: Utterance) -> None:
        if utterance.error is not None:
            await self.error(utterance.error)
            return
        assert utterance.hearing is not None
        counts = utterance.hearing.counts
        usage = {"prompt_tokens": counts.prompt, "completion_tokens": counts.completion}
        usage["total_tokens"] = counts.prompt + counts.completion
        await self._out.raw({"type": "transcription.done", "text": utterance.text, "usage": usage})
