"""Errors of transcription that a user can act on. Each message says what to do."""

from __future__ import annotations

from ..errors import UnbraidError


class BadAudio(UnbraidError):
    """A file from which no sound can be decoded: damaged, empty, or not a sound file."""


class TooMuchAudio(BadAudio):
    """A recording that is longer, or a file that is larger, than the limits allow."""


class UnsupportedOption(UnbraidError):
    """An option that the model does not support; `field` is its name in `TranscriptionOptions`."""

    field: str

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, field=field)
