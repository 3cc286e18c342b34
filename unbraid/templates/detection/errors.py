"""What can go wrong with a detection, besides finding nothing."""

from __future__ import annotations

from ...errors import UnbraidError


class DetectionError(UnbraidError):
    """A template, or a response template, that nothing can be said about; the error says why."""
