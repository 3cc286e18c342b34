"""The body of `POST /v1/audio/speech`. Needs nothing of speech: the description of the API has it, too."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ...errors import ApiError
from ..fields import Object

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
