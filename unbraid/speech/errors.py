"""What can be wrong with a recording. Each message says what to do about it."""

from __future__ import annotations

from ..errors import UnbraidError


class BadAudio(UnbraidError):
    """A file without sound in it that could be decoded: broken, empty, or no sound file at all."""


class TooMuchAudio(BadAudio):
    """A recording that is longer, or a file that is larger, than the limits allow."""
