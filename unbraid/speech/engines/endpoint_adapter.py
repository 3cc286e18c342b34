"""Models behind a server's own `/v1/audio/transcriptions`: a recording goes in, and text comes out, not tokens.

The text is in Whisper's notation, as far as the server says what it takes: the language and the times are tags in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...formats import find
from ..adapters import Task, TranscriptionOptions, register
from ..audio.decode import Samples
from ..languages import language_code
from ..listening import ListenRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHearing(ListenRequest):
    """What such a server is asked."""

    task: Task = "transcribe"
    language: str | None = None
    """Its code, where there is one; None to have it detected."""
    context: str = ""
    """The user's prompt, as text."""


class EndpointAdapter:
    """All of them. What one cannot do, it says itself when it is asked."""

    longest = 30.0
    supports_language_detection = False  # that is the server's affair
    supports_timestamps = True
    supports_translation = True
    language: str | None = None

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        if vocabulary is not None:
            raise UnbraidError("an endpoint writes text: its tokens are not known")
        self.format = find("whisper")

    def check(self, wish: TranscriptionOptions) -> None:
        if wish.languages:
            raise UnbraidError(
                "languages: the server that transcribes here takes one language or none, not several to choose from"
            )

    def hearing(self, samples: Samples, wish: TranscriptionOptions, temperature: float) -> EndpointHearing:
        return EndpointHearing(
            samples=samples,
            prompt=(),
            timestamps=wish.timestamps,
            temperature=temperature,
            seed=wish.seed,
            task=wish.task,
            language=None if wish.language is None else code_of(wish.language) or wish.language,
            context=wish.prompt.strip(),
        )

    def language_of(self, token: int) -> str | None:
        return None


def code_of(language: str) -> str | None:
    """Whisper's code of a language, by its name or its code; None where it has none."""
    try:
        return language_code(language)
    except UnbraidError:
        return None


register("endpoint", EndpointAdapter)
