"""The adapter protocol: what is particular to one family of speech models.

An adapter turns `TranscriptionOptions` and a chunk of samples into a `ListenRequest`, and names the format in which the
family's models write. It does no work itself: a `Listener` runs the model, and the `Transcriber` uses both.

Implementations live beside their models (`whisper.adapter`, `moonshine.adapter`, `engines.endpoint_adapter`);
`families` lists them.
"""

from __future__ import annotations

from typing import Protocol

from ..core.grammar import Format
from .audio.decode import Samples
from .listening import ListenRequest
from .options import TranscriptionOptions


class Adapter(Protocol):
    """One family of models, for the vocabulary of one model."""

    @property
    def format(self) -> Format:
        """What the models write."""
        ...

    @property
    def max_seconds(self) -> float:
        """The longest chunk that a model takes."""
        ...

    @property
    def supports_language_detection(self) -> bool: ...

    @property
    def language(self) -> str | None:
        """The language code of a model for one language; None for other models, and where it is unknown."""
        ...

    @property
    def supports_timestamps(self) -> bool: ...

    @property
    def supports_translation(self) -> bool: ...

    def check(self, options: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for options that the model does not support."""
        ...

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ListenRequest:
        """The request for one chunk. Where the language is to be detected, the same request does that too."""
        ...

    def language_of(self, token: int) -> str | None:
        """The language code that a token stands for, if it stands for one."""
        ...
