"""The error of a detection. To find nothing is no error: see `Detection`."""

from __future__ import annotations

from ...errors import UnbraidError


class DetectionError(UnbraidError):
    """The template or response_template cannot be judged; the error says why."""
