"""The adapter of transcription endpoints: models behind `/v1/audio/transcriptions`, which give text and no tokens.

`endpoint_server` writes the language and the times that a server gives into the text, as Whisper's tags. So the format
is Whisper's, and the same parser reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...formats import find
from ..audio.decode import Samples
from ..languages import known_code
from ..listening import ListenRequest
from ..options import Task, TranscriptionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest(ListenRequest):
    """A request to an endpoint."""

    task: Task = "transcribe"
    language: str | None = None
    """A code, or the text itself if there is none; None to detect it."""
    context: str = ""
    """The user's prompt, as text."""


class EndpointAdapter:
    """All endpoints. What one does not support, the server itself refuses."""

    max_seconds = 30.0
    supports_language_detection = False  # the server does that
    supports_timestamps = True
    supports_translation = True
    language: str | None = None

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        if vocabulary is not None:
            raise UnbraidError("an endpoint gives text: it has no vocabulary")
        self.format = find("whisper")

    def check(self, options: TranscriptionOptions) -> None:
        if options.languages:
            raise UnbraidError(
                "languages: the server that transcribes takes one language or none, not several candidates"
            )

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> EndpointRequest:
        return EndpointRequest(
            samples=samples,
            prompt=(),
            timestamps=options.timestamps,
            temperature=temperature,
            seed=options.seed,
            task=options.task,
            language=None if options.language is None else known_code(options.language) or options.language,
            context=options.prompt.strip(),
        )

    def language_of(self, token: int) -> str | None:
        return None
